//! The transmit half of a burst: replies one after the other, the messages that carry them, one `sendmmsg`.
//!
//! ```text
//! arena     [reply 0][reply 1][reply 2][reply 3]...      few pages, hot cache
//! messages  [---- one message ----------][ one ]...      names and controls are those of the datagrams answered
//! ```
//! **Segmentation.** Consecutive replies of equal length to one peer (the last may be shorter) become one message with
//! `UDP_SEGMENT`: it passes routing, filters and the device's queue once, and the kernel (GSO, 4.18) or the NIC cuts it into
//! datagrams at the end. The datagrams on the wire are the same. If the kernel rejects it (longer than the MTU, a device
//! without checksums, IPsec), the replies are sent separately, and that length is not tried again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::arena::Arena;
use super::{Control, RECEIVE_BUFFER_LEN, RawAddr, check, empty_header};
use crate::counters::WorkerCounters;

/// Without segmentation, each reply starts on a new cache line, so that no line is shared while the kernel copies.
const LINE: usize = 64;

/// Maximum datagrams in one message: the kernel's `UDP_MAX_SEGMENTS`, 64 until 6.9 and 128 since.
const MAX_SEGMENTS: usize = 64;

/// Replies waiting to be sent.
pub(super) struct Outbox {
    arena: Arena,
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
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
    pub(super) names: &'a mut [RawAddr],
    pub(super) controls: &'a mut [Control],
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
        let mut parts = vec![libc::iovec { iov_base: arena.pointer(0, 0), iov_len: 0 }; batch];
        let headers = parts
            .iter_mut()
            .map(|part| {
                let mut header = empty_header();
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
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
            peers.controls[i].answer_from_destination();
        }
        if self.join(i, len, &mut peers) {
            self.cursor += len;
            return;
        }
        let slot = self.queued;
        self.messages[slot] = Message { first: i, segment: len, replies: 1, open: len > 0 };
        self.parts[slot] = libc::iovec { iov_base: self.arena.pointer(self.cursor, len), iov_len: len };
        let header = &mut self.headers[slot].msg_hdr;
        header.msg_name = peers.names[i].bytes_mut_ptr();
        header.msg_namelen = peers.names[i].len();
        let info = if self.packet_info { peers.controls[i].len() } else { 0 };
        header.msg_controllen = info as _;
        header.msg_control = if info == 0 { std::ptr::null_mut() } else { peers.controls[i].as_mut_ptr() };
        self.queued += 1;
        self.cursor += if self.longest_segment > 0 { len } else { len.next_multiple_of(LINE) };
    }

    /// Joins the reply to datagram `i`, which lies right after the last message, to that message if possible.
    #[inline]
    fn join(&mut self, i: usize, len: usize, peers: &mut Peers<'_>) -> bool {
        let Some(last) = self.queued.checked_sub(1) else { return false };
        let message = &mut self.messages[last];
        let part = &mut self.parts[last];
        let fits = message.open
            && len > 0
            && len <= message.segment
            && message.segment <= self.longest_segment
            && message.replies < MAX_SEGMENTS
            && part.iov_len + len <= self.max_reply;
        if !fits
            || peers.names[message.first] != peers.names[i]
            || (self.packet_info && peers.controls[message.first] != peers.controls[i])
        {
            return false;
        }
        part.iov_len += len;
        message.replies += 1;
        message.open = len == message.segment;
        if message.replies == 2 {
            let header = &mut self.headers[last].msg_hdr;
            // One control message for all: those of the joined datagrams are not used.
            let control = &mut peers.controls[message.first];
            header.msg_controllen = control.with_segment(message.segment, self.packet_info) as _;
            header.msg_control = control.as_mut_ptr();
        }
        true
    }

    /// Sends all queued replies, in as few calls as the kernel allows.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, counts: &WorkerCounters) {
        let queued = self.queued;
        self.clear();
        let mut at = 0;
        while at < queued {
            let rest = &mut self.headers[at..queued];
            let count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            // SAFETY: the queued headers point to names and controls of the burst that owns this, and to replies
            // owned by `self`; `count` is their number.
            let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
            match check(result as isize) {
                // The kernel stops at the first message it cannot send, and reports why only if that message is the
                // first of a call: so call again from there.
                Ok(sent) if sent > 0 => {
                    let replies = self.messages[at..at + sent].iter().map(|m| m.replies).sum();
                    counts.sent(replies, rest[..sent].iter().map(|h| u64::from(h.msg_len)).sum());
                    at += sent;
                }
                Ok(_) => {
                    counts.failed(&io::ErrorKind::Other.into(), self.messages[at].replies);
                    at += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // The send buffer stayed full until the timeout. Waiting again for each reply of the burst would
                    // stall the worker for seconds.
                    io::ErrorKind::WouldBlock => {
                        counts.failed(&error, self.messages[at..queued].iter().map(|m| m.replies).sum());
                        at = queued;
                    }
                    _ => {
                        self.failed(socket, at, &error, counts);
                        at += 1;
                    }
                },
            }
        }
    }

    /// Sends the one queued reply with `sendmsg`.
    pub(super) fn send_one(&mut self, socket: BorrowedFd<'_>, counts: &WorkerCounters) {
        if self.queued > 0 {
            self.clear();
            self.send_apart(socket, 0, counts);
        }
    }

    /// Handles a message that the kernel rejected.
    #[cold]
    fn failed(&mut self, socket: BorrowedFd<'_>, at: usize, error: &io::Error, counts: &WorkerCounters) {
        let message = self.messages[at];
        if message.replies == 1 {
            counts.failed(error, 1);
            return;
        }
        // Rejected as a whole: because of its length, or because the path cannot segment at all. An unreachable peer fails
        // again below; at most, replies of this length are no longer joined.
        if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO)) {
            self.longest_segment = message.segment - 1;
        }
        self.send_apart(socket, at, counts);
    }

    /// Sends the replies of message `at` one by one.
    fn send_apart(&mut self, socket: BorrowedFd<'_>, at: usize, counts: &WorkerCounters) {
        let Message { segment, replies, .. } = self.messages[at];
        let part = self.parts[at];
        let header = &mut self.headers[at].msg_hdr;
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
            self.parts[at] = libc::iovec { iov_base: part.iov_base.wrapping_byte_add(start), iov_len: len };
            loop {
                // SAFETY: as in `send`, for one header; its part lies within the one queued.
                let result =
                    unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const self.headers[at].msg_hdr, 0) };
                match check(result) {
                    Ok(len) => counts.sent(1, len as u64),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => counts.failed(&error, 1),
                }
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::sys::{Ancillary, Burst, ReceiveResult, Wait};

    /// Answers one burst of datagrams of these lengths from one client, or from another where `other` is true. Returns the
    /// number of messages it took, and what the first client received, in order.
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
        let messages = burst.outbox().queued;
        let counts = WorkerCounters::default();
        burst.send(server.as_fd(), &counts);
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
