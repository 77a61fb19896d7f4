//! Threads: which CPUs they may run on, and when they began.

use std::io;

use rustix::process::Pid;
use rustix::thread;
use udpath_steer::CpuSet;

use crate::Source;

/// CPUs a thread may run on.
pub(super) fn affinity(tid: u32) -> io::Result<CpuSet> {
    let found = thread::sched_getaffinity(Some(pid(tid)?))?;
    Ok((0..thread::CpuSet::MAX_CPU)
        .filter(|cpu| found.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Lets a thread run on these CPUs alone.
pub(super) fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mut wanted = thread::CpuSet::new();
    for cpu in cpus.iter() {
        let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
        if cpu >= thread::CpuSet::MAX_CPU {
            return Err(io::Error::other(format!("CPU {cpu} is over {}", thread::CpuSet::MAX_CPU - 1)));
        }
        wanted.set(cpu);
    }
    Ok(thread::sched_setaffinity(Some(pid(tid)?), &wanted)?)
}

fn pid(tid: u32) -> io::Result<Pid> {
    let number = i32::try_from(tid).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// When a thread of a process began, clock ticks after boot: field 22 of its stat (`proc_pid_stat`(5)).
pub(super) fn started(source: &dyn Source, pid: u32, tid: u32) -> Option<u64> {
    let stat = source.text(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name before may hold anything, parentheses too.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
