//! A received datagram as a service sees it: [`Request`].

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use udpath_stack::wire::Headers;

use crate::deferred::Deferred;
use crate::endpoint::Endpoint;
use crate::sys::{Control, RawAddr};

/// One received datagram, borrowed from the worker's burst.
pub struct Request<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) peer: Peer<'a>,
    /// The kernel's report of the destination address and the time stamp, if the socket asks for either.
    pub(crate) control: Option<&'a Control>,
    pub(crate) origin: Origin<'a>,
    pub(crate) context: &'a BurstContext,
}

/// The peer as the kernel wrote it; decoded only on request.
#[derive(Clone, Copy)]
pub(crate) enum Peer<'a> {
    Raw(&'a RawAddr),
    Decoded(SocketAddr),
    /// In the headers of a frame, as is the destination address.
    Frame(&'a Headers),
}

/// Where a request arrived, and where a deferred answer is counted and sent.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A running server. `deferred` is set once a handle was taken: from then on the handle counts the request.
    Endpoint { endpoint: &'a Arc<Endpoint>, deferred: &'a Cell<bool> },
    /// A made-up request, with this local address.
    Detached(SocketAddr),
}

/// Time and CPU of a burst, read when the first request of the burst asks and then cached.
#[derive(Default)]
pub(crate) struct BurstContext {
    clock: Cell<Option<Duration>>,
    realtime: Cell<Option<Duration>>,
    cpu: Cell<Option<u32>>,
}

impl<'a> Request<'a> {
    /// The datagram's payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The address it was sent from.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        match self.peer {
            Peer::Raw(raw) => raw.decode(),
            Peer::Decoded(address) => address,
            Peer::Frame(headers) => headers.source(),
        }
    }

    /// The address it was sent to; on a wildcard bind, the actual destination address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        if let Peer::Frame(headers) = self.peer {
            return headers.destination();
        }
        let bind = match self.origin {
            Origin::Endpoint { endpoint, .. } => endpoint.socket.bind,
            Origin::Detached(local) => local,
        };
        match self.control.and_then(Control::destination) {
            Some(ip) => SocketAddr::new(ip, bind.port()),
            None => bind,
        }
    }

    /// The port it was sent from: costs less than the whole of [`Request::peer`].
    #[must_use]
    #[inline]
    pub fn peer_port(&self) -> u16 {
        match self.peer {
            Peer::Raw(raw) => raw.port(),
            Peer::Decoded(address) => address.port(),
            Peer::Frame(headers) => headers.source().port(),
        }
    }

    /// The port it was sent to.
    #[must_use]
    #[inline]
    pub fn local_port(&self) -> u16 {
        match self.origin {
            Origin::Endpoint { endpoint, .. } => endpoint.socket.bind.port(),
            Origin::Detached(local) => local.port(),
        }
    }

    /// When its burst was handled, as time since boot (`CLOCK_MONOTONIC`). The clock is read once per burst, when the
    /// first request asks, and never for a service that does not.
    #[must_use]
    pub fn received(&self) -> Duration {
        self.context.clock.get().unwrap_or_else(|| {
            let now = crate::cpus::monotonic_now();
            self.context.clock.set(Some(now));
            now
        })
    }

    /// When it arrived, as time of day since the Unix epoch (`CLOCK_REALTIME`): the kernel's receive time stamp with
    /// [`Config::timestamps`](crate::Config::timestamps). Without one, and for frames, when its burst was handled: the
    /// clock is read once per burst, when the first request asks.
    #[must_use]
    pub fn arrived(&self) -> Duration {
        self.control.and_then(Control::arrived).or(self.context.realtime.get()).unwrap_or_else(|| {
            let now = crate::cpus::realtime_now();
            self.context.realtime.set(Some(now));
            now
        })
    }

    /// The CPU the worker handles the burst on; read once per burst, when the first request asks.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.context.cpu.get().unwrap_or_else(|| {
            let cpu = crate::cpus::current_cpu();
            self.context.cpu.set(Some(cpu));
            cpu
        })
    }

    /// Takes a handle to answer the request later, from any thread; the service then returns
    /// [`Outcome::Defer`](crate::Outcome::Defer). Copy what you need of the payload: it is gone when the service
    /// returns.
    #[must_use = "dropping the handle counts the request as abandoned"]
    pub fn defer(self) -> Deferred {
        let peer = match self.peer {
            Peer::Raw(raw) => *raw,
            Peer::Decoded(address) => RawAddr::encode(address),
            Peer::Frame(headers) => RawAddr::encode(headers.source()),
        };
        let control = match (self.peer, self.origin) {
            // The kernel socket sends the answer; bound to a wildcard, it needs the source address.
            (Peer::Frame(headers), Origin::Endpoint { endpoint, .. })
                if endpoint.socket.bind.ip().is_unspecified() =>
            {
                Some(Control::of_source(headers.destination().ip()))
            }
            _ => self.control.copied(),
        };
        match self.origin {
            Origin::Endpoint { endpoint, deferred } => {
                deferred.set(true);
                Deferred::new(Some(Arc::clone(endpoint)), peer, control)
            }
            Origin::Detached(_) => Deferred::new(None, peer, None),
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
