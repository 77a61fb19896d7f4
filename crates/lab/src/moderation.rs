//! NIC-like interrupt moderation on a veth: its NAPI waits for more frames before it runs again.
//!
//! A veth has no interrupts. While its NAPI is on, every frame sent into it immediately runs one poll, on the sender's
//! CPU: there are no batches, and a service that handles bursts well looks as slow as one that does not. The kernel
//! offers `gro_flush_timeout` with `napi_defer_hard_irqs` (Documentation/networking/napi.rst) for any device: after a
//! poll that found work the queue stays idle until a timer polls again, and veth prevents its peer from waking it
//! before that (`rx_notify_masked`, drivers/net/veth.c).
//!
//! Called inside a machine.

use std::io;
use std::path::PathBuf;

use crate::Error;
use udpath_files::kernel;

/// Number of empty polls before the queue wakes immediately again. A single request after a pause of more than one
/// timeout does not wait. More: the queue stays moderated longer after traffic ends.
const EMPTY_POLLS: u32 = 1;

/// The kernel's file is in nanoseconds.
const NANOSECONDS: u64 = 1000;

/// The current value in microseconds; 0: none. `object`: `machine/interface`, for errors.
pub(crate) fn read(object: &str, interface: &str) -> Result<u64, Error> {
    let polls = number(object, interface, "napi_defer_hard_irqs")?;
    let timeout = number(object, interface, "gro_flush_timeout")?;
    Ok(if polls == 0 { 0 } else { timeout / NANOSECONDS })
}

/// Sets it and reads it back. 0: none.
pub(crate) fn write(object: &str, interface: &str, microseconds: u32) -> Result<(), Error> {
    let polls = if microseconds == 0 { 0 } else { EMPTY_POLLS };
    for (name, value) in [
        ("gro_flush_timeout", u64::from(microseconds) * NANOSECONDS),
        ("napi_defer_hard_irqs", u64::from(polls)),
    ] {
        kernel::write(file(interface, name), &value.to_string())
            .map_err(|source| Error::system(format!("write {value} to {name} of {object}"), source))?;
    }
    let found = read(object, interface)?;
    if found == u64::from(microseconds) {
        return Ok(());
    }
    let (wanted, found) = (format!("{microseconds} us"), format!("{found} us"));
    Err(Error::NotTaken { what: "the interrupt moderation", object: object.to_owned(), wanted, found })
}

fn number(object: &str, interface: &str, name: &str) -> Result<u64, Error> {
    let failed = |source: io::Error| Error::system(format!("read {name} of {object}"), source);
    let text = kernel::text(file(interface, name)).map_err(failed)?;
    text.trim().parse().map_err(|wrong| failed(io::Error::new(io::ErrorKind::InvalidData, wrong)))
}

fn file(interface: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/class/net/{interface}/{name}"))
}
