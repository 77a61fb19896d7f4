//! Counts of the items that were offered.

use crate::primitive::{AtomicU64, Ordering};

/// Why items were refused, and how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// The socket's own limit.
    pub socket_full: u64,
    /// The limit of all sockets together.
    pub pool_full: u64,
    /// The reader is gone.
    pub closed: u64,
}

impl Refused {
    /// For all reasons.
    pub fn total(&self) -> u64 {
        self.socket_full + self.pool_full + self.closed
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Self) {
        self.socket_full += other.socket_full;
        self.pool_full += other.pool_full;
        self.closed += other.closed;
    }
}

/// The counts of all items so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Enqueued into the producer queue.
    pub enqueued: u64,
    /// Left with the worker.
    pub refused: Refused,
}

/// The sums, written under the lock, or without it when the socket is known to be full.
#[derive(Default)]
pub(super) struct RefusedCells {
    socket_full: AtomicU64,
    pool_full: AtomicU64,
    closed: AtomicU64,
}

impl RefusedCells {
    pub(super) fn read(&self) -> Refused {
        Refused {
            socket_full: self.socket_full.load(Ordering::Relaxed),
            pool_full: self.pool_full.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn add(&self, refused: Refused) {
        for (cell, count) in [
            (&self.socket_full, refused.socket_full),
            (&self.pool_full, refused.pool_full),
            (&self.closed, refused.closed),
        ] {
            if count > 0 {
                cell.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
