//! A server's own programs on its reuseport group.
#![allow(unsafe_code, reason = "setsockopt with a program, and bpf(2)")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Attaches a classic program of these instructions (code, operand).
pub(crate) fn attach_classic(socket: &impl AsFd, steps: &[(u16, u32)]) {
    let mut steps: Vec<libc::sock_filter> =
        steps.iter().map(|(code, k)| libc::sock_filter { code: *code, jt: 0, jf: 0, k: *k }).collect();
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &program);
}

/// Attaches an eBPF program that always returns 0.
pub(crate) fn attach_extended(socket: &impl AsFd) {
    // r0 = 0; exit. BPF_PROG_LOAD of a socket filter: type, instruction count, addresses of instructions and license.
    let steps: [u64; 2] = [0xb7, 0x95];
    let license = c"GPL";
    let attributes: [u64; 16] =
        [1 | 2 << 32, steps.as_ptr() as u64, license.as_ptr() as u64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the attributes and everything they point to are live, with the given size; the kernel only reads them.
    let program = unsafe { libc::syscall(libc::SYS_bpf, 5, attributes.as_ptr(), size_of_val(&attributes)) };
    assert!(program >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a newly opened descriptor with no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(program as i32) };
    attach(socket, libc::SO_ATTACH_REUSEPORT_EBPF, &program.as_raw_fd());
}

fn attach<T>(socket: &impl AsFd, option: libc::c_int, value: &T) {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: a live value of that many bytes, and what it points to lives as long; the kernel only reads it.
    let done = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket, libc::SOL_SOCKET, option, value, size_of::<T>() as libc::socklen_t)
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}
