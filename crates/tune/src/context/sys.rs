//! The cookie of a network namespace.
#![allow(
    unsafe_code,
    reason = "getsockopt with an option that no safe crate covers; this module is its only place"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_NETNS_COOKIE` of asm-generic/socket.h, Linux 5.14.
const NETNS_COOKIE: libc::c_int = 71;

/// The cookie of the network namespace that a socket belongs to.
pub(super) fn namespace_cookie(socket: &impl AsFd) -> io::Result<u64> {
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let place = (&raw mut cookie).cast();
    // SAFETY: `place` is `length` writable bytes that live through the call, and any bit pattern is a valid integer.
    let done = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, NETNS_COOKIE, place, &raw mut length)
    };
    match done {
        0 if length as usize == size_of::<u64>() => Ok(cookie),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
