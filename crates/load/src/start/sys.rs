#![allow(unsafe_code, reason = "adjtimex, which rustix lacks")]
//! What the kernel knows of the error of the machine's clock.

use std::mem;
use std::time::Duration;

/// How far the machine's clock is off at most, as the program that synchronises it informs the kernel (`maxerror` of
/// adjtimex(2)); none if nothing synchronises it.
#[must_use]
pub fn clock_error() -> Option<Duration> {
    // SAFETY: `timex` consists of integers, for which zero is a value; no `modes` means that nothing is changed.
    let mut state: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: `state` is a valid `timex` for the duration of the call, which writes only to it.
    let status = unsafe { libc::adjtimex(&raw mut state) };
    let synchronised = (0..libc::TIME_ERROR).contains(&status) && state.status & libc::STA_UNSYNC == 0;
    synchronised.then(|| Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(0)))
}
