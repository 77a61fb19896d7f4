//! Datagrams to one peer, as the messages of one `sendmmsg`.
//!
//! ```text
//!   pushed     40 40 40 39 | 41 41 | 43
//!   messages   1: 40, 40, 40 and 39 bytes    2: 41 and 41 bytes    3: 43 bytes, without UDP_SEGMENT
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use udpath_stack::slots::Slots;

/// Most datagrams per message: the kernel's own limit (UDP_MAX_SEGMENTS) before 6.9.
pub(in crate::socket) const MAX_SEGMENTS: usize = 64;
/// Most bytes per message: UDP's limit over IPv4.
const MAX_MESSAGE: usize = 65_507;

/// The control message that asks for segments. Aligned like its header, so the kernel accepts it (cmsg(3)).
#[derive(Clone, Copy)]
#[repr(C)]
struct Segment {
    header: libc::cmsghdr,
    size: u16,
}

/// One message's datagrams.
#[derive(Clone, Copy, Default)]
struct Segments {
    count: usize,
    /// Bytes of each but the last, which may be shorter.
    size: usize,
    bytes: usize,
}

/// Datagrams of up to `size` bytes each, one behind the other, and the headers that describe them to the kernel.
/// Allocated once.
///
/// The headers point to the io vectors and the control messages, the io vectors into the buffer; the kernel and this
/// module reach all four through the same pointers ([`Slots`]), which moving a `Batch` does not change.
pub(in crate::socket) struct Batch {
    buffer: Slots<u8>,
    size: usize,
    /// Most datagrams in all, and per message.
    limits: (usize, usize),
    iovecs: Slots<libc::iovec>,
    controls: Slots<Segment>,
    headers: Slots<libc::mmsghdr>,
    segments: Box<[Segments]>,
    messages: usize,
    datagrams: usize,
    /// Bytes of the buffer in use.
    used: usize,
}

// SAFETY: the pointers in the headers and io vectors point into the arrays of the same value; nothing else reaches
// them.
unsafe impl Send for Batch {}

impl Batch {
    /// For `datagrams` of up to `size` bytes, up to `segments` of them per message: 1 without GSO.
    pub(in crate::socket) fn new(datagrams: usize, segments: usize, size: usize) -> Self {
        let places = datagrams.max(1);
        let buffer = Slots::zeroed((datagrams * size).max(1));
        let iovecs = Slots::new(places, |_| libc::iovec { iov_base: buffer.pointer(0).cast(), iov_len: 0 });
        let controls = Slots::new(places, |_| {
            // SAFETY: a cmsghdr of zeroes is valid: three integers, and padding in some C libraries.
            let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
            header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
            (header.cmsg_level, header.cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
            Segment { header, size: 0 }
        });
        let headers = Slots::new(places, |i| {
            // SAFETY: an mmsghdr of zeroes is valid: null pointers with zero lengths.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = iovecs.pointer(i);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.pointer(i).cast();
            header
        });
        let segments = segments.clamp(1, MAX_SEGMENTS);
        Self {
            buffer,
            size,
            limits: (datagrams, segments),
            iovecs,
            controls,
            headers,
            segments: vec![Segments::default(); datagrams].into(),
            messages: 0,
            datagrams: 0,
            used: 0,
        }
    }

    /// Most datagrams.
    pub(in crate::socket) fn capacity(&self) -> usize {
        self.limits.0
    }

    /// Whether messages of several datagrams are made.
    pub(in crate::socket) fn segments(&self) -> bool {
        self.limits.1 > 1
    }

    /// From now on makes messages of one datagram.
    pub(in crate::socket) fn stop_segmenting(&mut self) {
        self.limits.1 = 1;
    }

    pub(in crate::socket) fn clear(&mut self) {
        (self.messages, self.datagrams, self.used) = (0, 0, 0);
    }

    /// Adds the datagram that `write` writes, of the length that it returns. There are fewer than [`Batch::capacity`].
    pub(in crate::socket) fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        let len = write(self.buffer.slice_mut(self.used, self.size));
        assert!(len <= self.size, "a datagram of {len} bytes in a buffer of {}", self.size);
        let most = self.limits.1;
        let open = self.messages.checked_sub(1).map(|last| &mut self.segments[last]).filter(|open| {
            // Behind a shorter one there is none.
            let whole = open.bytes == open.count * open.size;
            open.count < most && whole && (1..=open.size).contains(&len) && open.bytes + len <= MAX_MESSAGE
        });
        match open {
            Some(open) => {
                open.count += 1;
                open.bytes += len;
            }
            None => {
                self.segments[self.messages] = Segments { count: 1, size: len, bytes: len };
                // A datagram without payload may lie behind the last byte of the buffer: any byte will do.
                let start = self.used.min(self.buffer.len() - 1);
                self.iovecs.get_mut(self.messages).iov_base = self.buffer.pointer(start).cast();
                self.messages += 1;
            }
        }
        self.datagrams += 1;
        self.used += len;
    }

