//! The arrays of a burst: up to 1,024 datagrams in one `recvmmsg`, their replies in one `sendmmsg` ([`Outbox`]). For a
//! batch of 1 the same arrays serve `recvmsg` and `sendmsg`, on sockets that need control messages.
//!
//! ```text
//! arena             [ buffer 0 ..... ][ buffer 1 ..... ][ buffer 2 .    64 KiB each, mostly untouched
//! names, controls   written by the kernel, reused to answer
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use udpath_stack::slots::Slots;

use super::arena::Arena;
use super::outbox::{Outbox, Peers};
use super::{
    Control, Datagram, RECEIVE_BUFFER_LEN, RawAddr, ReceiveResult, Sender, Wait, check, empty_header,
    result_of_error,
};
use crate::counters::WorkerCounters;

/// Bytes from one receive buffer to the next. Five cache lines more than 64 KiB: with an exact power of two, the first
/// lines of all datagrams would fall into the same few cache sets and evict each other. More would not spread them
/// better.
const STRIDE: usize = RECEIVE_BUFFER_LEN + 320;

/// Everything one worker needs to move bursts through one socket.
pub(crate) struct Burst {
    rx: Arena,
    outbox: Outbox,
    names: Slots<RawAddr>,
    controls: Slots<Control>,
    headers: Slots<libc::mmsghdr>,
    // Reached through the headers alone.
    _parts: Slots<libc::iovec>,
    /// Headers the kernel wrote to, which must be reset.
    used: usize,
    ancillary: Ancillary,
}

/// What the kernel reports of each datagram beside its sender, as the socket asks for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ancillary {
    /// The destination address, which is also the source address of the reply.
    pub(crate) packet_info: bool,
    /// When it arrived.
    pub(crate) timestamps: bool,
}

impl Ancillary {
    /// Whether there are control messages.
    fn any(self) -> bool {
        self.packet_info || self.timestamps
    }
}

// SAFETY: the raw pointers in the headers point into the arrays and arenas owned by the same value; nothing
// else reaches them, so the whole may move to another thread.
unsafe impl Send for Burst {}

impl Burst {
    /// Buffers for `batch` datagrams, and for replies of up to `max_reply` bytes. `segmentation`: use `UDP_SEGMENT`,
    /// which the socket must support.
    pub(crate) fn new(
        batch: usize,
        max_reply: usize,
        ancillary: Ancillary,
        segmentation: bool,
    ) -> io::Result<Self> {
        assert!(batch > 0 && max_reply <= RECEIVE_BUFFER_LEN, "checked by the configuration");
        let rx = Arena::new(batch * STRIDE)?;
        let outbox = Outbox::new(batch, max_reply, ancillary.packet_info, segmentation)?;
        let names = Slots::new(batch, |_| RawAddr::empty());
        let controls = Slots::new(batch, |_| Control::empty());
        let parts = Slots::new(batch, |i| libc::iovec {
            iov_base: rx.pointer(i * STRIDE, RECEIVE_BUFFER_LEN),
            iov_len: RECEIVE_BUFFER_LEN,
        });
        let headers = Slots::new(batch, |i| {
            let mut header = empty_header();
            let h = &mut header.msg_hdr;
            h.msg_name = RawAddr::bytes_at(names.pointer(i));
            h.msg_iov = parts.pointer(i);
            h.msg_iovlen = 1;
            if ancillary.any() {
                h.msg_control = Control::bytes_at(controls.pointer(i));
            }
            header
        });
        Ok(Self { rx, outbox, names, controls, headers, _parts: parts, used: batch, ancillary })
    }

