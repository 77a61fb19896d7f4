//! The transmit half of a burst: replies one after the other, the messages that carry them, one `sendmmsg`.
//!
//! ```text
//! arena     [reply 0][reply 1][reply 2][reply 3]...      few pages, hot cache
//! messages  [---- one message ----------][ one ]...      names and controls are those of the datagrams answered
//! ```
//! **Segmentation.** Consecutive replies of equal length to one peer (the last may be shorter) become one message with
//! `UDP_SEGMENT`: it passes routing, filters and the device's queue once, and the kernel (GSO, 4.18) or the NIC cuts it
//! into datagrams at the end. The datagrams on the wire are the same. If the kernel rejects it (longer than the MTU, a
//! device without checksums, IPsec), the replies are sent separately, and that length is not tried again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use udpath_stack::slots::Slots;

use super::arena::Arena;
use super::{Control, NotSent, RECEIVE_BUFFER_LEN, RawAddr, Sender, check, empty_header};
use crate::counters::WorkerCounters;
use crate::outcome::SendError;

/// Without segmentation, each reply starts on a new cache line, so that no line is shared while the kernel copies.
const LINE: usize = 64;

/// Maximum datagrams in one message: the kernel's `UDP_MAX_SEGMENTS`, 64 until 6.9 and 128 since.
const MAX_SEGMENTS: usize = 64;

/// Replies waiting to be sent.
pub(super) struct Outbox {
    arena: Arena,
    headers: Slots<libc::mmsghdr>,
    parts: Slots<libc::iovec>,
    messages: Vec<Message>,
    /// Messages queued, and where the next reply starts in the arena.
    queued: usize,
    cursor: usize,
    /// Maximum length of a reply.
    max_reply: usize,
    packet_info: bool,
    /// Maximum length of replies to join: the kernel rejected longer ones. 0: join none.
    longest_segment: usize,
}

/// One message: a reply, or several for the kernel to cut apart.
#[derive(Clone, Copy)]
struct Message {
    /// The datagram whose peer and packet info it uses.
    first: usize,
    /// Length of each reply but the last.
    segment: usize,
    replies: usize,
    /// Whether another reply may join: the last is not shorter.
    open: bool,
}

/// The peers: names and packet info of the datagrams of the burst.
pub(super) struct Peers<'a> {
    pub(super) names: &'a Slots<RawAddr>,
    pub(super) controls: &'a mut Slots<Control>,
}

