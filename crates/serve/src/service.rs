//! What the user of the runtime writes: a [`Service`], and what it sees: [`Request`] and [`Reply`].

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use udpath_stack::wire::Headers;

use crate::counters::Lane;
use crate::deferred::Deferred;
use crate::sys::{Control, RawAddr};

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
    ///
    /// A panic costs this request (counted as [`DropReason::Panicked`]) and the instance; the worker goes on
    /// with a new one from the factory, on the same socket.
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome;
}

/// A handler of byte streams, for serving the same address over TCP. One instance per worker, for all its
/// connections: it keeps no state between two calls of one connection.
pub trait StreamService: Send {
    /// Handles bytes as they were read; at most 32,768 at once. The reply has room for at least as many.
    ///
    /// `Outcome::Reply` sends the reply, `Outcome::Drop(DropReason::Consumed)` goes on without one, anything
    /// else closes the connection.
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome;
}

/// The number of a worker, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub(crate) usize);

impl WorkerId {
    /// Names a worker: for calling a factory in tests.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// As an index into a vector with one place per worker.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Send what was written to the [`Reply`].
    Reply,
    /// Send nothing, and count it under this reason.
    Drop(DropReason),
    /// Nothing now: the service took a [`Deferred`] from the request and will answer, or drop it, later.
    /// Taking the handle is what counts: with a handle taken any outcome means this one, and without
    /// one this means `Drop(DropReason::Abandoned)`.
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
    /// The kernel did not take the reply; [`crate::SendError`] has the causes.
    SendFailed,
    /// The service panicked on it; the worker goes on with a new instance.
    Panicked,
    /// A deferred request whose handle was dropped without an answer.
    Abandoned,
    /// The request was sent to a broadcast or multicast address. None is answered unless
    /// [`Config::answer_broadcast`](crate::Config::answer_broadcast) is set; with it, one worker answers and the others
    /// count their copies here.
    Broadcast,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::Consumed,
        Self::Malformed,
        Self::Refused,
        Self::ReplyTooLarge,
        Self::Truncated,
        Self::SendFailed,
        Self::Panicked,
        Self::Abandoned,
        Self::Broadcast,
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
            Self::Broadcast => "broadcast",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One received datagram, borrowed from the worker's burst.
pub struct Request<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) peer: Peer<'a>,
    /// What the kernel said of the address it was sent to, where the socket asks.
    pub(crate) control: Option<&'a Control>,
    pub(crate) origin: Origin<'a>,
    pub(crate) moment: &'a Moment,
}

/// The peer as the kernel wrote it; decoded only when asked for.
#[derive(Clone, Copy)]
pub(crate) enum Peer<'a> {
    Raw(&'a RawAddr),
    Decoded(SocketAddr),
    /// In the headers of a frame, and with it the address that was asked.
    Frame(&'a Headers),
}

/// Where a request came in, and a deferred answer has to be counted and sent.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A runtime. `taken` is set once a handle was taken: from then on the handle counts the request.
    Lane { lane: &'a Arc<Lane>, taken: &'a Cell<bool> },
    /// Made up, with this as the local address.
    Nowhere(SocketAddr),
}

