//! Answering later, from any thread, over the socket that received the request.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::outcome::DropReason;
use crate::sys::{Control, NotSent, RawAddr, send_to};

/// A handle to answer one request later. Taken with [`crate::Request::defer`].
///
/// Each request ends in exactly one way and is counted once: answered, dropped for a reason or, if the handle itself is
/// dropped, [`DropReason::Abandoned`]. The handle keeps the socket open.
#[must_use = "dropping the handle counts the request as abandoned"]
pub struct Deferred {
    peer: RawAddr,
    control: Option<Control>,
    /// `None` once the request is counted, and for made-up requests.
    endpoint: Option<Arc<Endpoint>>,
}

/// A deferred answer was not sent. It is counted as [`DropReason::SendFailed`].
#[derive(Debug, thiserror::Error)]
#[error("cannot answer {peer}")]
pub struct DeferredError {
    peer: SocketAddr,
    source: io::Error,
}

impl Deferred {
    /// Without an endpoint the answer is discarded.
    pub(crate) fn new(endpoint: Option<Arc<Endpoint>>, peer: RawAddr, control: Option<Control>) -> Self {
        Self { peer, control, endpoint }
    }

    /// The address that waits for the answer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer.decode()
    }

    /// Sends the answer, from the address the request was sent to. Waits for room in a full send buffer for at most 2
    /// ms, and not at all for a neighbour that does not answer.
    pub fn answer(mut self, payload: &[u8]) -> Result<(), DeferredError> {
        let Some(endpoint) = self.endpoint.take() else { return Ok(()) };
        if let Some(control) = &mut self.control {
            control.answer_from_destination();
        }
        match send_to(&*endpoint.socket, payload, &self.peer, self.control.as_mut()) {
            Ok(len) => {
                endpoint.shared_counters.sent(len);
                Ok(())
            }
            Err(NotSent { cause, error: source }) => {
                endpoint.shared_counters.failed(cause);
                Err(DeferredError { peer: self.peer(), source })
            }
        }
    }

    /// Drops the request for this reason.
    pub fn discard(mut self, reason: DropReason) {
        self.settle(reason);
    }

    fn settle(&mut self, reason: DropReason) {
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.shared_counters.dropped(reason);
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.settle(DropReason::Abandoned);
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("peer", &self.peer()).finish_non_exhaustive()
    }
}
