//! The arrays of a burst: up to 1,024 datagrams in one `recvmmsg`, their replies in one `sendmmsg`. With room for
//! one datagram the same arrays serve `recvmsg`/`sendmsg`, for sockets that need packet info at batch 1.
//!
//! ```text
//! rx arena   [ room 0 ....... ][ room 1 ....... ][ room 2 ...      one 64 KiB room per datagram, mostly untouched
//! tx arena   [reply 0][reply 1][reply 2]...                        replies lie side by side: few pages, hot cache
//! names, controls                                                  written by the kernel, used again to answer
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::arena::Arena;
use super::{Control, RECEIVE_ROOM, RawAddr, Receipt, Wait, check, receipt_of_error};
use crate::counters::Published;
use crate::io::Datagram;

/// Bytes from one receive room to the next. Five cache lines more than 64 KiB: with an exact power of two the
/// first line of every datagram would fall into the same few sets of the cache and evict the others. More would
/// spread no better and waste address space.
const STRIDE: usize = RECEIVE_ROOM + 320;

/// Replies start on a cache line of their own: two never share one while the kernel copies them.
const LINE: usize = 64;

/// Everything one worker needs to move bursts through one socket.
pub(crate) struct Burst {
    rx: Arena,
    tx: Arena,
    names: Vec<RawAddr>,
    controls: Vec<Control>,
    rx_headers: Vec<libc::mmsghdr>,
    tx_headers: Vec<libc::mmsghdr>,
    // The headers point into these two; never resized.
    _rx_parts: Vec<libc::iovec>,
    tx_parts: Vec<libc::iovec>,
    /// Receive headers the kernel wrote to and that must be opened again.
    used: usize,
    /// Replies waiting to be sent, and where the next one starts in the tx arena.
    queued: usize,
    cursor: usize,
    /// The longest reply.
    reply_room: usize,
    packet_info: bool,
}

// SAFETY: the raw pointers in the headers point into the vectors and arenas owned by the same value; nothing
// else reaches them, so the whole may move to another thread.
unsafe impl Send for Burst {}

