//! What runs on a worker for every datagram: the interface between the datapath and the service.
//!
//! Datagrams of bindings that have a [socket](crate::socket) do not come here; they wait for a thread of the
//! application.

use crate::counters::DropReason;
use crate::groups::BindingId;
use crate::port::Unsent;
use crate::wire::Headers;

/// A datagram as a handler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// The UDP payload.
    pub payload: &'a [u8],
    /// Source, destination and offsets.
    pub headers: &'a Headers,
    /// The binding it was received on.
    pub binding: BindingId,
}

/// What a handler did with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is this many bytes, from the start of the buffer.
    Reply(usize),
    /// As `Reply`, without a [`NeighbourCheck`](crate::worker::NeighbourCheck): to a request that this host made
    /// itself.
    Unchecked(usize),
    /// No reply from here: the handler dropped the datagram or kept what it needs of it, and counts that itself.
    Declined,
}

/// Serves datagrams on one worker, run to completion: the next frame waits until it returns.
pub trait Handler {
    /// Serves one datagram. The reply goes into `buffer`, which is longer than any datagram.
    fn handle(&mut self, datagram: Datagram<'_>, buffer: &mut [u8]) -> Outcome;

    /// Sends a reply that cannot leave as a frame some other way, such as through a kernel socket: it does not fit a
    /// frame of the link, or must not go back to where its request came from
    /// ([`NeighbourCheck`](crate::worker::NeighbourCheck)). Returns false if it cannot, and the reply is dropped.
    fn send_otherwise(&mut self, _datagram: Datagram<'_>, _reply: &[u8]) -> bool {
        false
    }

    /// Reports a reply that was not sent; the worker counts it under `reason`. `worker` is the one whose handler
    /// returned the reply: it differs from this one if frames are steered. For a frame that the port rejected
    /// outright, `reply` is `None`.
    fn unsent(&mut self, _worker: usize, _reply: Option<Unsent>, _reason: DropReason) {}
}

impl<F: FnMut(Datagram<'_>, &mut [u8]) -> Outcome> Handler for F {
    fn handle(&mut self, datagram: Datagram<'_>, buffer: &mut [u8]) -> Outcome {
        self(datagram, buffer)
    }
}
