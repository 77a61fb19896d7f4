//! The TCP counters of one worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counts::TcpCounts;

/// See the module. Only the worker's TCP thread writes them.
#[derive(Debug, Default)]
pub(crate) struct TcpCounters {
    pub(super) accepted: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) idle: AtomicU64,
    pub(super) slow: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) answered_bytes: AtomicU64,
}

/// Adds without a locked instruction: there is a single writer.
pub(super) fn add(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Relaxed) + more as u64, Relaxed);
}

impl TcpCounters {
    pub(crate) fn add_to(&self, sum: &mut TcpCounts) {
        sum.accepted += self.accepted.load(Relaxed);
        sum.open += self.accepted.load(Relaxed).saturating_sub(self.closed.load(Relaxed));
        sum.evicted += self.evicted.load(Relaxed);
        sum.idle += self.idle.load(Relaxed);
        sum.slow += self.slow.load(Relaxed);
        sum.accept_errors += self.accept_errors.load(Relaxed);
        sum.failed += self.failed.load(Relaxed);
        sum.received_bytes += self.received_bytes.load(Relaxed);
        sum.answered_bytes += self.answered_bytes.load(Relaxed);
    }
}