    /// Receives what is queued, up to the batch. Waits at most for the first datagram.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<ReceiveResult> {
        let flags = match wait {
            Wait::Block => libc::MSG_WAITFORONE,
            Wait::Now => libc::MSG_DONTWAIT,
        };
        loop {
            self.reopen();
            let count = u32::try_from(self.headers.len()).unwrap_or(u32::MAX);
            // SAFETY: all headers point to names, controls and buffers owned by `self`, which is borrowed mutably for
            // the call; `count` is their number; no timeout is passed.
            let result = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.pointer(0),
                    count,
                    flags as _,
                    std::ptr::null_mut(),
                )
            };
            match check(result as isize) {
                Ok(count) => return Ok(self.received(count)),
                Err(error) => {
                    if let Some(done) = result_of_error(error) {
                        return done;
                    }
                }
            }
        }
    }

    /// Receives one datagram with `recvmsg`: for batch 1 with control messages.
    pub(crate) fn receive_one(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<ReceiveResult> {
        let flags = match wait {
            Wait::Block => 0,
            Wait::Now => libc::MSG_DONTWAIT,
        };
        loop {
            self.reopen();
            // SAFETY: as for `recvmmsg` above, for the first header alone; its `msghdr` is the first field.
            let result = unsafe { libc::recvmsg(socket.as_raw_fd(), self.headers.pointer(0).cast(), flags) };
            match check(result) {
                Ok(len) => {
                    self.headers.get_mut(0).msg_len = u32::try_from(len).unwrap_or(u32::MAX);
                    return Ok(self.received(1));
                }
                Err(error) => {
                    if let Some(done) = result_of_error(error) {
                        return done;
                    }
                }
            }
        }
    }

    /// Resets the lengths the kernel shortened on the last call.
    fn reopen(&mut self) {
        self.outbox.clear();
        for i in 0..self.used {
            let header = self.headers.get_mut(i);
            header.msg_hdr.msg_namelen = self.names.get_mut(i).reopen().len();
            header.msg_hdr.msg_flags = 0;
            if self.ancillary.any() {
                header.msg_hdr.msg_controllen = Control::capacity() as _;
            }
        }
        self.used = 0;
    }

    /// Stores the lengths the kernel wrote for `count` messages.
    fn received(&mut self, count: usize) -> ReceiveResult {
        self.used = count;
        for i in 0..count {
            let header = &self.headers.get(i).msg_hdr;
            self.names.get_mut(i).set_len(header.msg_namelen);
            if self.ancillary.any() {
                #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
                self.controls.get_mut(i).set_len(header.msg_controllen as usize);
            }
            if self.ancillary.timestamps {
                self.controls.get_mut(i).take_timestamp();
            }
        }
        // A message without a sender is not a datagram: the socket no longer receives, and is empty.
        if count > 0 && !self.names.get(0).is_some() {
            ReceiveResult::Woken
        } else {
            ReceiveResult::Datagrams(count)
        }
    }

    /// Datagram `i` of the last receive, and the buffer for its reply, which [`Burst::queue`] queues.
    pub(crate) fn datagram(&mut self, i: usize) -> (Datagram<'_>, &mut [u8]) {
        let header = self.headers.get(i);
        let len = (header.msg_len as usize).min(RECEIVE_BUFFER_LEN);
        let start = i * STRIDE;
        let datagram = Datagram {
            payload: &self.rx.bytes()[start..start + len],
            peer: self.names.get(i),
            control: self.ancillary.any().then(|| self.controls.get(i)),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        (datagram, self.outbox.reply_buffer())
    }

    #[cfg(test)]
    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Queues the first `len` bytes of the reply buffer as the answer to datagram `i`.
    pub(crate) fn queue(&mut self, i: usize, len: usize) {
        self.outbox.queue(i, len, Peers { names: &self.names, controls: &mut self.controls });
    }

    /// Sends all queued replies, in as few calls as the kernel allows.
    pub(crate) fn send(&mut self, socket: &impl Sender, counts: &WorkerCounters) {
        self.outbox.send(socket, counts);
    }

    /// Sends the one queued reply with `sendmsg`: the counterpart of [`Burst::receive_one`].
    pub(crate) fn send_one(&mut self, socket: &impl Sender, counts: &WorkerCounters) {
        self.outbox.send_one(socket, counts);
    }
}

#[cfg(test)]
mod tests;