impl Burst {
    /// Room for `batch` datagrams and replies of up to `reply_room` bytes.
    pub(crate) fn new(batch: usize, reply_room: usize, packet_info: bool) -> io::Result<Self> {
        assert!(batch > 0 && reply_room <= RECEIVE_ROOM, "checked by the configuration");
        let rx = Arena::new(batch * STRIDE)?;
        // Every reply takes its length rounded up to a line, at most RECEIVE_ROOM.
        let tx = Arena::new(batch * RECEIVE_ROOM)?;
        let mut names = vec![RawAddr::room(); batch];
        let mut controls = vec![Control::room(); batch];
        let mut rx_parts: Vec<_> = (0..batch)
            .map(|i| libc::iovec { iov_base: rx.pointer(i * STRIDE, RECEIVE_ROOM), iov_len: RECEIVE_ROOM })
            .collect();
        let mut tx_parts = vec![libc::iovec { iov_base: tx.pointer(0, 0), iov_len: 0 }; batch];
        let rx_headers = (0..batch)
            .map(|i| {
                let mut header = empty_header();
                let h = &mut header.msg_hdr;
                h.msg_name = names[i].bytes_mut_ptr();
                h.msg_iov = &raw mut rx_parts[i];
                h.msg_iovlen = 1;
                if packet_info {
                    h.msg_control = controls[i].as_mut_ptr();
                }
                header
            })
            .collect();
        let tx_headers = (0..batch)
            .map(|i| {
                let mut header = empty_header();
                header.msg_hdr.msg_iov = &raw mut tx_parts[i];
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Ok(Self {
            rx,
            tx,
            names,
            controls,
            rx_headers,
            tx_headers,
            _rx_parts: rx_parts,
            tx_parts,
            used: batch,
            queued: 0,
            cursor: 0,
            reply_room,
            packet_info,
        })
    }

    /// Receives what is queued, up to the batch; waits at most for the first datagram.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<Receipt> {
        let flags = match wait {
            Wait::Block => libc::MSG_WAITFORONE,
            Wait::Now => libc::MSG_DONTWAIT,
        };
        loop {
            self.reopen();
            let room = u32::try_from(self.rx_headers.len()).unwrap_or(u32::MAX);
            // SAFETY: all headers point to names, controls and rooms owned by `self`, which `&mut self` keeps
            // to us for the call; `room` is their number; no timeout is passed.
            let result = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.rx_headers.as_mut_ptr(),
                    room,
                    flags as _,
                    std::ptr::null_mut(),
                )
            };
            match check(result as isize) {
                Ok(count) => return Ok(self.received(count)),
                Err(error) => {
                    if let Some(done) = receipt_of_error(error) {
                        return done;
                    }
                }
            }
        }
    }

    /// Receives one datagram with `recvmsg`: for batch 1 with packet info.
    pub(crate) fn receive_one(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<Receipt> {
        let flags = match wait {
            Wait::Block => 0,
            Wait::Now => libc::MSG_DONTWAIT,
        };
        loop {
            self.reopen();
            let header = &mut self.rx_headers[0];
            // SAFETY: as for `recvmmsg` above, for the first header alone.
            let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header.msg_hdr, flags) };
            match check(result) {
                Ok(len) => {
                    header.msg_len = u32::try_from(len).unwrap_or(u32::MAX);
                    return Ok(self.received(1));
                }
                Err(error) => {
                    if let Some(done) = receipt_of_error(error) {
                        return done;
                    }
                }
            }
        }
    }

    /// Gives the kernel back the room it shortened on the last call.
    fn reopen(&mut self) {
        self.queued = 0;
        self.cursor = 0;
        for (header, name) in self.rx_headers[..self.used].iter_mut().zip(&mut self.names) {
            name.reopen();
            header.msg_hdr.msg_namelen = name.len();
            header.msg_hdr.msg_flags = 0;
            if self.packet_info {
                header.msg_hdr.msg_controllen = Control::capacity() as _;
            }
        }
        self.used = 0;
    }

    /// Takes over the lengths the kernel wrote for `count` messages.
    fn received(&mut self, count: usize) -> Receipt {
        self.used = count;
        for i in 0..count {
            let header = &self.rx_headers[i].msg_hdr;
            self.names[i].set_len(header.msg_namelen);
            if self.packet_info {
                #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
                self.controls[i].set_len(header.msg_controllen as usize);
            }
        }
        // A message without a sender is no datagram: the socket was shut for receiving and is empty.
        if count > 0 && !self.names[0].is_some() { Receipt::Woken } else { Receipt::Datagrams(count) }
    }

    /// Datagram `i` of the last receive, and the room for its reply, which [`Burst::queue`] makes permanent.
    pub(crate) fn datagram(&mut self, i: usize) -> (Datagram<'_>, &mut [u8]) {
        let header = &self.rx_headers[i];
        let len = (header.msg_len as usize).min(RECEIVE_ROOM);
        let start = i * STRIDE;
        let datagram = Datagram {
            payload: &self.rx.bytes()[start..start + len],
            peer: &self.names[i],
            control: self.packet_info.then_some(&self.controls[i]),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        (datagram, &mut self.tx.bytes_mut()[self.cursor..self.cursor + self.reply_room])
    }

    /// Queues the first `len` bytes of the reply room as the answer to datagram `i`.
    pub(crate) fn queue(&mut self, i: usize, len: usize) {
        let len = len.min(self.reply_room);
        let slot = self.queued;
        self.tx_parts[slot] = libc::iovec { iov_base: self.tx.pointer(self.cursor, len), iov_len: len };
        let header = &mut self.tx_headers[slot].msg_hdr;
        header.msg_name = self.names[i].bytes_mut_ptr();
        header.msg_namelen = self.names[i].len();
        if self.packet_info {
            let control = &mut self.controls[i];
            control.answer_from_asked();
            header.msg_controllen = control.len() as _;
            header.msg_control = if control.len() == 0 { std::ptr::null_mut() } else { control.as_mut_ptr() };
        }
        self.queued += 1;
        self.cursor += len.next_multiple_of(LINE);
    }

    /// Sends all queued replies, with as few calls as the kernel allows.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, counts: &Published) {
        let queued = std::mem::take(&mut self.queued);
        self.cursor = 0;
        let mut at = 0;
        while at < queued {
            let rest = &mut self.tx_headers[at..queued];
            let count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            // SAFETY: the queued headers point to names, controls and replies owned by `self`; `count` is
            // their number.
            let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
            match check(result as isize) {
                // The kernel stops at the first message it cannot send and tells why only when that one leads
                // the call: so call again from there.
                Ok(sent) if sent > 0 => {
                    counts.sent(sent, rest[..sent].iter().map(|h| u64::from(h.msg_len)).sum());
                    at += sent;
                }
                Ok(_) => {
                    counts.failed(&io::ErrorKind::Other.into(), 1);
                    at += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // The send buffer stayed full for as long as a send may wait. Waiting again for every
                    // reply of the burst would stall the worker for seconds.
                    io::ErrorKind::WouldBlock => {
                        counts.failed(&error, queued - at);
                        at = queued;
                    }
                    _ => {
                        counts.failed(&error, 1);
                        at += 1;
                    }
                },
            }
        }
    }

    /// Sends the one queued reply with `sendmsg`: the counterpart of [`Burst::receive_one`].
    pub(crate) fn send_one(&mut self, socket: BorrowedFd<'_>, counts: &Published) {
        if std::mem::take(&mut self.queued) == 0 {
            return;
        }
        self.cursor = 0;
        loop {
            // SAFETY: as in `send`, for the first header alone.
            let result =
                unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const self.tx_headers[0].msg_hdr, 0) };
            match check(result) {
                Ok(len) => counts.sent(1, len as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => counts.failed(&error, 1),
            }
            return;
        }
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all of mmsghdr is integers and pointers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}
