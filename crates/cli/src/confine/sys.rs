//! The system calls that change the user, in all threads of the process.
#![allow(
    unsafe_code,
    reason = "rustix changes the user of one thread only; this module calls the C library's functions"
)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Becomes the user `uid` with the group `gid` and no others. The C library does this in every thread (nptl(7)).
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: setgroups reads no group from the null pointer, as the length is 0; the other calls have no pointers.
    let failed = unsafe {
        libc::setgroups(0, ptr::null()) != 0
            || libc::setresgid(gid, gid, gid) != 0
            || libc::setresuid(uid, uid, uid) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Longest entry of a user or group that is looked at, in bytes. A group with more members than fit exists all the
/// same.
const ENTRY: usize = 16 << 10;

/// Whether the system's databases have a user with this number (getpwuid(3)): /etc/passwd, and what nsswitch.conf(5)
/// adds.
pub(super) fn is_user(uid: u32) -> bool {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let (mut texts, mut found) = ([0; ENTRY], ptr::null_mut());
    // SAFETY: the entry and its texts are written to `entry` and `texts`, whose length is given; both outlive the call.
    let code =
        unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found) };
    code == libc::ERANGE || !found.is_null()
}

/// The same for groups (getgrgid(3)).
pub(super) fn is_group(gid: u32) -> bool {
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let (mut texts, mut found) = ([0; ENTRY], ptr::null_mut());
    // SAFETY: as in `is_user`.
    let code =
        unsafe { libc::getgrgid_r(gid, entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found) };
    code == libc::ERANGE || !found.is_null()
}

/// Tries to leave namespaces.
#[cfg(test)]
pub(super) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the caller does not unshare the descriptor table.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Tries to make a request of a terminal, with an argument of zeros.
#[cfg(test)]
pub(super) fn ask_terminal(terminal: std::os::fd::BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mut argument = [0_u64; 8];
    // SAFETY: the callers' requests read or write less than the argument has.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), request, argument.as_mut_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
