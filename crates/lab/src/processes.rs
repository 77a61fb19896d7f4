//! Ends the processes inside a machine that is taken down, like a power-off.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Error;
use crate::namespace::Identity;
use udpath_files::kernel;

/// How long killed processes may take to end. SIGKILL is quick, except for a process that waits for a dead disk. Too
/// low: a loaded machine reports a lab as not removed. Too high: such a process delays the sweep.
const ENDING: Duration = Duration::from_secs(5);

/// Ends every process in this network namespace, except the calling one. Processes that they start in the meantime are
/// found by scanning again.
pub(crate) fn end_all_in(namespace: Identity, machine: &str) -> Result<(), Error> {
    let deadline = Instant::now() + ENDING;
    loop {
        let inside = processes_in(namespace);
        if inside.is_empty() {
            return Ok(());
        }
        for process in &inside {
            // ESRCH: it has already ended.
            let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
        }
        for process in &inside {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !ended(process, left) {
                let what = format!("{} processes in machine {machine} to end", inside.len());
                return Err(Error::Deadline { what, seconds: ENDING.as_secs() });
            }
        }
    }
}

fn ended(process: &OwnedFd, within: Duration) -> bool {
    // A pidfd is readable once its process has ended, reaped or not.
    let Ok(within) = Timespec::try_from(within) else { return false };
    let mut wait = [PollFd::new(process, PollFlags::IN)];
    rustix::event::poll(&mut wait, Some(&within)).is_ok_and(|ready| ready > 0)
}

/// Held by pidfd, not PID: a PID can be reused at any moment.
fn processes_in(namespace: Identity) -> Vec<OwnedFd> {
    let Ok(all) = kernel::numbers("/proc") else { return Vec::new() };
    let numbers = all.into_iter().map(u32::cast_signed);
    let own = std::process::id().cast_signed();
    numbers.filter(|&number| number != own).filter_map(|number| inside(number, namespace)).collect()
}

fn inside(number: i32, namespace: Identity) -> Option<OwnedFd> {
    let net = format!("/proc/{number}/ns/net");
    let is_there = || Identity::of(Path::new(&net)).is_ok_and(|of| of == namespace);
    // Checked twice: a cheap check first, and again once the PID can no longer be reused. A process that has ended but
    // is not reaped has no namespace any more.
    if !is_there() {
        return None;
    }
    let process = rustix::process::pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
    is_there().then_some(process)
}
