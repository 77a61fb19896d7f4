//! Dispatch of a frame: parse, verify, look up its binding, and run the handler if the binding has no socket.

use crate::counters::{DropReason, Tally};
use crate::frame::Frame;
use crate::groups::{BindingId, Groups, Lookup};
use crate::handler::{Datagram, Handler, Outcome};
use crate::port::{Checksums, Unsent};
use crate::wire::{Headers, Packet, UdpChecksum, reply};

use super::neighbours::Current;

/// The handler's reply buffer: longer than any datagram.
const REPLY_BUFFER_LEN: usize = 1 << 16;

/// A worker's handler, and what it takes to call it.
pub(super) struct Dispatch<H> {
    pub(super) handler: H,
    reply_buffer: Box<[u8]>,
    /// How the checksums of received packets are verified.
    checksums: Checksums,
    /// The worker's number.
    index: usize,
    pub(super) tally: Tally,
}

/// The link that a frame came from, and its reply leaves by.
#[derive(Clone, Copy)]
pub(super) struct Link<'g> {
    /// The longest frame of its port, bytes.
    pub(super) max_frame_len: usize,
    /// The worker whose port it is.
    pub(super) worker: usize,
    /// Decides whether a reply may go back to its request's sender, if that is checked.
    pub(super) neighbours: Option<Current<'g>>,
}

/// The result of dispatching a frame.
pub(super) enum Served {
    Reply,
    Nothing,
    /// Deliver it to the socket of this binding.
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

    /// Parses and verifies a frame received from the port.
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

    /// Looks up the frame's binding, and runs the handler unless the binding has a socket. `link`: of the port that
    /// received the frame.
    #[inline]
    pub(super) fn serve(
        &mut self,
        frame: &mut Frame,
        headers: &Headers,
        groups: &Groups,
        link: Link<'_>,
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
        let (len, neighbours) = match self.handler.handle(datagram, &mut self.reply_buffer) {
            Outcome::Reply(len) => (len, link.neighbours),
            Outcome::Unchecked(len) => (len, None),
            Outcome::Declined => {
                self.tally.declined += 1;
                return Served::Nothing;
            }
        };
        if let Some(neighbours) = neighbours
            && !neighbours.returns(link.worker, headers, frame.bytes())
        {
            return self.send_otherwise(frame, headers, binding, len, DropReason::Neighbour);
        }
        let reply = &self.reply_buffer[..len.min(REPLY_BUFFER_LEN)];
        let end = headers.payload_offset() + reply.len();
        if end > headers.end_within(link.max_frame_len) || !frame.set_len(end) {
            return self.send_otherwise(frame, headers, binding, len, DropReason::ReplyTooLong);
        }
        let bytes = frame.bytes_mut();
        bytes[headers.payload_offset()..].copy_from_slice(reply);
        match reply::in_place(bytes, headers, reply.len(), UdpChecksum::Computed) {
            Ok(_) => Served::Reply,
            Err(_) => {
                let len = len.min(REPLY_BUFFER_LEN);
                self.unsent(headers, len, DropReason::ReplyTooLong)
            }
        }
    }

    /// The handler replied, and the reply cannot leave as a frame or any other way.
    #[cold]
    fn unsent(&mut self, headers: &Headers, len: usize, reason: DropReason) -> Served {
        let reply = Unsent { from: headers.destination(), len };
        self.handler.unsent(self.index, Some(reply), reason);
        self.dropped(reason)
    }

    #[cold]
    fn send_otherwise(
        &mut self,
        frame: &Frame,
        headers: &Headers,
        binding: BindingId,
        len: usize,
        reason: DropReason,
    ) -> Served {
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        if self.handler.send_otherwise(datagram, &self.reply_buffer[..len.min(REPLY_BUFFER_LEN)]) {
            self.tally.declined += 1;
            Served::Nothing
        } else {
            self.unsent(headers, len.min(REPLY_BUFFER_LEN), reason)
        }
    }

    #[cold]
    fn dropped(&mut self, reason: DropReason) -> Served {
        self.tally.drop(reason, 1);
        Served::Nothing
    }
}
