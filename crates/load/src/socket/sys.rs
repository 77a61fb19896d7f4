#![allow(unsafe_code, reason = "sendmmsg, recvmmsg and a socket option that rustix lacks")]
//! The raw system calls of the socket engine behind safe types.
//!
//! ```text
//!   Messages   receive: a buffer per message
//!   Batch      send: one buffer, in which a message is one datagram, or several of one length (GSO)
//! ```

mod batch;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

pub(super) use batch::{Batch, MAX_SEGMENTS};

/// Buffers for several datagrams and the headers that describe them to the kernel. Allocated once.
///
/// The headers point to the io vectors, and those into the buffers; all three are on the heap and never resized, so moving a
/// `Messages` does not move them.
pub(super) struct Messages {
    buffers: Box<[u8]>,
    stride: usize,
    /// Only the kernel reads them, through the headers.
    _iovecs: Box<[libc::iovec]>,
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
        Self { buffers, stride, _iovecs: iovecs, headers }
    }

    /// Maximum number of datagrams.
    pub(super) fn count(&self) -> usize {
        self.headers.len()
    }

    /// Receives the datagrams available, up to all buffers; returns how many. Never blocks.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: the headers, their io vectors and the buffers those point to belong to self and outlive the call; the
        // kernel writes at most `iov_len` = stride bytes into each buffer.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
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
