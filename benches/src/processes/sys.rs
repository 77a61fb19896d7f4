//! CPU time of ended children.

#![allow(unsafe_code, reason = "getrusage has no safe wrapper here")]

use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time of all children of this process that have ended and were waited for (getrusage(2)).
pub(super) fn ended_children() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writes of one `rusage`, which is plain integers and valid when zeroed.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_utime, usage.ru_stime]
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
        .iter()
        .sum()
}
