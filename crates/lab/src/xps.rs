//! The transmit mapping in the kernel's form: `queues/tx-N/xps_cpus`, one mask per queue. Called inside a machine.

use std::io;
use std::path::PathBuf;

use udpath_files::kernel;
use udpath_steer::CpuSet;

use crate::Error;

/// Online CPUs of this machine, from /sys/devices/system/cpu/online.
///
/// # Errors
/// The file cannot be read, or is not a list of CPUs.
pub fn online_cpus() -> Result<CpuSet, Error> {
    let path = "/sys/devices/system/cpu/online";
    let failed = |source: io::Error| Error::system(format!("read {path}"), source);
    let text = kernel::text(path).map_err(failed)?;
    CpuSet::from_list(&text).map_err(|wrong| failed(io::Error::new(io::ErrorKind::InvalidData, wrong)))
}

/// The mapping of every queue of an interface. `object`: `machine/interface`, for errors.
pub(crate) fn read(object: &str, interface: &str, queues: u32) -> Result<Vec<CpuSet>, Error> {
    (0..queues)
        .map(|queue| {
            let path = file(interface, queue);
            let failed =
                |source| Error::system(format!("read the transmit mapping of {object} tx-{queue}"), source);
            let text = kernel::text(path).map_err(failed)?;
            CpuSet::from_mask(&text)
                .map_err(|wrong| failed(io::Error::new(io::ErrorKind::InvalidData, wrong)))
        })
        .collect()
}

/// Writes a whole mapping and reads it back. If a queue rejects its set, the mapping is restored.
pub(crate) fn write(object: &str, interface: &str, map: &[CpuSet]) -> Result<(), Error> {
    let queues = u32::try_from(map.len()).unwrap_or(u32::MAX);
    let before = read(object, interface, queues)?;
    let written =
        put(object, interface, map).and_then(|()| verify(object, map, &read(object, interface, queues)?));
    if written.is_err() {
        // Report the first failure.
        let _ = put(object, interface, &before);
    }
    written
}

fn put(object: &str, interface: &str, map: &[CpuSet]) -> Result<(), Error> {
    for (queue, cpus) in (0_u32..).zip(map) {
        kernel::write(file(interface, queue), &cpus.to_mask()).map_err(|source| {
            // More bits than the kernel has CPUs.
            let beyond = matches!(source.raw_os_error(), Some(libc::EOVERFLOW | libc::EINVAL));
            let hint = if beyond { ", which not all exist," } else { "" };
            Error::system(format!("map CPUs {cpus}{hint} to {object} tx-{queue}"), source)
        })?;
    }
    Ok(())
}

fn verify(object: &str, wanted: &[CpuSet], found: &[CpuSet]) -> Result<(), Error> {
    match wanted.iter().zip(found).zip(0_u32..).find(|((wanted, found), _)| wanted != found) {
        None => Ok(()),
        Some(((wanted, found), queue)) => Err(Error::NotTaken {
            what: "the transmit mapping",
            object: format!("{object} tx-{queue}"),
            wanted: wanted.to_string(),
            found: found.to_string(),
        }),
    }
}

fn file(interface: &str, queue: u32) -> PathBuf {
    PathBuf::from(format!("/sys/class/net/{interface}/queues/tx-{queue}/xps_cpus"))
}
