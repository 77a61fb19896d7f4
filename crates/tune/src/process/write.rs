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

use super::sys;

/// What lets one process write such options of another's socket.
const NEEDS: &str = "CAP_NET_ADMIN";

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<V> {
    /// What it was; none where the kernel does not tell.
    pub before: Option<V>,
    /// What to write to undo it: what it was, and where the kernel does not tell that, its own default. What the server
    /// itself had set of such a thing is then back only after its restart.
    pub undo: V,
    /// What it is now, as read back; none where the kernel does not tell. Selection is verified by counts.
    pub after: Option<V>,
}

/// Sets a value of a socket, reads it back, and tells what it was. What does not read back as written is put back.
///
/// # Errors
/// The process does not have the socket any more, the value is not possible, it is not permitted, or the kernel does
/// not take it.
pub fn write(pid: u32, socket: SocketId, value: SocketValue) -> Result<Changed<SocketValue>, Error> {
    let named = || format!("socket {} of process {pid}", socket.inode);
    check(value)?;
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
            // The mismatch is what is told; should this fail too, `before` is in it.
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
        // It doubles what it is told.
        SocketValue::ReceiveBuffer(bytes) => number(libc::SO_RCVBUFFORCE, bytes.div_ceil(2)),
        SocketValue::BusyPoll(us) => number(libc::SO_BUSY_POLL, us),
        SocketValue::PreferBusyPoll(on) => number(libc::SO_PREFER_BUSY_POLL, on.into()),
        SocketValue::BusyPollBudget(packets) => number(libc::SO_BUSY_POLL_BUDGET, packets.into()),
        SocketValue::IncomingCpu(cpu) => number(libc::SO_INCOMING_CPU, cpu.unwrap_or(u32::MAX)),
        SocketValue::Selection(Selection::ByCpu) => sys::choose_by_cpu(socket, members),
        SocketValue::Selection(Selection::ByFlow) => match number(libc::SO_DETACH_REUSEPORT_BPF, 0) {
            // There is none attached.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            detached => detached,
        },
    }
}

/// As it reads back.
fn taken(value: SocketValue) -> SocketValue {
    match value {
        SocketValue::ReceiveBuffer(bytes) => SocketValue::ReceiveBuffer(bytes.next_multiple_of(2)),
        other => other,
    }
}

/// What a socket has of it that nobody has set.
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
