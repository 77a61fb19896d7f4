//! What a checker inherits: no terminal, and no descriptor but its own three.
#![allow(unsafe_code, reason = "a hook between fork and exec has no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first descriptor that is not a standard one.
const FIRST: libc::c_uint = 3;

/// Makes the child of `command` start in a session of its own, without a terminal, and lets it inherit only its
/// standard descriptors.
///
/// With the caller's terminal a process of any user may type into it (TIOCSTI, tty_ioctl(4)) and draw on it; the
/// caller's descriptors, such as the lock of a script, are open for what the checker's user could not open.
pub(super) fn inherit_nothing(command: &mut Command) {
    let hook = || {
        rustix::process::setsid()?;
        // Closed at the exec, not now: the standard library's own pipe says until then whether the exec fails.
        // SAFETY: three numbers, and no memory.
        let marked = unsafe {
            libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        };
        if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the hook makes two system calls; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(hook) };
}
