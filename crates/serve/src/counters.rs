//! What a worker counts on one socket.
//!
//! ```text
//! worker thread: relaxed load + store, a few per burst ---> Published (own cache lines, hot ones on the first)
//! other threads: fetch_add, for deferred answers, and
//!                for replies that a device did not send  ---> Late      (own cache lines)
//! anyone:        Lane::counts() adds both up
//! ```
//!
//! `Published` has one writer, so counting needs no locked instruction; and there is no second copy of the numbers,
//! because between two datagrams the kernel has evicted most of the nearest cache, and every line counts. A reader
//! sees numbers that each were true, not necessarily at the same moment. At rest (worker joined) they agree exactly.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::io::Socket;
use crate::outcome::DropReason;
use crate::status::Counts;

/// Why the kernel did not take a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The send buffer stayed full for as long as a send may wait.
    BufferFull,
    /// Out of buffers below the socket (`ENOBUFS`, `ENOMEM`): the device's queue is full.
    NoBuffers,
    /// A firewall or other rule forbids it (`EPERM`, `EACCES`).
    NotPermitted,
    /// The peer's machine refused an earlier reply (`ECONNREFUSED`).
    Refused,
    /// No way to the peer (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, ...).
    Unreachable,
    /// Longer than the way to the peer, or the protocol, allows (`EMSGSIZE`).
    TooLong,
    /// Anything else, such as a peer with port 0 (`EINVAL`).
    Other,
}

impl SendError {
    /// All causes, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::BufferFull,
        Self::NoBuffers,
        Self::NotPermitted,
        Self::Refused,
        Self::Unreachable,
        Self::TooLong,
        Self::Other,
    ];

    /// The name used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer_full",
            Self::NoBuffers => "no_buffers",
            Self::NotPermitted => "not_permitted",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TooLong => "too_long",
            Self::Other => "other",
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::BufferFull,
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::NoBuffers,
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EHOSTDOWN
                | libc::EADDRNOTAVAIL
                | libc::ENODEV,
            ) => Self::Unreachable,
            Some(libc::EMSGSIZE) => Self::TooLong,
            _ => Self::Other,
        }
    }
}

/// The worker's numbers for one socket. Written by the worker alone.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Published {
    // The first line: all that the usual datagram moves.
    received: AtomicU64,
    received_bytes: AtomicU64,
    answered: AtomicU64,
    answered_bytes: AtomicU64,
    bursts: AtomicU64,
    deferred: AtomicU64,
    receive_errors: AtomicU64,
    // Further lines: what is rare, or the service's choice.
    dropped: [AtomicU64; DropReason::ALL.len()],
    failed: [AtomicU64; SendError::ALL.len()],
}

/// Adds without a locked instruction: there is one writer.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Published {
    /// A burst of `count` datagrams and `bytes` of payload was served.
    #[inline]
    pub(crate) fn received(&self, count: u64, bytes: u64) {
        add(&self.received, count);
        add(&self.received_bytes, bytes);
        // A burst of probes alone is no traffic.
        add(&self.bursts, u64::from(count > 0));
    }

    /// `count` replies of together `bytes` went out.
    #[inline]
    pub(crate) fn sent(&self, count: usize, bytes: u64) {
        add(&self.answered, count as u64);
        add(&self.answered_bytes, bytes);
    }

    /// The kernel did not take `count` replies.
    #[cold]
    pub(crate) fn failed(&self, error: &io::Error, count: usize) {
        add(&self.failed[SendError::of(error) as usize], count as u64);
    }

    #[inline]
    pub(crate) fn dropped(&self, reason: DropReason) {
        add(&self.dropped[reason as usize], 1);
    }

    #[inline]
    pub(crate) fn deferred(&self) {
        add(&self.deferred, 1);
    }

    #[cold]
    pub(crate) fn receive_error(&self) {
        add(&self.receive_errors, 1);
    }
}

/// What became of deferred requests, counted by whoever ended them.
#[derive(Debug, Default)]
pub(crate) struct Late {
    answered: AtomicU64,
    answered_bytes: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    failed: [AtomicU64; SendError::ALL.len()],
    /// Replies that the worker has published as answered and that did not leave after all.
    unsent: [AtomicU64; SendError::ALL.len()],
    unsent_bytes: AtomicU64,
}

