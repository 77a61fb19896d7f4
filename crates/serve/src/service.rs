//! What the user of the runtime writes: a [`Service`], and what it sees: [`Request`] and [`Reply`].

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A handler of datagrams. The runtime makes one instance per worker, so it needs no locks.
///
/// ```
/// use udpath_serve::{Outcome, Reply, Request, Service};
///
/// struct Shout;
/// impl Service for Shout {
///     fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
///         reply.write(&request.payload().to_ascii_uppercase())
///     }
/// }
/// ```
pub trait Service: Send {
    /// Handles one datagram. Runs on the packet path: no blocking, no system calls, no allocation.
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome;
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Send what was written to the [`Reply`].
    Reply,
    /// Send nothing, and count it under this reason.
    Drop(DropReason),
    /// Nothing now: the service took a [`crate::Deferred`] and will answer, or drop it, later.
    Defer,
}

/// Why a request got no answer. Each has its own counter; `received = answered + the sum of these + deferred`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The service takes datagrams and never answers (a sink).
    Consumed,
    /// The request is not of the service's protocol.
    Malformed,
    /// The service chose not to answer (access rules, rate limits).
    Refused,
    /// The reply does not fit the reply buffer.
    ReplyTooLarge,
    /// The request was longer than the receive buffer and was cut by the kernel.
    Truncated,
    /// The kernel did not take the reply (send queue full, no route, ...).
    SendFailed,
    /// The service panicked on it; the worker goes on with a new instance.
    Panicked,
    /// A deferred request whose handle was dropped without an answer.
    Abandoned,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 8] = [
        Self::Consumed,
        Self::Malformed,
        Self::Refused,
        Self::ReplyTooLarge,
        Self::Truncated,
        Self::SendFailed,
        Self::Panicked,
        Self::Abandoned,
    ];

    /// The name used in counters and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Consumed => "consumed",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::ReplyTooLarge => "reply_too_large",
            Self::Truncated => "truncated",
            Self::SendFailed => "send_failed",
            Self::Panicked => "panicked",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One received datagram, borrowed from the worker's burst.
#[derive(Debug)]
pub struct Request<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) received: Duration,
    pub(crate) cpu: u32,
}

impl<'a> Request<'a> {
    /// The datagram's payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Who sent it.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address it was sent to; on a wildcard bind the very address the peer asked.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// When its burst was read, since the boot of the machine (`CLOCK_MONOTONIC`). One reading per burst.
    #[must_use]
    pub fn received(&self) -> Duration {
        self.received
    }

    /// The CPU its worker ran on when the burst was read.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }
}

/// The bounded buffer a reply is written to.
#[derive(Debug)]
pub struct Reply<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) len: usize,
}

impl Reply<'_> {
    /// The most bytes a reply can have.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Makes `bytes` the whole reply: the short way for services that have it ready.
    pub fn write(&mut self, bytes: &[u8]) -> Outcome {
        match self.buffer.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len = bytes.len();
                Outcome::Reply
            }
            None => Outcome::Drop(DropReason::ReplyTooLarge),
        }
    }
}
