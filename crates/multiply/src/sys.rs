//! How an instance starts: in its cgroup and on its CPU before its first instruction.
#![allow(unsafe_code, reason = "a hook between fork and exec has no safe form")]

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Makes the child of `command` start in the cgroup whose `cgroup.procs` is open for writing, on one CPU.
pub(crate) fn start_in(command: &mut Command, procs: OwnedFd, cpu: u32) {
    let mut mask = CpuSet::new();
    // A CPU that the mask cannot hold is left out; an empty mask is refused by the kernel.
    if (cpu as usize) < CpuSet::MAX_CPU {
        mask.set(cpu as usize);
    }
    let hook = move || {
        // 0: the process that writes.
        rustix::io::write(&procs, b"0")?;
        sched_setaffinity(None, &mask)?;
        Ok(())
    };
    // SAFETY: the hook makes two system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(hook) };
}
