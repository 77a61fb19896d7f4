//! Signal handlers: how a signal is handled now, and another handler for it.
#![allow(
    unsafe_code,
    reason = "a handler interrupts any instruction; this module is where its rules are kept"
)]

use std::io;
use std::mem::MaybeUninit;

/// Whether the process ignores a signal: one that its parent ignored.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer changes nothing; the other is valid for the write of one `sigaction`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has succeeded, so it has written all of it.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Calls `handler` at each `signal`. The parent module's handlers make system calls and use atomics; they neither
/// allocate, lock, nor unwind.
pub(super) fn register(signal: i32, handler: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    // SAFETY: the handler keeps to what signal-safety(7) allows, as above.
    unsafe { signal_hook::low_level::register(signal, handler) }.map(drop)
}
