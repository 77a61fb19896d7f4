//! What runs on a worker for every datagram: the seam between the datapath and whoever serves.
//!
//! Bindings that a [socket](crate::socket) has do not come here: their datagrams wait for a thread of the application.

use crate::counters::DropReason;
use crate::groups::BindingId;
use crate::port::Unsent;
use crate::wire::Headers;

/// A datagram as a handler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// What was sent.
    pub payload: &'a [u8],
    /// From whom, to whom.
    pub headers: &'a Headers,
    /// The binding it came to.
    pub binding: BindingId,
}

/// What a handler made of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The first so many bytes of the room are the reply.
    Reply(usize),
    /// No reply comes from here: the handler dropped the datagram or keeps what it needs of it, and counts that.
    Declined,
}

/// Serves datagrams, on one worker, to completion: the next frame waits until it returns.
pub trait Handler {
    /// Serves one. `room` is where a reply goes; it is longer than any datagram.
    fn handle(&mut self, datagram: Datagram<'_>, room: &mut [u8]) -> Outcome;

    /// Sends a reply that fits no frame of the link in another way, as the kernel does with fragments. False: it cannot,
    /// and the reply is dropped.
    fn too_long(&mut self, _datagram: Datagram<'_>, _reply: &[u8]) -> bool {
        false
    }

    /// A reply was not sent, for this reason, which the worker counts. `worker` is the one whose handler gave it: another one
    /// than this if frames are steered. Which datagram it was is not known of one that the port refused.
    fn unsent(&mut self, _worker: usize, _reply: Option<Unsent>, _reason: DropReason) {}
}

impl<F: FnMut(Datagram<'_>, &mut [u8]) -> Outcome> Handler for F {
    fn handle(&mut self, datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
        self(datagram, room)
    }
}
