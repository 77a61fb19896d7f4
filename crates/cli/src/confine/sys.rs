//! The system calls that change the user, in all threads of the process.
#![allow(
    unsafe_code,
    reason = "rustix changes the user of one thread only; this module calls the C library's functions"
)]

use std::io;

/// Becomes the user `uid` with the group `gid` and no others. The C library does this in every thread (nptl(7)).
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: setgroups reads no group from the null pointer, as the length is 0; the other calls have no pointers.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(gid, gid, gid) != 0
            || libc::setresuid(uid, uid, uid) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tries to leave namespaces.
#[cfg(test)]
pub(super) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the caller does not unshare the descriptor table.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}