impl Outbox {
    /// Buffers for `batch` replies of up to `max_reply` bytes.
    pub(super) fn new(
        batch: usize,
        max_reply: usize,
        packet_info: bool,
        segmentation: bool,
    ) -> io::Result<Self> {
        // Every reply takes its length rounded up to a line, at most RECEIVE_BUFFER_LEN.
        let arena = Arena::new(batch * RECEIVE_BUFFER_LEN)?;
        let parts = Slots::new(batch, |_| libc::iovec { iov_base: arena.pointer(0, 0), iov_len: 0 });
        let headers = Slots::new(batch, |i| {
            let mut header = empty_header();
            header.msg_hdr.msg_iov = parts.pointer(i);
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        Ok(Self {
            arena,
            headers,
            parts,
            messages: vec![Message { first: 0, segment: 0, replies: 0, open: false }; batch],
            queued: 0,
            cursor: 0,
            max_reply,
            packet_info,
            longest_segment: if segmentation { max_reply } else { 0 },
        })
    }

    /// Discards what was queued.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.queued = 0;
        self.cursor = 0;
    }

    /// Messages queued.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// A pointer to the headers of the queued messages.
    #[cfg(test)]
    pub(super) fn headers(&self) -> *mut libc::mmsghdr {
        self.headers.pointer(0)
    }

    /// The buffer for the next reply.
    #[inline]
    pub(super) fn reply_buffer(&mut self) -> &mut [u8] {
        &mut self.arena.bytes_mut()[self.cursor..self.cursor + self.max_reply]
    }

    /// Queues the first `len` bytes of the buffer as the answer to datagram `i`.
    #[inline]
    pub(super) fn queue(&mut self, i: usize, len: usize, mut peers: Peers<'_>) {
        let len = len.min(self.max_reply);
        if self.packet_info {
            peers.controls.get_mut(i).answer_from_destination();
        }
        if self.join(i, len, &mut peers) {
            self.cursor += len;
            return;
        }
        let slot = self.queued;
        self.messages[slot] = Message { first: i, segment: len, replies: 1, open: len > 0 };
        *self.parts.get_mut(slot) =
            libc::iovec { iov_base: self.arena.pointer(self.cursor, len), iov_len: len };
        let header = &mut self.headers.get_mut(slot).msg_hdr;
        header.msg_name = RawAddr::bytes_at(peers.names.pointer(i));
        header.msg_namelen = peers.names.get(i).len();
        let info = if self.packet_info { peers.controls.get(i).len() } else { 0 };
        header.msg_controllen = info as _;
        header.msg_control =
            if info == 0 { std::ptr::null_mut() } else { Control::bytes_at(peers.controls.pointer(i)) };
        self.queued += 1;
        self.cursor += if self.longest_segment > 0 { len } else { len.next_multiple_of(LINE) };
    }

    /// Joins the reply to datagram `i`, which lies right after the last message, to that message if possible.
    #[inline]
    fn join(&mut self, i: usize, len: usize, peers: &mut Peers<'_>) -> bool {
        let Some(last) = self.queued.checked_sub(1) else { return false };
        let message = &mut self.messages[last];
        let part = self.parts.get_mut(last);
        let fits = message.open
            && len > 0
            && len <= message.segment
            && message.segment <= self.longest_segment
            && message.replies < MAX_SEGMENTS
            && part.iov_len + len <= self.max_reply;
        if !fits
            || peers.names.get(message.first) != peers.names.get(i)
            || (self.packet_info && peers.controls.get(message.first) != peers.controls.get(i))
        {
            return false;
        }
        part.iov_len += len;
        message.replies += 1;
        message.open = len == message.segment;
        if message.replies == 2 {
            let header = &mut self.headers.get_mut(last).msg_hdr;
            // One control message for all: those of the joined datagrams are not used.
            let control = peers.controls.get_mut(message.first);
            header.msg_controllen = control.with_segment(message.segment, self.packet_info) as _;
            header.msg_control = Control::bytes_at(peers.controls.pointer(message.first));
        }
        true
    }

    /// Sends all queued replies, in as few calls as the kernel allows, and without waiting: a reply that must wait is a
    /// matter of its own ([`Sender::retry`]), and the next ones are sent.
    pub(super) fn send(&mut self, socket: &impl Sender, counts: &WorkerCounters) {
        let queued = self.queued;
        self.clear();
        let mut at = 0;
        while at < queued {
            if socket.is_crowded() {
                self.send_crowded(socket, at, counts);
                at += 1;
                continue;
            }
            let count = u32::try_from(queued - at).unwrap_or(u32::MAX);
            // SAFETY: the queued headers point to names and controls of the burst that owns this, and to replies owned
            // by `self`; `count` is the number of headers from `at` on.
            let result = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    self.headers.pointer(at),
                    count,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match check(result as isize) {
                // The kernel stops at the first message it cannot send, and reports why only if that message is the
                // first of a call: so call again from there.
                Ok(sent) if sent > 0 => {
                    let replies = self.messages[at..at + sent].iter().map(|m| m.replies).sum();
                    let bytes = (at..at + sent).map(|i| u64::from(self.headers.get(i).msg_len)).sum();
                    counts.sent(replies, bytes);
                    at += sent;
                }
                Ok(_) => {
                    self.failed(socket, at, &io::Error::from(io::ErrorKind::Other).into(), counts);
                    at += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        self.send_crowded(socket, at, counts);
                        at += 1;
                    }
                    _ => {
                        self.failed(socket, at, &error.into(), counts);
                        at += 1;
                    }
                },
            }
        }
    }

    /// Sends the one queued reply with `sendmsg`.
    pub(super) fn send_one(&mut self, socket: &impl Sender, counts: &WorkerCounters) {
        if self.queued > 0 {
            self.clear();
            self.send_apart(socket, 0, counts);
        }
    }

    /// Sends message `at`, for which there was no room.
    #[cold]
    fn send_crowded(&mut self, socket: &impl Sender, at: usize, counts: &WorkerCounters) {
        match socket.retry(&self.peer(at), &mut || self.send_now(socket.as_fd(), at)) {
            Ok(bytes) => counts.sent(self.messages[at].replies, bytes as u64),
            Err(not_sent) => self.failed(socket, at, &not_sent, counts),
        }
    }

    /// The peer of message `at`.
    fn peer(&self, at: usize) -> RawAddr {
        let header = &self.headers.get(at).msg_hdr;
        // SAFETY: `queue` set the name to one of the burst's names, which lives as long as this and has no other
        // borrow.
        unsafe { *header.msg_name.cast::<RawAddr>() }
    }

