//! Threads of a server and the CPUs they may run on.

use std::io;

use serde::{Deserialize, Serialize};
use udpath_files::kernel;
use udpath_steer::CpuSet;

use super::Error;
use crate::source::{Folder, value};

/// The list of online CPUs.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// A thread's identity. Its ID may be reused once it has ended; the start time tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadId {
    /// Its process.
    pub pid: u32,
    /// Its own ID; the main thread's equals its process's.
    pub tid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub started: u64,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its identity.
    pub id: ThreadId,
    /// Its name, which servers often choose by its role; at most 15 bytes.
    pub name: String,
    /// CPUs it may run on, including CPUs that are offline now.
    pub affinity: CpuSet,
    /// The CPU it runs on, or last ran on.
    pub last_cpu: u32,
}

impl Thread {
    /// How long an affinity lasts, for users.
    pub const LASTS: &'static str = "until the thread ends: a restart of the server resets it, and so does a reload \
                                     that starts new workers (nsd's does)";

    /// Reads its current state from /proc.
    ///
    /// # Errors
    /// It does not exist, or there is no permission to read it.
    pub fn look(pid: u32, tid: u32) -> Result<Self, Error> {
        let read = |file: &str| {
            super::text(&format!("/proc/{pid}/task/{tid}/{file}")).map_err(|cause| {
                match cause.raw_os_error() {
                    Some(libc::ENOENT | libc::ESRCH) => Error::ThreadGone { pid, tid },
                    _ => Error::answered(format!("read {file} of thread {tid} of {pid}"), cause, "root"),
                }
            })
        };
        let (stat, status) = (read("stat")?, read("status")?);
        if ended(&stat) {
            return Err(Error::ThreadGone { pid, tid });
        }
        parse(pid, tid, &stat, &status).ok_or_else(|| Error::System {
            what: format!("read thread {tid} of process {pid}"),
            cause: io::Error::other("unknown format in /proc"),
        })
    }
}

/// IDs of a process's threads.
pub(super) fn of(pid: u32) -> Result<Vec<u32>, Error> {
    let mut tids = kernel::numbers(format!("/proc/{pid}/task")).map_err(|_| Error::NoProcess { pid })?;
    tids.sort_unstable();
    Ok(tids)
}

/// CPUs a thread may run on.
///
/// # Errors
/// It has ended.
pub fn affinity(thread: ThreadId) -> Result<CpuSet, Error> {
    let ThreadId { pid, tid, .. } = thread;
    let found = Thread::look(pid, tid)?;
    if found.id == thread { Ok(found.affinity) } else { Err(Error::ThreadGone { pid, tid }) }
}

/// CPUs that are online.
pub fn online() -> Result<CpuSet, Error> {
    listed(ONLINE)
}

/// CPUs that may come online; if not reported, those that are.
pub fn possible(online: &CpuSet) -> CpuSet {
    listed("/sys/devices/system/cpu/possible").unwrap_or_else(|_| online.clone())
}

fn listed(path: &str) -> Result<CpuSet, Error> {
    let failed = |why: String| Error::System { what: format!("read {path}"), cause: io::Error::other(why) };
    let list = value(&Folder::live(), path).map_err(|absence| failed(absence.to_string()))?;
    CpuSet::from_list(&list).map_err(|wrong| failed(wrong.to_string()))
}

/// Whether it is a zombie. It still shows all its fields.
fn ended(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z") || rest.starts_with(" X"))
}

/// `/proc/PID/task/TID/stat` and `status`.
fn parse(pid: u32, tid: u32, stat: &str, status: &str) -> Option<Thread> {
    // The name may contain anything, including spaces and parentheses; the last one closes it.
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    // Field 3 is the first one here (proc_pid_stat(5)).
    let field = |number: usize| rest.split_whitespace().nth(number - 3);
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(Thread {
        id: ThreadId { pid, tid, started: field(22)?.parse().ok()? },
        name,
        affinity: CpuSet::from_list(allowed).ok()?,
        last_cpu: field(39)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "71 (a) (b c) S 1 71 71 0 -1 4194624 128 0 0 0 3 5 0 0 20 0 5 0 4242 7340032 900 1 2 3 4 5 6 7 \
                        8 9 10 11 12 13 17 3 0 0 0 0 0";

    #[test]
    fn names_with_anything_in_them() {
        let thread = parse(71, 72, STAT, "Name:\ta\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3,9\n").unwrap();
        assert_eq!((thread.name.as_str(), thread.id.started, thread.last_cpu), ("a) (b c", 4242, 3));
        assert_eq!(thread.affinity.to_string(), "0-3,9");
        for cut in 0..STAT.len() {
            // Truncated input never parses.
            assert!(parse(71, 72, &STAT[..cut], "").is_none());
        }
    }

    #[test]
    fn a_zombie_is_gone() {
        assert!(ended("71 (a) Z (b) Z 1 71") && ended("71 (a) X 1") && !ended("71 (a) Z) S 1 71"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while Thread::look(child.id(), child.id()).is_ok() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(matches!(Thread::look(child.id(), child.id()), Err(Error::ThreadGone { .. })));
        child.wait().unwrap();
    }
}