    /// Sends all datagrams to the socket's peer; returns how many the kernel accepted, the first ones. Never blocks.
    pub(in crate::socket) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        if self.messages == 0 {
            return Ok(0);
        }
        self.describe();
        // SAFETY: the headers, their io vectors and control messages, and the buffer that the vectors point into belong
        // to self and outlive the call; `push` keeps every vector within the buffer.
        let n = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.pointer(0),
                self.messages as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        let accepted = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        Ok(self.segments.iter().take(accepted).map(|message| message.count).sum())
    }

    /// Writes the lengths of the messages where the kernel reads them.
    fn describe(&mut self) {
        for message in 0..self.messages {
            let Segments { count, size, bytes } = self.segments[message];
            self.iovecs.get_mut(message).iov_len = bytes;
            // At most the size of a message.
            self.controls.get_mut(message).size = size as u16;
            let asks = if count > 1 { size_of::<Segment>() } else { 0 };
            self.headers.get_mut(message).msg_hdr.msg_controllen = asks as _;
        }
    }

    /// The headers, once described, and how many there are.
    #[cfg(test)]
    pub(in crate::socket) fn described(&mut self) -> (*mut libc::mmsghdr, usize) {
        self.describe();
        (self.headers.pointer(0), self.messages)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// The lengths of `lens` after a trip over the loopback, and of the messages that carried them.
    fn sent(segments: usize, lens: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut batch = Batch::new(lens.len(), segments, 1000);
        for round in 0..2u8 {
            batch.clear();
            for (at, len) in lens.iter().enumerate() {
                batch.push(|bytes| {
                    bytes[..*len].fill(at as u8 ^ round);
                    *len
                });
            }
            assert_eq!(batch.send(sender.as_fd()).unwrap(), lens.len());
            for (at, len) in lens.iter().enumerate() {
                let mut bytes = [0xff; 2000];
                assert_eq!(receiver.recv(&mut bytes).unwrap(), *len, "datagram {at} of {lens:?}");
                assert!(bytes[..*len].iter().all(|byte| *byte == at as u8 ^ round), "{at}");
            }
        }
        (lens.to_vec(), batch.segments[..batch.messages].iter().map(|message| message.count).collect())
    }

    #[test]
    fn datagrams_of_one_length_and_a_shorter_one_share_a_message() {
        let lens = [40, 40, 40, 39, 41, 41, 43, 1, 1, 900];
        assert_eq!(sent(64, &lens).1, [4, 2, 2, 1, 1]);
        assert_eq!(sent(2, &lens).1, [2, 2, 2, 2, 1, 1]);
        assert_eq!(sent(1, &lens).1, [1; 10]);
    }

    #[test]
    fn a_message_stays_within_the_limits() {
        assert_eq!(sent(64, &[100; 100]).1, [64, 36]);
        assert_eq!(sent(1000, &[1000; 70]).1, [64, 6]);
        let mut batch = Batch::new(3, 64, MAX_MESSAGE);
        (0..3).for_each(|_| batch.push(|_| 40_000));
        assert_eq!(batch.messages, 3, "two would not fit a datagram's length");
    }
}
