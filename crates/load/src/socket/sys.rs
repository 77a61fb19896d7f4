#![allow(unsafe_code, reason = "sendmmsg, recvmmsg and two socket options that rustix lacks")]
//! The raw system calls of the socket engine behind safe types.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Buffers for several datagrams and the headers that describe them to the kernel. Allocated once.
///
/// The headers point into the buffers and the io vectors; all three are on the heap and never resized, so moving a
/// `Messages` does not move them.
pub(super) struct Messages {
    buffers: Box<[u8]>,
    stride: usize,
    iovecs: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl Messages {
    /// `count` buffers of `stride` bytes.
    pub(super) fn new(count: usize, stride: usize) -> Self {
        let mut buffers = vec![0u8; count * stride].into_boxed_slice();
        let base = buffers.as_mut_ptr();
        let mut iovecs: Box<[libc::iovec]> = (0..count)
            .map(|i| libc::iovec { iov_base: base.wrapping_add(i * stride).cast(), iov_len: stride })
            .collect();
        let vectors = iovecs.as_mut_ptr();
        let headers = (0..count)
            .map(|i| {
                // SAFETY: an mmsghdr of zeroes is valid: null pointers with zero lengths.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = vectors.wrapping_add(i);
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { buffers, stride, iovecs, headers }
    }

    /// Maximum number of datagrams.
    pub(super) fn count(&self) -> usize {
        self.headers.len()
    }

    /// The buffer of message `i`.
    pub(super) fn buffer(&mut self, i: usize) -> &mut [u8] {
        &mut self.buffers[i * self.stride..][..self.stride]
    }

    /// Sets the length with which message `i` is sent.
    pub(super) fn set_len(&mut self, i: usize, len: usize) {
        assert!(len <= self.stride, "a message of {len} bytes in a buffer of {}", self.stride);
        self.iovecs[i].iov_len = len;
    }

    /// The length message `i` is sent with.
    pub(super) fn len(&self, i: usize) -> usize {
        self.iovecs[i].iov_len
    }

    /// Sends messages `from..to` to the socket's peer; returns how many the kernel accepted. Never blocks.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, from: usize, to: usize) -> io::Result<usize> {
        let headers = &mut self.headers[from..to];
        // SAFETY: the headers, their io vectors and the buffers those point to belong to self and outlive the call;
        // every length is at most the stride (`set_len`).
        let n = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Receives the datagrams available, up to all buffers; returns how many. Never blocks.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: as in `send`; the kernel writes at most `iov_len` = stride bytes into each buffer.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// The bytes of the `i`-th datagram of the last [`Messages::receive`].
    pub(super) fn received(&self, i: usize) -> &[u8] {
        let len = (self.headers[i].msg_len as usize).min(self.stride);
        &self.buffers[i * self.stride..][..len]
    }
}

/// Makes the kernel segment each send into datagrams of `bytes` (GSO); 0 disables it.
pub(super) fn set_segment(socket: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    // SAFETY: the option's value is an int that lives across the call, and its length is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams that the kernel dropped at this socket because its receive buffer was full.
pub(super) fn dropped(socket: BorrowedFd<'_>) -> u64 {
    // Fields of SO_MEMINFO (linux/sock_diag.h); SK_MEMINFO_DROPS is the last.
    let mut info = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the array.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    // Without it the drops are unknown: the loss is still counted, but not attributed to the generator.
    if done == 0 { u64::from(info[libc::SK_MEMINFO_DROPS as usize]) } else { 0 }
}
