//! What an instance has bound, and whether it reads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use udpath_files::kernel;
use udpath_host::process::{self, SocketId, find, with_socket};

use crate::Error;

/// Most bytes of a thread's file that are read; `stat`, the longest here, has some 400.
const MAX_FILE: usize = 4096;

/// A UDP socket that was bound to a port by its number, under the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) id: SocketId,
    /// A process that has it.
    pub(crate) pid: u32,
    pub(crate) local: SocketAddr,
    /// Bytes in its queue, by the kernel's accounting.
    pub(crate) queued: u32,
    /// Datagrams dropped at it since it was opened. Wraps.
    pub(crate) drops: u32,
}

/// The sockets of these processes that can share their port, each once, by address.
pub(crate) fn bound(pids: &[u32]) -> Result<Vec<Bound>, Error> {
    let mut found = BTreeMap::new();
    for pid in pids {
        let server = match find(*pid) {
            // Ended since the list was read.
            Err(error) if error.is_gone() => continue,
            server => server?,
        };
        for socket in server.sockets.iter().filter(|socket| socket.peer.is_none()) {
            if found.contains_key(&socket.id) || !shares(socket.pid, socket.id)? {
                continue;
            }
            let bound = Bound {
                id: socket.id,
                pid: socket.pid,
                local: socket.local,
                queued: socket.queued,
                drops: socket.drops,
            };
            found.insert(socket.id, bound);
        }
    }
    let mut found: Vec<Bound> = found.into_values().collect();
    found.sort_by_key(|bound| (bound.local, bound.id));
    Ok(found)
}

/// Whether `SO_REUSEPORT` is set: the policy sets it only for a port that the program names.
fn shares(pid: u32, socket: SocketId) -> Result<bool, Error> {
    let shares = with_socket(pid, socket, |held| {
        let what = || format!("read SO_REUSEPORT of socket {} of process {pid}", socket.inode);
        rustix::net::sockopt::socket_reuseport(held)
            .map_err(|errno| process::Error::answered(what(), errno, "CAP_SYS_PTRACE"))
    });
    match shares {
        Err(error) if error.is_gone() => Ok(false),
        shares => Ok(shares?),
    }
}

/// CPU time that the threads of these processes have used, ns. Grows whenever one of them runs.
pub(crate) fn run_time(pids: &[u32]) -> u64 {
    // The first number of schedstat: Documentation/scheduler/sched-stats.rst.
    let of = |text: String| text.split(' ').next()?.parse::<u64>().ok();
    threads(pids, "schedstat").filter_map(of).sum()
}

/// Whether all threads of these processes sleep until something happens, or have ended: states S, I, Z and X of
/// proc(5).
pub(crate) fn are_asleep(pids: &[u32]) -> bool {
    threads(pids, "stat").all(|text| is_asleep(&text))
}

/// `17 (name) S 1 ...`; the name may have parentheses and spaces.
fn is_asleep(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| "SIZX".contains(state))
}

/// This file of each thread that has not ended.
fn threads<'a>(pids: &'a [u32], file: &'a str) -> impl Iterator<Item = String> + 'a {
    let threads = move |pid: &u32| {
        let folder = format!("/proc/{pid}/task");
        let tids = kernel::numbers(&folder).unwrap_or_default().into_iter();
        tids.map(move |tid| format!("{folder}/{tid}/{file}"))
    };
    pids.iter().flat_map(threads).filter_map(|path| of_thread(Path::new(&path)))
}

/// A file of a thread. Its name in it may be any bytes.
fn of_thread(path: &Path) -> Option<String> {
    let bytes = kernel::start(path, MAX_FILE).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wants_to_run_is_not_asleep() {
        for (state, asleep) in
            [("S", true), ("I", true), ("Z", true), ("R", false), ("D", false), ("T", false)]
        {
            assert_eq!(is_asleep(&format!("17 (a) S (b) {state} 1 17 17\n")), asleep, "{state}");
        }
        assert!(!is_asleep("") && !is_asleep("17 (a)"));
        // This thread runs.
        assert!(!are_asleep(&[std::process::id()]));
    }
}
