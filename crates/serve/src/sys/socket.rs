//! Socket options that rustix lacks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::check;

/// A socket kept open by a shared owner, with a copy of its descriptor: the packet path need not read the owner, which
/// is not in the cache.
pub(crate) struct SocketHandle<O> {
    raw: RawFd,
    owner: Arc<O>,
}

impl<O> SocketHandle<O> {
    pub(crate) fn owner(&self) -> &O {
        &self.owner
    }
}

impl<O: AsFd> SocketHandle<O> {
    /// `owner` must keep the same descriptor for its whole life, as every holder of an `OwnedFd` does.
    pub(crate) fn new(owner: Arc<O>) -> Self {
        Self { raw: owner.as_fd().as_raw_fd(), owner }
    }
}

impl<O> AsFd for SocketHandle<O> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the owner holds the descriptor open and lives at least as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }
}

/// Sets one option of a plain C type.
fn set<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` is a live value of `size_of::<T>()` bytes; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result as isize).map(|_zero| ())
}

/// Makes the kernel report the destination address of every datagram.
pub(crate) fn packet_info(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let on: libc::c_int = 1;
    if ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &on)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &on)
    }
}

/// Makes the kernel report when every datagram arrived.
pub(crate) fn receive_timestamps(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)
}

/// Whether `address` is the broadcast address of a subnet of this host: the kernel rejects it (`EACCES`) unless the
/// socket has `SO_BROADCAST` set. Sends nothing.
pub(crate) fn is_broadcast(address: SocketAddr) -> io::Result<bool> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if rustix::net::connect(&socket, &address) != Err(Errno::ACCESS) {
        return Ok(false);
    }
    sockopt::set_socket_broadcast(&socket, true)?;
    Ok(rustix::net::connect(&socket, &address).is_ok())
}

/// Makes the socket take what arrives on this CPU, within its reuseport group.
pub(crate) fn set_incoming_cpu(socket: BorrowedFd<'_>, cpu: u32) -> io::Result<()> {
    let cpu = libc::c_int::try_from(cpu).map_err(|_too_large| io::ErrorKind::InvalidInput)?;
    set(socket, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, &cpu)
}

/// Requests a receive buffer: larger than `net.core.rmem_max` with privilege, up to it otherwise.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_too_large| io::ErrorKind::InvalidInput)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_no_privilege| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

/// The size of the socket's receive buffer, as the kernel accounts it (twice the size requested).
pub(crate) fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    sockopt::socket_recv_buffer_size(socket).map_err(io::Error::from)
}

/// The size of the socket's send buffer, as the kernel accounts it.
pub(crate) fn send_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    sockopt::socket_send_buffer_size(socket).map_err(io::Error::from)
}

/// Sets the size of the socket's send buffer, in bytes as the kernel accounts them. Without privilege, up to twice
/// `net.core.wmem_max`.
pub(crate) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles the value.
    let half = libc::c_int::try_from(bytes / 2).map_err(|_too_large| io::ErrorKind::InvalidInput)?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &half)
}

/// The size that [`set_send_buffer`] gives a socket that asks for `bytes`. Changes no socket in use.
pub(crate) fn send_buffer_limit(bytes: usize) -> io::Result<usize> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .or_else(|_no_ipv4| {
            rustix::net::socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        })?;
    set_send_buffer(socket.as_fd(), bytes)?;
    send_buffer(socket.as_fd())
}

/// The number of entries of `SO_MEMINFO`, and the index of the drop counter (`SK_MEMINFO_DROPS` of linux/sock_diag.h).
const MEMINFO_ENTRIES: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Datagrams the kernel dropped at this socket since it was opened: a 32-bit counter that wraps.
pub(crate) fn kernel_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut entries = [0_u32; MEMINFO_ENTRIES];
    let mut len = size_of_val(&entries) as libc::socklen_t;
    // SAFETY: the buffer is `len` writable bytes and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            entries.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(result as isize)?;
    Ok(entries[MEMINFO_DROPS])
}

/// Whether the kernel can cut one message into datagrams (`UDP_SEGMENT`, 4.18). An older kernel would ignore the
/// request and send one long datagram.
pub(crate) fn segmentation(socket: BorrowedFd<'_>) -> bool {
    let mut size: libc::c_int = 0;
    let mut len = size_of_val(&size) as libc::socklen_t;
    // SAFETY: the buffer is `len` writable bytes and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw mut size).cast(),
            &raw mut len,
        )
    };
    check(result as isize).is_ok()
}

/// Stops the socket from receiving; what is queued can still be read.
///
/// Sets a classic socket filter that accepts nothing, which needs no privilege. Without it, a server under load would
/// never finish answering what is queued.
pub(crate) fn stop_receiving(socket: BorrowedFd<'_>) -> io::Result<()> {
    /// `return 0`: drop the datagram.
    const RETURN_NOTHING: libc::sock_filter =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let mut program = [RETURN_NOTHING];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Wakes every thread that blocks in a receive call on the socket. Later receive calls do not block.
///
/// `shutdown` reports `ENOTCONN` for an unconnected UDP socket, but Linux marks the socket as shut and wakes its
/// readers. They still receive what is queued and then, without blocking, a message without a sender. Sending continues
/// to work.
pub(crate) fn wake_receivers(socket: BorrowedFd<'_>) {
    // SAFETY: `shutdown` takes no memory.
    // It returns ENOTCONN on success; the descriptor is open, so no other error is possible.
    let _ = unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) };
}
