//! Socket options without a safe wrapper.
#![allow(unsafe_code, reason = "setsockopt of IP_OPTIONS and SO_ATTACH_FILTER")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Adds IPv4 options to the packets that `socket` sends: no operation, four times.
pub(crate) fn add_ip_option(socket: &impl AsFd) -> io::Result<()> {
    let options = [1_u8; 4];
    let (level, name) = (libc::IPPROTO_IP, libc::IP_OPTIONS);
    // SAFETY: the options live for the call, with their length.
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

/// Restricts `socket` to packets whose kernel buffer has this hash (`skb->hash`).
pub(crate) fn only_with_hash(socket: &impl AsFd, hash: u32) -> io::Result<()> {
    let step =
        |code: u32, yes: u8, no: u8, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut steps = [
        step(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            0,
            0,
            (libc::SKF_AD_OFF + libc::SKF_AD_RXHASH) as u32,
        ),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, hash),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let len = size_of_val(&filter) as u32;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the filter and its steps live for the call, with their lengths.
    let done = unsafe { libc::setsockopt(descriptor, level, name, (&raw const filter).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
