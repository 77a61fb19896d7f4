//! What a worker counts on one socket.
//!
//! ```text
//! worker thread:   relaxed load and store, a few per burst ─▸ WorkerCounters   own cache lines, the hot ones first
//! other threads:   fetch_add, for deferred answers, and for
//!                  replies that a device did not send      ─▸ SharedCounters   own cache lines
//! any thread:      Endpoint::counts() adds both up
//! ```
//!
//! `WorkerCounters` has a single writer, so counting needs no locked instruction. There is no second copy of the
//! numbers: between two datagrams the kernel evicts most of the L1 cache, and every line counts. A reader sees numbers
//! that were each correct, but not necessarily at the same time. At rest (worker joined) they agree exactly.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::outcome::{DropReason, SendError};

/// The worker's counters for one socket. Only the worker writes them.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct WorkerCounters {
    // The first line: all that an ordinary datagram changes.
    pub(crate) received: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) answered_bytes: AtomicU64,
    pub(crate) bursts: AtomicU64,
    pub(crate) deferred: AtomicU64,
    pub(crate) receive_errors: AtomicU64,
    // Further lines: rare events, and drops chosen by the service.
    pub(crate) dropped: [AtomicU64; DropReason::ALL.len()],
    pub(crate) failed: [AtomicU64; SendError::ALL.len()],
}

/// Adds without a locked instruction: there is a single writer.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

impl WorkerCounters {
    /// A burst of `count` datagrams and `bytes` of payload was served.
    #[inline]
    pub(crate) fn received(&self, count: u64, bytes: u64) {
        add(&self.received, count);
        add(&self.received_bytes, bytes);
        // A burst of probes only is not traffic.
        add(&self.bursts, u64::from(count > 0));
    }

    /// `count` replies with `bytes` in total were sent.
    #[inline]
    pub(crate) fn sent(&self, count: usize, bytes: u64) {
        add(&self.answered, count as u64);
        add(&self.answered_bytes, bytes);
    }

    /// `count` replies were not sent.
    #[cold]
    pub(crate) fn failed(&self, cause: SendError, count: usize) {
        add(&self.failed[cause as usize], count as u64);
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

/// Counters that any thread may write: the outcome of deferred requests, and replies that a device did not send.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    pub(crate) answered: AtomicU64,
    pub(crate) answered_bytes: AtomicU64,
    pub(crate) dropped: [AtomicU64; DropReason::ALL.len()],
    pub(crate) failed: [AtomicU64; SendError::ALL.len()],
    /// Replies the worker counted as answered that were not sent after all.
    pub(crate) unsent: [AtomicU64; SendError::ALL.len()],
    pub(crate) unsent_bytes: AtomicU64,
}

impl SharedCounters {
    /// A reply of `bytes` bytes was not sent.
    #[cold]
    pub(crate) fn unsent(&self, cause: SendError, bytes: usize) {
        self.unsent_bytes.fetch_add(bytes as u64, Relaxed);
        self.unsent[cause as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.answered_bytes.fetch_add(bytes as u64, Relaxed);
        self.answered.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, cause: SendError) {
        self.failed[cause as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn dropped(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Relaxed);
    }
}
