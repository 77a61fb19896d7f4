//! What a worker did with every frame it received: each is in exactly one of these counters, or still in progress.
//!
//! ```text
//! received = answered + declined + delivered + dropped (by reason) + in progress      over all workers
//!
//! replied, by one worker = answered + unsent, of its replies, by all ports + in progress
//!
//! handed over by sockets for sending = sent + unsent + in progress
//! ```
//! A reply counts as answered once it has left the port: not when a handler returned it, nor when the port accepted
//! it. What becomes of a delivered datagram is counted by its socket ([`crate::socket::Counts`]); a frame that a
//! socket sent is not in `answered`, whether it was a reply or not. A worker counts a burst in plain integers and
//! publishes once per poll; other threads read at any time.

mod drop_reason;

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicU64, Ordering};

pub use drop_reason::DropReason;

/// The counts of one poll.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) answered: u64,
    pub(crate) replied: u64,
    pub(crate) declined: u64,
    pub(crate) steered: u64,
    pub(crate) delivered: u64,
    pub(crate) sent: u64,
    pub(crate) unsent: u64,
    dropped: Dropped,
}

#[derive(Debug)]
struct Dropped {
    any: bool,
    by_reason: [u32; DropReason::COUNT],
}

impl Default for Dropped {
    fn default() -> Self {
        Self { any: false, by_reason: [0; DropReason::COUNT] }
    }
}

impl Tally {
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason, count: usize) {
        self.dropped.any = true;
        self.dropped.by_reason[reason.index()] += count as u32;
    }
}

/// The published counters of one worker. Written by that worker only.
#[derive(Debug, Clone)]
pub struct Counters {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    received: CachePadded<AtomicU64>,
    answered: AtomicU64,
    replied: AtomicU64,
    declined: AtomicU64,
    steered: AtomicU64,
    delivered: AtomicU64,
    sent: AtomicU64,
    unsent: AtomicU64,
    dropped: [AtomicU64; DropReason::COUNT],
    /// By the worker whose handler replied.
    replies: Box<[CompletedReplies]>,
}

/// Replies of one worker, by what became of them at another worker's port.
#[derive(Debug)]
struct CompletedReplies {
    answered: AtomicU64,
    unsent: AtomicU64,
}

impl Default for CompletedReplies {
    fn default() -> Self {
        Self { answered: AtomicU64::new(0), unsent: AtomicU64::new(0) }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::for_workers(0)
    }
}

impl Shared {
    fn for_workers(workers: usize) -> Self {
        Self {
            replies: (0..workers).map(|_| CompletedReplies::default()).collect(),
            received: CachePadded::new(AtomicU64::new(0)),
            answered: AtomicU64::new(0),
            replied: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            steered: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            dropped: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Counters {
    /// The counters of one of `workers` workers.
    pub(crate) fn for_workers(workers: usize) -> Self {
        Self { shared: Arc::new(Shared::for_workers(workers)) }
    }

    /// Counts replies of `worker` that left the port, and replies that did not. Once per burst.
    #[inline]
    pub(crate) fn completed(&self, worker: u16, answered: u64, unsent: u64) {
        if let Some(replies) = self.shared.replies.get(usize::from(worker)) {
            add(&replies.answered, answered);
            add(&replies.unsent, unsent);
        }
    }

    /// Adds the counts of one poll and resets them.
    #[inline]
    pub(crate) fn publish(&self, tally: &mut Tally) {
        let shared = &*self.shared;
        add(&shared.received, std::mem::take(&mut tally.received));
        add(&shared.answered, std::mem::take(&mut tally.answered));
        add(&shared.replied, std::mem::take(&mut tally.replied));
        add(&shared.declined, std::mem::take(&mut tally.declined));
        add(&shared.steered, std::mem::take(&mut tally.steered));
        add(&shared.delivered, std::mem::take(&mut tally.delivered));
        add(&shared.sent, std::mem::take(&mut tally.sent));
        add(&shared.unsent, std::mem::take(&mut tally.unsent));
        if tally.dropped.any {
            for (sum, count) in shared.dropped.iter().zip(&tally.dropped.by_reason) {
                add(sum, u64::from(*count));
            }
            tally.dropped = Dropped::default();
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            received: read(&self.shared.received),
            answered: read(&self.shared.answered),
            replied: read(&self.shared.replied),
            completed: self.shared.replies.iter().map(|of| read(&of.answered) + read(&of.unsent)).collect(),
            declined: read(&self.shared.declined),
            steered: read(&self.shared.steered),
            delivered: read(&self.shared.delivered),
            sent: read(&self.shared.sent),
            unsent: read(&self.shared.unsent),
            dropped: self.shared.dropped.iter().map(read).collect(),
        }
    }
}

/// There is a single writer, so no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// Counts at one moment; the sum of several workers' snapshots is a snapshot as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Frames received from the worker's own port.
    pub received: u64,
    /// Replies that left the worker's own port.
    pub answered: u64,
    /// Replies returned by the worker's own handler, sent by the port that received the request.
    pub replied: u64,
    /// By worker: replies of its handler that the worker's own port has completed, sent or not.
    completed: Vec<u64>,
    /// Datagrams that the handler did not answer: it dropped or kept them, and counts them itself.
    pub declined: u64,
    /// Frames handed to another worker.
    pub steered: u64,
    /// Datagrams that a socket took.
    pub delivered: u64,
    /// Frames of sockets that the worker's own port sent, replies and others.
    pub sent: u64,
    /// Frames of sockets that the worker's own port could not send.
    pub unsent: u64,
    dropped: Vec<u64>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            received: 0,
            answered: 0,
            replied: 0,
            completed: Vec::new(),
            declined: 0,
            steered: 0,
            delivered: 0,
            sent: 0,
            unsent: 0,
            dropped: vec![0; DropReason::COUNT],
        }
    }
}

