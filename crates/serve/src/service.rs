//! What a user of the runtime implements: [`Service`] for datagrams and, for TCP, [`StreamService`].

use std::fmt;

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

/// A handler of byte streams, to serve the same addresses over TCP. Each worker has one instance for all its
/// connections, so it must not keep state of a connection between calls.
pub trait StreamService: Send {
    /// Handles the bytes of one read, at most 32,768. The reply buffer holds at least as many.
    ///
    /// `Outcome::Reply` sends the reply and `Outcome::Drop(DropReason::Consumed)` continues without one; any other
    /// outcome closes the connection. So does a panic, which also replaces the instance; other connections continue.
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome;
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
