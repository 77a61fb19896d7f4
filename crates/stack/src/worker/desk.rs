//! Where a frame is looked at: read, verified, its binding found, and served by the handler if it has no socket.

use crate::counters::{Drop, Tally};
use crate::frame::Frame;
use crate::groups::{BindingId, Found, Groups};
use crate::handler::{Datagram, Handler, Outcome};
use crate::port::{Checksums, Unsent};
use crate::wire::{Headers, Packet, UdpChecksum, reply};

/// Room for a reply: more than any datagram.
const ROOM: usize = 1 << 16;

/// A worker's handler, and what it needs.
pub(super) struct Desk<H> {
    pub(super) handler: H,
    room: Box<[u8]>,
    /// What is known of those that the port receives.
    checksums: Checksums,
    /// The worker's number.
    index: usize,
    pub(super) tally: Tally,
}

/// What became of a frame that was looked at.
pub(super) enum Served {
    Reply,
    Nothing,
    /// It is for the socket of this binding.
    Socket(BindingId),
}

impl<H: Handler> Desk<H> {
    pub(super) fn new(handler: H, index: usize, checksums: Checksums) -> Self {
        Self { handler, room: vec![0; ROOM].into(), checksums, index, tally: Tally::default() }
    }

    /// Reads and verifies a frame that came from the port.
    #[inline]
    pub(super) fn admit(&mut self, frame: &Frame) -> Option<Headers> {
        let bytes = frame.bytes();
        let checked = Packet::parse(bytes).and_then(|headers| {
            if !frame.offloads().checksums {
                self.checksums.check(&headers, bytes)?;
            }
            Ok(headers)
        });
        match checked {
            Ok(headers) => Some(headers),
            Err(refusal) => {
                self.tally.drop(Drop::Refused(refusal), 1);
                None
            }
        }
    }

    /// Finds who serves the frame, and lets them if it is the handler. `longest`: the longest frame that the port it came
    /// by sends.
    #[inline]
    pub(super) fn serve(
        &mut self,
        frame: &mut Frame,
        headers: &Headers,
        groups: &Groups,
        longest: usize,
    ) -> Served {
        let binding = match groups.find(headers) {
            Found::Binding(binding) => binding,
            Found::Unbound => return self.dropped(Drop::Unbound),
            Found::NotLocal => return self.dropped(Drop::NotLocal),
        };
        if groups.socket(binding).is_some() {
            return Served::Socket(binding);
        }
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        let Outcome::Reply(len) = self.handler.handle(datagram, &mut self.room) else {
            self.tally.declined += 1;
            return Served::Nothing;
        };
        let reply = &self.room[..len.min(ROOM)];
        let end = headers.payload_offset() + reply.len();
        if end > headers.end_within(longest) || !frame.set_len(end) {
            return self.too_long(frame, headers, binding, len);
        }
        let bytes = frame.bytes_mut();
        bytes[headers.payload_offset()..].copy_from_slice(reply);
        match reply::turn(bytes, headers, reply.len(), UdpChecksum::Computed) {
            Ok(_) => Served::Reply,
            Err(_) => {
                let len = len.min(ROOM);
                self.unsent(headers, len)
            }
        }
    }

    /// The handler has replied, and no frame can hold it.
    #[cold]
    fn unsent(&mut self, headers: &Headers, len: usize) -> Served {
        let reply = Unsent { from: headers.destination(), len };
        self.handler.unsent(self.index, Some(reply), Drop::ReplyTooLong);
        self.dropped(Drop::ReplyTooLong)
    }

    #[cold]
    fn too_long(&mut self, frame: &Frame, headers: &Headers, binding: BindingId, len: usize) -> Served {
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        if self.handler.too_long(datagram, &self.room[..len.min(ROOM)]) {
            self.tally.declined += 1;
            Served::Nothing
        } else {
            self.unsent(headers, len.min(ROOM))
        }
    }

    #[cold]
    fn dropped(&mut self, reason: Drop) -> Served {
        self.tally.drop(reason, 1);
        Served::Nothing
    }
}
