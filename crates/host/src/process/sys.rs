//! Socket options that no safe crate supports.
#![allow(unsafe_code, reason = "getsockopt with buffers of our own")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a `SOL_SOCKET` option that is a single number.
pub(super) fn option(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    get(socket, libc::SOL_SOCKET, name, &mut value)?;
    Ok(value)
}

/// Reads a UDP option that is a single number.
pub(super) fn udp_option(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    get(socket, libc::SOL_UDP, name, &mut value)?;
    Ok(value)
}

/// `SO_MEMINFO`: the kernel's accounting of the socket's memory, `SK_MEMINFO_VARS` numbers of linux/sock_diag.h.
pub(super) fn memory(socket: BorrowedFd<'_>) -> io::Result<[u32; 9]> {
    let mut entries = [0; 9];
    get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut entries)?;
    Ok(entries)
}

/// Only plain numbers: any bytes are a valid `T`.
fn get<T: Numbers>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is `len` writable bytes, the kernel writes at most that many, and any bytes are a value of `T`.
    let result = unsafe {
        let value = std::ptr::from_mut(value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut len)
    };
    check(result)
}

trait Numbers {}
impl Numbers for libc::c_int {}
impl Numbers for [u32; 9] {}

/// Writes a `SOL_SOCKET` option that is a single number, for tests.
#[cfg(test)]
pub(super) fn set_option(socket: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is `len` readable bytes and lives until the call returns; the kernel only reads.
    let result = unsafe {
        let value = std::ptr::from_ref(&value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, len)
    };
    check(result)
}
