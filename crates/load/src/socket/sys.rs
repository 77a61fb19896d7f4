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

use udpath_stack::slots::Slots;

pub(super) use batch::{Batch, MAX_SEGMENTS};

/// Buffers for several datagrams and the headers that describe them to the kernel. Allocated once.
///
/// The headers point to the io vectors, and those into the buffers; the kernel and this module reach all three through
/// the same pointers ([`Slots`]), which moving a `Messages` does not change.
pub(super) struct Messages {
    buffers: Slots<u8>,
    stride: usize,
    /// Only the kernel reads them, through the headers.
    _iovecs: Slots<libc::iovec>,
    headers: Slots<libc::mmsghdr>,
}

// SAFETY: the pointers in the headers and io vectors point into the arrays of the same value; nothing else reaches
// them.
unsafe impl Send for Messages {}

impl Messages {
    /// `count` buffers of `stride` bytes, at least one of each.
    pub(super) fn new(count: usize, stride: usize) -> Self {
        let (count, stride) = (count.max(1), stride.max(1));
        let buffers = Slots::zeroed(count * stride);
        let iovecs = Slots::new(count, |i| libc::iovec {
            iov_base: buffers.pointer(i * stride).cast(),
            iov_len: stride,
        });
        let headers = Slots::new(count, |i| {
            // SAFETY: an mmsghdr of zeroes is valid: null pointers with zero lengths.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = iovecs.pointer(i);
            header.msg_hdr.msg_iovlen = 1;
            header
        });
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
                self.headers.pointer(0),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// The bytes of the `i`-th datagram of the last [`Messages::receive`].
    pub(super) fn received(&self, i: usize) -> &[u8] {
        let len = (self.headers.get(i).msg_len as usize).min(self.stride);
        self.buffers.slice(i * self.stride, len)
    }
}

#[cfg(test)]
mod pointers;

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
