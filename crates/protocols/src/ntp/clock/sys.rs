//! The system call that reads the kernel's clock state, behind a safe function. The only unsafe code of the crate.
#![allow(unsafe_code, reason = "adjtimex has no safe wrapper")]

use super::ClockStatus;

/// Asks the kernel.
pub(super) fn clock_status() -> ClockStatus {
    // SAFETY: all of timex is integers, for which zero is a valid value; mode 0 reads.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is a live timex, which the kernel fills in.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    // It fails only for invalid modes and memory; -1 then reads as not synchronized.
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    ClockStatus::of(state, clock.status, clock.maxerror.into())
}
