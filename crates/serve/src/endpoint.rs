//! One worker's use of one served address: the socket and the counters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::counters::{SharedCounters, WorkerCounters};
use crate::counts::Counts;
use crate::io::Socket;
use crate::outcome::DropReason;

/// The endpoints of all workers: by worker, then by address.
pub(crate) type Endpoints = Arc<[Vec<Arc<Endpoint>>]>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: Arc<Socket>,
    pub(crate) counters: CachePadded<WorkerCounters>,
    pub(crate) shared_counters: CachePadded<SharedCounters>,
}

impl Endpoint {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, counters: CachePadded::default(), shared_counters: CachePadded::default() }
    }

    /// Whether a reply from `address` is one of this endpoint.
    pub(crate) fn answers_from(&self, address: SocketAddr) -> bool {
        let bind = self.socket.bind;
        bind.port() == address.port()
            && bind.is_ipv4() == address.is_ipv4()
            && (bind.ip() == address.ip() || bind.ip().is_unspecified())
    }

    /// The totals so far.
    pub(crate) fn counts(&self) -> Counts {
        let (own, shared) = (&self.counters, &self.shared_counters);
        let unsent: u64 = shared.unsent.iter().map(|count| count.load(Relaxed)).sum();
        let mut counts = Counts {
            received: own.received.load(Relaxed),
            received_bytes: own.received_bytes.load(Relaxed),
            answered: (own.answered.load(Relaxed) + shared.answered.load(Relaxed)).saturating_sub(unsent),
            answered_bytes: (own.answered_bytes.load(Relaxed) + shared.answered_bytes.load(Relaxed))
                .saturating_sub(shared.unsent_bytes.load(Relaxed)),
            bursts: own.bursts.load(Relaxed),
            receive_errors: own.receive_errors.load(Relaxed),
            ..Counts::default()
        };
        let mut settled = shared.answered.load(Relaxed);
        for (i, count) in counts.send_errors.0.iter_mut().enumerate() {
            let late = shared.failed[i].load(Relaxed);
            *count = own.failed[i].load(Relaxed) + late + shared.unsent[i].load(Relaxed);
            settled += late;
        }
        for (i, count) in counts.dropped.requests.iter_mut().enumerate() {
            let late = shared.dropped[i].load(Relaxed);
            *count = own.dropped[i].load(Relaxed) + late;
            settled += late;
        }
        counts.dropped.requests[DropReason::SendFailed as usize] += counts.send_errors.0.iter().sum::<u64>();
        // A handle may be answered before the worker has counted it.
        counts.deferred = own.deferred.load(Relaxed).saturating_sub(settled);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Sharing, SocketOptions};
    use crate::outcome::SendError;

    #[test]
    fn a_reply_that_was_not_sent_is_dropped_and_not_answered() {
        let socket =
            Socket::open("127.0.0.1:0".parse().unwrap(), Sharing::Alone, None, SocketOptions::default());
        let endpoint = Endpoint::new(Arc::new(socket.unwrap()));
        endpoint.counters.received(3, 30);
        endpoint.counters.sent(3, 30);
        endpoint.shared_counters.unsent(SendError::NoBuffers, 10);
        let counts = endpoint.counts();
        assert_eq!((counts.answered, counts.answered_bytes, counts.deferred), (2, 20, 0));
        assert_eq!(counts.dropped.by(DropReason::SendFailed), 1);
        assert_eq!(counts.send_errors.by(SendError::NoBuffers), 1);
        counts.balance().unwrap();
    }
}
