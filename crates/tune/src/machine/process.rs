//! Running servers as settings: CPU affinity of their threads and options of their sockets.
//!
//! A setting names a socket by process and inode, as users see it; [`Identity::Sockets`] identifies it by cookies.

use std::collections::HashMap;

use error_reporter::Report;

use super::{Identity, Lost, Refusal};
use udpath_host::process::{self, Error, SocketSetting, SocketValue, Thread};

use crate::process::{Chosen, chosen, pin, unselected, write};
use crate::settings::{Setting, Value};
use udpath_host::{Source, processes, sockets};

/// CPUs a thread may run on.
pub(super) fn affinity(setting: &Setting, pid: u32, tid: u32) -> Result<Value, Refusal> {
    let thread = Thread::look(pid, tid).map_err(|error| refused("read", setting, &error))?;
    Ok(Value::Cpus(thread.affinity))
}

/// Restricts a thread to these CPUs.
pub(super) fn set_affinity(setting: &Setting, pid: u32, tid: u32, value: &Value) -> Result<(), Refusal> {
    let Value::Cpus(cpus) = value else { return Err(other(setting, value)) };
    let thread = Thread::look(pid, tid).and_then(|thread| pin(thread.id, cpus));
    thread.map(drop).map_err(|error| refused("set", setting, &error))
}

/// The value of a socket option; unknown if the kernel does not report it.
pub(super) fn option(setting: &Setting, pid: u32, inode: u32, of: SocketSetting) -> Result<Value, Refusal> {
    let found = process::identify(pid, inode).and_then(|socket| match of {
        SocketSetting::Selection => Ok(match chosen(socket) {
            Chosen::By(selection) => Some(SocketValue::Selection(selection)),
            Chosen::Program(_) | Chosen::Unseen(_) => None,
        }),
        _ => process::read(pid, socket, of),
    });
    let found = found.map_err(|error| refused("read", setting, &error))?;
    Ok(found.map_or(Value::Unknown, Value::of_socket))
}

/// What a change would destroy permanently: see [`Chosen::lost`].
pub(super) fn lost(pid: u32, inode: u32) -> Option<Lost> {
    chosen(process::identify(pid, inode).ok()?).lost()
}

/// Why a group's selection does not have its whole effect: see [`unselected`].
pub(super) fn broken(pid: u32, inode: u32) -> Option<String> {
    unselected(pid, process::identify(pid, inode).ok()?)
}

/// Sets it.
pub(super) fn set_option(
    setting: &Setting,
    pid: u32,
    inode: u32,
    of: SocketSetting,
    value: &Value,
) -> Result<(), Refusal> {
    let value = value.for_socket(of).ok_or_else(|| other(setting, value))?;
    let written = process::identify(pid, inode).and_then(|socket| write(pid, socket, value));
    written.map(drop).map_err(|error| refused("set", setting, &error))
}

/// The start time of a thread.
pub(super) fn thread(setting: &Setting, pid: u32, tid: u32) -> Result<Identity, Refusal> {
    let thread = Thread::look(pid, tid).map_err(|error| refused("find", setting, &error))?;
    Ok(Identity::Started(thread.id.started))
}

/// The socket's cookie; for a group setting, the cookies of all members.
pub(super) fn sockets(
    setting: &Setting,
    pid: u32,
    inode: u32,
    of: SocketSetting,
) -> Result<Identity, Refusal> {
    let found = process::identify(pid, inode).and_then(|socket| match of {
        SocketSetting::Selection => {
            let group = process::group(pid, socket)?;
            group.ok_or_else(|| Error::NoGroup { socket: format!("socket {inode} of process {pid}") })
        }
        _ => Ok(vec![socket]),
    });
    let found = found.map_err(|error| refused("find", setting, &error))?;
    Ok(Identity::Sockets(found.iter().map(|socket| socket.cookie).collect()))
}

/// The current owner of one of these sockets: the original process may have exited and passed it on, and any member
/// represents a group.
pub(super) fn held(source: &dyn Source, cookies: &[u64], of: SocketSetting) -> Option<Setting> {
    let mut listed = source.udp_sockets().ok()?.value;
    listed.retain(|socket| socket.cookie.is_some_and(|cookie| cookies.contains(&cookie)));
    let wanted: HashMap<u32, usize> = sockets::inodes(&mut listed);
    let holders = processes::scan(source, &wanted).ok()?.holders;
    let first = holders.into_iter().min_by_key(|holder| holder.pid)?;
    Some(Setting::Socket { pid: first.pid, inode: first.inode, setting: of })
}

fn other(setting: &Setting, value: &Value) -> Refusal {
    Refusal::because("set", setting, format!("'{value}' is not a value of it"))
}

/// The refusal, with the error's own text.
fn refused(operation: &'static str, setting: &Setting, error: &Error) -> Refusal {
    let errno = error.is_gone().then_some(libc::ESRCH);
    let why = match (setting, error) {
        (Setting::Thread { .. }, Error::ThreadGone { .. }) => "no such thread".to_owned(),
        _ => Report::new(error).to_string(),
    };
    Refusal { errno, ..Refusal::because(operation, setting, why) }
}