impl Late {
    /// A reply of so many bytes that the worker gave was not sent.
    #[cold]
    pub(crate) fn unsent(&self, cause: SendError, bytes: usize) {
        self.unsent_bytes.fetch_add(bytes as u64, Relaxed);
        self.unsent[cause as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.answered_bytes.fetch_add(bytes as u64, Relaxed);
        self.answered.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, error: &io::Error) {
        self.failed[SendError::of(error) as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn dropped(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Relaxed);
    }
}

/// All workers' lanes: by worker, then by address.
pub(crate) type Lanes = Arc<[Vec<Arc<Lane>>]>;

/// One worker on one socket.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) socket: Arc<Socket>,
    pub(crate) published: CachePadded<Published>,
    pub(crate) late: CachePadded<Late>,
}

impl Lane {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, published: CachePadded::default(), late: CachePadded::default() }
    }

    /// Is a reply from `address` one of this lane?
    pub(crate) fn answers_from(&self, address: SocketAddr) -> bool {
        let bind = self.socket.bind;
        bind.port() == address.port()
            && bind.is_ipv4() == address.is_ipv4()
            && (bind.ip() == address.ip() || bind.ip().is_unspecified())
    }

    /// The sums so far.
    pub(crate) fn counts(&self) -> Counts {
        let (now, late) = (&self.published, &self.late);
        let unsent: u64 = late.unsent.iter().map(|count| count.load(Relaxed)).sum();
        let mut counts = Counts {
            received: now.received.load(Relaxed),
            received_bytes: now.received_bytes.load(Relaxed),
            answered: (now.answered.load(Relaxed) + late.answered.load(Relaxed)).saturating_sub(unsent),
            answered_bytes: (now.answered_bytes.load(Relaxed) + late.answered_bytes.load(Relaxed))
                .saturating_sub(late.unsent_bytes.load(Relaxed)),
            bursts: now.bursts.load(Relaxed),
            receive_errors: now.receive_errors.load(Relaxed),
            ..Counts::default()
        };
        let mut settled = late.answered.load(Relaxed);
        for (i, count) in counts.send_errors.0.iter_mut().enumerate() {
            let late = late.failed[i].load(Relaxed);
            *count = now.failed[i].load(Relaxed) + late + self.late.unsent[i].load(Relaxed);
            settled += late;
        }
        for (i, count) in counts.dropped.requests.iter_mut().enumerate() {
            let late = late.dropped[i].load(Relaxed);
            *count = now.dropped[i].load(Relaxed) + late;
            settled += late;
        }
        counts.dropped.requests[DropReason::SendFailed as usize] += counts.send_errors.0.iter().sum::<u64>();
        // The handle can be answered before the worker has published that it was taken.
        counts.deferred = now.deferred.load(Relaxed).saturating_sub(settled);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_listed_in_the_order_of_their_counters() {
        for (index, cause) in SendError::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index, "{}", cause.name());
        }
    }

    #[test]
    fn a_reply_that_was_not_sent_is_dropped_and_not_answered() {
        let socket = Socket::open("127.0.0.1:0".parse().unwrap(), crate::io::Sharing::Alone, None, None);
        let lane = Lane::new(Arc::new(socket.unwrap()));
        lane.published.received(3, 30);
        lane.published.sent(3, 30);
        lane.late.unsent(SendError::NoBuffers, 10);
        let counts = lane.counts();
        assert_eq!((counts.answered, counts.answered_bytes, counts.deferred), (2, 20, 0));
        assert_eq!(counts.dropped.by(DropReason::SendFailed), 1);
        assert_eq!(counts.send_errors.by(SendError::NoBuffers), 1);
        counts.balance().unwrap();
    }

    #[test]
    fn every_error_has_a_cause() {
        for (errno, cause) in [
            (libc::EAGAIN, SendError::BufferFull),
            (libc::ENOBUFS, SendError::NoBuffers),
            (libc::ECONNREFUSED, SendError::Refused),
            (libc::EPERM, SendError::NotPermitted),
            (libc::ENETUNREACH, SendError::Unreachable),
            (libc::EMSGSIZE, SendError::TooLong),
            (libc::EINVAL, SendError::Other),
        ] {
            assert_eq!(SendError::of(&io::Error::from_raw_os_error(errno)), cause);
        }
    }
}
