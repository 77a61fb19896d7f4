//! Socket options without a safe wrapper.
#![allow(unsafe_code, reason = "setsockopt of IP_OPTIONS")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has what `socket` sends carry IPv4 options: no operation, four times.
pub(crate) fn add_ip_option(socket: &impl AsFd) -> io::Result<()> {
    let options = [1_u8; 4];
    let (level, name) = (libc::IPPROTO_IP, libc::IP_OPTIONS);
    // SAFETY: the options are there for the call, with their length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            options.as_ptr().cast(),
            options.len() as u32,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
