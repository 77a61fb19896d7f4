//! Where a frame is looked at: read, verified, its binding found, and served by the handler if it has no socket.

use crate::counters::{DropReason, Tally};
use crate::frame::Frame;
use crate::groups::{BindingId, Groups, Lookup};
use crate::handler::{Datagram, Handler, Outcome};
use crate::port::{Checksums, Unsent};
use crate::wire::{Headers, Packet, UdpChecksum, reply};

/// Room for a reply: more than any datagram.
const REPLY_BUFFER_LEN: usize = 1 << 16;

/// A worker's handler, and what it needs.
pub(super) struct Dispatch<H> {
    pub(super) handler: H,
    reply_buffer: Box<[u8]>,
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

impl<H: Handler> Dispatch<H> {
    pub(super) fn new(handler: H, index: usize, checksums: Checksums) -> Self {
        Self {
            handler,
            reply_buffer: vec![0; REPLY_BUFFER_LEN].into(),
            checksums,
            index,
            tally: Tally::default(),
        }
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
                self.tally.drop(DropReason::Refused(refusal), 1);
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
        max_frame_len: usize,
    ) -> Served {
        let binding = match groups.find(headers) {
            Lookup::Binding(binding) => binding,
            Lookup::Unbound => return self.dropped(DropReason::Unbound),
            Lookup::NotLocal => return self.dropped(DropReason::NotLocal),
        };
        if groups.socket(binding).is_some() {
            return Served::Socket(binding);
        }
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        let Outcome::Reply(len) = self.handler.handle(datagram, &mut self.reply_buffer) else {
            self.tally.declined += 1;
            return Served::Nothing;
        };
        let reply = &self.reply_buffer[..len.min(REPLY_BUFFER_LEN)];
        let end = headers.payload_offset() + reply.len();
        if end > headers.end_within(max_frame_len) || !frame.set_len(end) {
            return self.too_long(frame, headers, binding, len);
        }
        let bytes = frame.bytes_mut();
        bytes[headers.payload_offset()..].copy_from_slice(reply);
        match reply::in_place(bytes, headers, reply.len(), UdpChecksum::Computed) {
            Ok(_) => Served::Reply,
            Err(_) => {
                let len = len.min(REPLY_BUFFER_LEN);
                self.unsent(headers, len)
            }
        }
    }

    /// The handler has replied, and no frame can hold it.
    #[cold]
    fn unsent(&mut self, headers: &Headers, len: usize) -> Served {
        let reply = Unsent { from: headers.destination(), len };
        self.handler.unsent(self.index, Some(reply), DropReason::ReplyTooLong);
        self.dropped(DropReason::ReplyTooLong)
    }

    #[cold]
    fn too_long(&mut self, frame: &Frame, headers: &Headers, binding: BindingId, len: usize) -> Served {
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        if self.handler.too_long(datagram, &self.reply_buffer[..len.min(REPLY_BUFFER_LEN)]) {
            self.tally.declined += 1;
            Served::Nothing
        } else {
            self.unsent(headers, len.min(REPLY_BUFFER_LEN))
        }
    }

    #[cold]
    fn dropped(&mut self, reason: DropReason) -> Served {
        self.tally.drop(reason, 1);
        Served::Nothing
    }
}