impl Snapshot {
    /// Frames dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }

    /// Frames dropped, for all reasons.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The reasons with a non-zero count.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::all().zip(self.dropped.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Frames received that are not in any other counter yet. 0 when the workers are at rest.
    #[must_use]
    pub fn under_way(&self) -> i64 {
        self.received as i64 - (self.answered + self.declined + self.delivered + self.dropped_total()) as i64
    }

    /// Replies of `worker`'s handler that the port has completed; in the sum over all workers, that all ports have
    /// completed.
    #[must_use]
    pub fn completed(&self, worker: usize) -> u64 {
        self.completed.get(worker).copied().unwrap_or(0)
    }

    /// For the sum over all workers: whether nothing is in progress.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.under_way() == 0 && self.replied == self.completed.iter().sum::<u64>()
    }

    /// Subtracts an earlier snapshot of the same counters.
    pub fn subtract(&mut self, earlier: &Self) {
        self.received -= earlier.received;
        self.answered -= earlier.answered;
        self.replied -= earlier.replied;
        self.declined -= earlier.declined;
        self.steered -= earlier.steered;
        self.delivered -= earlier.delivered;
        self.sent -= earlier.sent;
        self.unsent -= earlier.unsent;
        for (count, before) in self.completed.iter_mut().zip(&earlier.completed) {
            *count -= before;
        }
        for (count, before) in self.dropped.iter_mut().zip(&earlier.dropped) {
            *count -= before;
        }
    }

    /// Adds another worker's snapshot.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.answered += other.answered;
        self.replied += other.replied;
        self.completed.resize(self.completed.len().max(other.completed.len()), 0);
        for (sum, count) in self.completed.iter_mut().zip(&other.completed) {
            *sum += count;
        }
        self.declined += other.declined;
        self.steered += other.steered;
        self.delivered += other.delivered;
        self.sent += other.sent;
        self.unsent += other.unsent;
        for (sum, count) in self.dropped.iter_mut().zip(&other.dropped) {
            *sum += count;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_was_tallied() {
        let counters = Counters::default();
        let mut tally = Tally { received: 10, answered: 6, ..Tally::default() };
        tally.drop(DropReason::Unbound, 3);
        counters.publish(&mut tally);
        counters.publish(&mut tally);
        let snapshot = counters.snapshot();
        assert_eq!(
            (snapshot.received, snapshot.dropped(DropReason::Unbound), snapshot.under_way()),
            (10, 3, 1)
        );
        assert_eq!(snapshot.drops().collect::<Vec<_>>(), [(DropReason::Unbound, 3)]);
    }
}
