//! Options of a running server's sockets, written from outside.
//!
//! ```text
//!  write(pid, socket, value) ─▸ pidfd_getfd ─ duplicate ─ getsockopt, setsockopt, getsockopt ─ closed at once
//! ```
//! The duplicate is closed before the call returns: see [`udpath_host::process`] for what an open one would break.

use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use udpath_host::process::{
    Error, MAX_BUFFER, Selection, SocketId, SocketValue, get, group, online, with_socket,
};

use super::{rule, sys};

/// The capability needed to set such options on another process's socket.
const NEEDS: &str = "CAP_NET_ADMIN";

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<V> {
    /// The previous value; `None` if the kernel does not report it.
    pub before: Option<V>,
    /// The value that undoes the write: the previous value, or the kernel's default if the kernel does not report it.
    /// In that case the server's own choice returns only after its restart.
    pub undo: V,
    /// The value read back; `None` if the kernel does not report it. Selection is verified by counters.
    pub after: Option<V>,
}

/// Sets a socket option, reads it back, and returns the previous value. If it does not read back as written, the
/// previous value is restored.
///
/// # Errors
/// The process no longer has the socket, the value is invalid, permission is denied, or the kernel rejects it.
pub fn write(pid: u32, socket: SocketId, value: SocketValue) -> Result<Changed<SocketValue>, Error> {
    let named = || format!("socket {} of process {pid}", socket.inode);
    check(value)?;
    if let SocketValue::Selection(selection) = value
        && let Some(rule) = rule::of(selection)
    {
        rule::select(pid, socket, rule)?;
        return Ok(Changed { before: None, undo: default(value), after: None });
    }
    let members = match value {
        SocketValue::Selection(_) => {
            let group = group(pid, socket)?.ok_or_else(|| Error::NoGroup { socket: named() })?;
            u32::try_from(group.len()).unwrap_or(u32::MAX)
        }
        _ => 0,
    };
    with_socket(pid, socket, |held| {
        let what = || format!("set {} of {} to {value}", value.setting().option(), named());
        let answered = |cause| Error::answered(what(), cause, NEEDS);
        if matches!(value, SocketValue::IncomingCpu(_)) && rustix::net::getpeername(held).is_ok() {
            return Err(Error::Connected { socket: named() });
        }
        let before = get(held, value.setting()).map_err(answered)?;
        set(held, value, members).map_err(answered)?;
        let after = get(held, value.setting()).map_err(answered)?;
        if let (Some(before), Some(after)) = (before, after)
            && after != taken(value)
        {
            // The mismatch is the error to report; if this fails too, it contains `before`.
            let _ = set(held, before, members);
            let what = format!("{} of {}", value.setting().option(), named());
            let (wanted, found, before) = (value.to_string(), after.to_string(), before.to_string());
            return Err(Error::NotTaken { what, wanted, found, before });
        }
        Ok(Changed { before, undo: before.unwrap_or_else(|| default(value)), after })
    })
}

fn set(socket: BorrowedFd<'_>, value: SocketValue, members: u32) -> io::Result<()> {
    let number = |name, value: u32| sys::set_option(socket, name, value.cast_signed());
    match value {
        // The kernel doubles the value it is given.
        SocketValue::ReceiveBuffer(bytes) => number(libc::SO_RCVBUFFORCE, bytes.div_ceil(2)),
        SocketValue::BusyPoll(us) => number(libc::SO_BUSY_POLL, us),
        SocketValue::PreferBusyPoll(on) => number(libc::SO_PREFER_BUSY_POLL, on.into()),
        SocketValue::BusyPollBudget(packets) => number(libc::SO_BUSY_POLL_BUDGET, packets.into()),
        SocketValue::IncomingCpu(cpu) => number(libc::SO_INCOMING_CPU, cpu.unwrap_or(u32::MAX)),
        SocketValue::Selection(Selection::ByCpu) => sys::choose_by_cpu(socket, members),
        SocketValue::Selection(Selection::ByCpuModulo(members)) => sys::choose_by_cpu(socket, members),
        SocketValue::Selection(Selection::ByFlow) => match number(libc::SO_DETACH_REUSEPORT_BPF, 0) {
            // No program is attached.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            detached => detached,
        },
        // `write` calls `rule::select` for these.
        SocketValue::Selection(Selection::RoundRobin | Selection::LeastLoaded | Selection::Field { .. }) => {
            Err(io::Error::other("its program needs all sockets of the group"))
        }
    }
}

/// The value as it reads back.
fn taken(value: SocketValue) -> SocketValue {
    match value {
        SocketValue::ReceiveBuffer(bytes) => SocketValue::ReceiveBuffer(bytes.next_multiple_of(2)),
        other => other,
    }
}

/// The value of an option that was never set.
fn default(value: SocketValue) -> SocketValue {
    match value {
        SocketValue::BusyPollBudget(_) => SocketValue::BusyPollBudget(0),
        SocketValue::Selection(_) => SocketValue::Selection(Selection::ByFlow),
        told => told,
    }
}

fn check(value: SocketValue) -> Result<(), Error> {
    let range = |what, value: u32, right: String| Err(Error::Range { what, value: value.into(), right });
    match value {
        SocketValue::ReceiveBuffer(bytes) if bytes > MAX_BUFFER => {
            range("receive buffer", bytes, format!("use up to {MAX_BUFFER} bytes"))
        }
        SocketValue::BusyPoll(us) if i32::try_from(us).is_err() => {
            range("busy poll time", us, format!("use 0 to {} us", i32::MAX))
        }
        SocketValue::IncomingCpu(Some(cpu)) => {
            let online = online()?;
            if online.contains(cpu) { Ok(()) } else { Err(Error::NoCpu { cpu, online }) }
        }
        _ => Ok(()),
    }
}