    /// Sends message `at` by itself, without waiting.
    fn send_now(&self, socket: BorrowedFd<'_>, at: usize) -> io::Result<usize> {
        loop {
            // SAFETY: as in `send`, for one header, whose `msghdr` is the first field.
            let result = unsafe {
                libc::sendmsg(socket.as_raw_fd(), self.headers.pointer(at).cast(), libc::MSG_DONTWAIT)
            };
            match check(result) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Handles a message that was not sent.
    #[cold]
    fn failed(&mut self, socket: &impl Sender, at: usize, not_sent: &NotSent, counts: &WorkerCounters) {
        let message = self.messages[at];
        let whole = matches!(not_sent.cause, SendError::BufferFull | SendError::Neighbour);
        if message.replies == 1 || whole {
            counts.failed(not_sent.cause, message.replies);
            return;
        }
        // Rejected as a whole: because of its length, or because the path cannot segment at all. An unreachable peer
        // fails again below; at most, replies of this length are no longer joined.
        if matches!(not_sent.error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO)) {
            self.longest_segment = message.segment - 1;
        }
        self.send_apart(socket, at, counts);
    }

    /// Sends the replies of message `at` one by one.
    fn send_apart(&mut self, socket: &impl Sender, at: usize, counts: &WorkerCounters) {
        let Message { segment, replies, .. } = self.messages[at];
        let part = *self.parts.get(at);
        let header = &mut self.headers.get_mut(at).msg_hdr;
        if replies > 1 {
            let info = if self.packet_info { Control::info_len(header.msg_controllen as _) } else { 0 };
            header.msg_controllen = info as _;
            if info == 0 {
                header.msg_control = std::ptr::null_mut();
            }
        }
        for reply in 0..replies {
            let start = reply * segment;
            let len = if reply + 1 == replies { part.iov_len - start } else { segment };
            *self.parts.get_mut(at) =
                libc::iovec { iov_base: part.iov_base.wrapping_byte_add(start), iov_len: len };
            match self.send_patiently(socket, at) {
                Ok(len) => counts.sent(1, len as u64),
                Err(not_sent) => counts.failed(not_sent.cause, 1),
            }
        }
    }

    /// Sends message `at`, one reply, by itself.
    fn send_patiently(&self, socket: &impl Sender, at: usize) -> Result<usize, NotSent> {
        if !socket.is_crowded() {
            match self.send_now(socket.as_fd(), at) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Ok(done?),
            }
        }
        socket.retry(&self.peer(at), &mut || self.send_now(socket.as_fd(), at))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::sys::{Ancillary, Burst, ReceiveResult, Wait};

    impl Sender for UdpSocket {
        fn is_crowded(&self) -> bool {
            false
        }

        fn retry(&self, _: &RawAddr, send: &mut dyn FnMut() -> io::Result<usize>) -> Result<usize, NotSent> {
            Ok(send()?)
        }
    }

    /// Answers one burst of datagrams of these lengths from one client, or from another where `other` is true. Returns
    /// the number of messages it took, and what the first client received, in order.
    fn answered(lengths: &[usize], other: impl Fn(usize) -> bool) -> (usize, Vec<Vec<u8>>) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let clients = [0, 1].map(|_| {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client
        });
        for (i, len) in lengths.iter().enumerate() {
            clients[usize::from(other(i))].send(&vec![i as u8; *len]).unwrap();
        }
        let mut burst = Burst::new(lengths.len(), 65_507, Ancillary::default(), true).unwrap();
        assert_eq!(
            burst.receive(server.as_fd(), Wait::Now).unwrap(),
            ReceiveResult::Datagrams(lengths.len())
        );
        for i in 0..lengths.len() {
            let (datagram, buffer) = burst.datagram(i);
            let len = datagram.payload.len();
            buffer[..len].copy_from_slice(datagram.payload);
            burst.queue(i, len);
        }
        let messages = burst.outbox().queued();
        let counts = WorkerCounters::default();
        burst.send(&server, &counts);
        let mut buffer = [0; 65_536];
        let got = (0..lengths.len())
            .filter(|i| !other(*i))
            .map(|_| clients[0].recv(&mut buffer).map(|len| buffer[..len].to_vec()).unwrap())
            .collect();
        (messages, got)
    }

    fn whole(lengths: &[usize]) -> Vec<Vec<u8>> {
        lengths.iter().enumerate().map(|(i, len)| vec![i as u8; *len]).collect()
    }

    #[test]
    fn equal_replies_to_one_peer_go_out_in_one_message() {
        for (lengths, messages) in [
            (vec![100; 40], 1),
            (vec![1; 65], 2),                  // at most 64
            (vec![100, 100, 60, 100], 2),      // a shorter one is the last
            (vec![60, 100, 100], 2),           // never a longer one
            (vec![0, 0, 5, 5], 3),             // empty replies are not joined
            (vec![30_000, 30_000, 30_000], 2), // no message exceeds a datagram
        ] {
            let (sent, got) = answered(&lengths, |_| false);
            assert_eq!(sent, messages, "{lengths:?}");
            assert_eq!(got, whole(&lengths));
        }
    }

    #[test]
    fn replies_to_two_peers_stay_apart() {
        let (sent, got) = answered(&[100; 6], |i| i % 2 == 1);
        assert_eq!(sent, 6);
        assert_eq!(got.len(), 3);
        let (sent, _) = answered(&[100; 6], |i| i >= 3);
        assert_eq!(sent, 2);
    }
}
