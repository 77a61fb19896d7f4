//! What a user of the runtime implements: [`Service`] for datagrams and, for TCP, [`StreamService`].

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::outcome::Outcome;
use crate::reply::Reply;
use crate::request::Request;

/// A handler of datagrams. Each worker has its own instance, so a service needs no locks.
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
    /// Handles one datagram. Runs on the packet path: do not block, make system calls or allocate.
    ///
    /// A panic loses this request (counted as [`DropReason::Panicked`](crate::DropReason::Panicked)) and the instance.
    /// The worker continues with a new instance from the factory, on the same socket.
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome;
}

/// A service that is chosen at run time. One copy of the runtime serves them all, at the cost of an indirect call per
/// datagram.
impl Service for Box<dyn Service> {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        (**self).serve(request, reply)
    }
}

/// A handler of byte streams, to serve the same addresses over TCP. Each worker has one instance for all its
/// connections, so it must not keep state of a connection between calls.
pub trait StreamService: Send {
    /// Handles one message, at most 32,768 bytes. The reply buffer holds at least 65,536.
    ///
    /// `Outcome::Reply` sends the reply and `Outcome::Drop(DropReason::Consumed)` continues without one; any other
    /// outcome closes the connection. So does a panic, which also replaces the instance; other connections continue.
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome;

    /// Like [`StreamService::serve`], with the address of the connection's peer. The runtime calls this one.
    fn serve_from(&mut self, _peer: SocketAddr, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        self.serve(input, reply)
    }

    /// The length of the message that `input` begins with, 1 or more; `None` if its end has not arrived. What follows
    /// is kept for the next message, and a connection whose message has not ended after 32,768 bytes is closed. By
    /// default the bytes of one read are a message.
    fn message_len(&self, input: &[u8]) -> Option<usize> {
        Some(input.len())
    }

    /// How long a connection may ask nothing before it is closed, if that is shorter than
    /// [`TcpLimits::idle_timeout`](crate::TcpLimits::idle_timeout). Asked once, at the start.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }
}

/// The number of a worker, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub(crate) usize);

impl WorkerId {
    /// The worker with this number; lets a test call a factory.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// The number, as an index into a vector with one element per worker.
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