/// Time and CPU of a burst, read when the first request of the burst asks and then kept.
#[derive(Default)]
pub(crate) struct Moment {
    clock: Cell<Option<Duration>>,
    cpu: Cell<Option<u32>>,
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
        match self.peer {
            Peer::Raw(raw) => raw.decode(),
            Peer::Decoded(address) => address,
            Peer::Frame(headers) => headers.source(),
        }
    }

    /// The address it was sent to; on a wildcard bind the very address the peer asked.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        if let Peer::Frame(headers) = self.peer {
            return headers.destination();
        }
        let bind = match self.origin {
            Origin::Lane { lane, .. } => lane.socket.bind,
            Origin::Nowhere(local) => local,
        };
        match self.control.and_then(Control::asked) {
            Some(ip) => SocketAddr::new(ip, bind.port()),
            None => bind,
        }
    }

    /// When its burst was handled, since the boot of the machine (`CLOCK_MONOTONIC`). The clock is read once per
    /// burst, when the first request asks; a service that never asks pays nothing.
    #[must_use]
    pub fn received(&self) -> Duration {
        self.moment.clock.get().unwrap_or_else(|| {
            let now = crate::cpus::monotonic_now();
            self.moment.clock.set(Some(now));
            now
        })
    }

    /// The CPU the worker handles the burst on; read once per burst, when the first request asks.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.moment.cpu.get().unwrap_or_else(|| {
            let cpu = crate::cpus::current_cpu();
            self.moment.cpu.set(Some(cpu));
            cpu
        })
    }

    /// Takes a handle with which the request can be answered later, from any thread; the service then returns
    /// [`Outcome::Defer`]. Copy what is needed of the payload first: it is gone when the service returns.
    #[must_use = "dropping the handle counts the request as abandoned"]
    pub fn defer(self) -> Deferred {
        let peer = match self.peer {
            Peer::Raw(raw) => *raw,
            Peer::Decoded(address) => RawAddr::encode(address),
            Peer::Frame(headers) => RawAddr::encode(headers.source()),
        };
        let control = match (self.peer, self.origin) {
            // It will be answered from the kernel's socket, which has to be told by which address if it has many.
            (Peer::Frame(headers), Origin::Lane { lane, .. }) if lane.socket.bind.ip().is_unspecified() => {
                Some(Control::of_source(headers.destination().ip()))
            }
            _ => self.control.copied(),
        };
        match self.origin {
            Origin::Lane { lane, taken } => {
                taken.set(true);
                Deferred::new(Some(Arc::clone(lane)), peer, control)
            }
            Origin::Nowhere(_) => Deferred::new(None, peer, None),
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer())
            .field("local", &self.local())
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// The bounded buffer a reply is written to, with a place for its own length.
///
/// The buffer keeps whatever an earlier reply left in it: write every byte that [`Reply::set_len`] sends.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    /// A reply over any buffer: for calling a service in tests, or from another runtime.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// The most bytes a reply can have: 65,507 over IPv4, 65,527 over IPv6.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the reply so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole buffer, to write in place; then [`Reply::set_len`].
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Makes the first `len` bytes of the buffer the reply.
    pub fn set_len(&mut self, len: usize) -> Outcome {
        if len > self.buffer.len() {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        }
        self.len = len;
        Outcome::Reply
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

    /// Adds `bytes` to the reply. `Outcome::Reply`, or the drop to return when they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> Outcome {
        let Some(place) = self.buffer.get_mut(self.len..).and_then(|rest| rest.get_mut(..bytes.len())) else {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        };
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        Outcome::Reply
    }
}

/// Calls a service with one made-up request, without a runtime: for unit tests of services.
///
/// Returns the outcome and, for [`Outcome::Reply`], the bytes written. A handle taken with [`Request::defer`]
/// leads nowhere.
pub fn serve_once(
    service: &mut impl Service,
    payload: &[u8],
    peer: SocketAddr,
    local: SocketAddr,
) -> (Outcome, Vec<u8>) {
    let mut room = vec![0; crate::sys::MAX_PAYLOAD_V4];
    let mut reply = Reply::new(&mut room);
    let moment = Moment::default();
    let request = Request {
        payload,
        peer: Peer::Decoded(peer),
        control: None,
        origin: Origin::Nowhere(local),
        moment: &moment,
    };
    let outcome = service.serve(request, &mut reply);
    let len = if outcome == Outcome::Reply { reply.len() } else { 0 };
    room.truncate(len);
    (outcome, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_takes_what_fits_and_nothing_more() {
        let mut room = [0; 4];
        let mut reply = Reply::new(&mut room);
        assert_eq!(reply.write(b"abcde"), Outcome::Drop(DropReason::ReplyTooLarge));
        assert!(reply.is_empty());
        assert_eq!(reply.append(b"abc"), Outcome::Reply);
        assert_eq!(reply.append(b"de"), Outcome::Drop(DropReason::ReplyTooLarge));
        assert_eq!(reply.len(), 3);
        assert_eq!(reply.append(b"d"), Outcome::Reply);
        assert_eq!(reply.buffer_mut(), b"abcd");
        assert_eq!(reply.set_len(5), Outcome::Drop(DropReason::ReplyTooLarge));
        assert_eq!((reply.set_len(2), reply.len()), (Outcome::Reply, 2));
    }

    #[test]
    fn drop_reasons_are_listed_in_the_order_of_their_counters() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason}");
        }
    }

    #[test]
    fn a_service_can_be_called_without_a_runtime() {
        struct Where;
        impl Service for Where {
            fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
                let text = format!("{} asked {}", request.peer(), request.local());
                reply.write(text.as_bytes())
            }
        }
        let peer = "[2001:db8::1]:9".parse().unwrap();
        let local = "192.0.2.1:53".parse().unwrap();
        let (outcome, reply) = serve_once(&mut Where, b"", peer, local);
        assert_eq!(outcome, Outcome::Reply);
        assert_eq!(reply, b"[2001:db8::1]:9 asked 192.0.2.1:53");
    }
}
