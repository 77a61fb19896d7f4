//! The two queues of a socket: workers enqueue datagrams into one, the reader takes them from the other.
//!
//! ```text
//!               lock, once per burst                 ring
//!   worker 0 ─┐                          ┌───────────────┬───────────────┐
//!   worker 1 ─┼─▶ charge memory, enqueue ─▶ producer queue│ reader's own  ├──▶ reader
//!   worker 2 ─┘        ▲                 └───────────────┴───────────────┘    no lock
//!                      │                         splice = a load of the ring's index
//!                      └────────── one word: bytes released so far ──────────── in bulk
//! ```
//! With a single queue, reader and workers take the same lock for every datagram, and each other's cache lines with
//! it. The kernel gave the reader a queue of its own, filled by splicing the whole producer queue (Linux 4.13,
//! `reader_queue`; 6.18 does the same for its per-node queues). Here both are one ring ([`crate::ring`]): the part
//! that the reader has seen is its own queue, a splice moves that border with one load, and **the reader never takes
//! the workers' lock** to read.
//!
//! - **Order** is that of arrival, per worker.
//! - **Memory** is charged when an item is enqueued, and released by the reader in bulk ([`super::memory`]); items in
//!   either queue count. The reader only stores how many bytes it has released so far, a quarter of the limit at a
//!   time; the next holder of the lock settles it. The limit also bounds the number of items, so nothing is allocated
//!   after creation.
//! - **A full socket** refuses: the item stays with the worker, which owns its frame, and is counted here by reason.
//!   Each received item carries the number of refusals before it was enqueued, like `SO_RXQ_OVFL`.
//! - **Invariant**, at rest: `offered = enqueued + refused (by reason)`, `enqueued = received + waiting`.
//! - **Sleep**: the reader sleeps through [`crate::wake`]; producers signal at most once per burst.
//!
//! [`Step`] takes the optimisations back one by one, so that each can be measured (`make bench BENCH=two_queue`,
//! `udpath experiment receive`).
//!
//! # Why the workers share a lock
//! Memory accounting, drop counts and the order of sequence numbers must agree with the queue; under a lock, taken
//! once per burst, they do. A lock-free multi-producer queue (crossbeam's `ArrayQueue`, with the charge in an atomic)
//! was measured against it: with one worker it delivers from a third more to twice as much, because its two ends
//! never wait for a whole burst. But its limit is not exact, a burst is not kept together, and each datagram is a
//! contended exchange as soon as there are two workers.

mod counts;
mod producer;
mod reader;

use std::collections::VecDeque;
use std::io;

use crossbeam_utils::CachePadded;

use super::memory::{Account, Charged, Dealing, Gathered, MIN_CHARGE, Pool};
use crate::primitive::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::ring;
use crate::wake;

pub use counts::{Counts, Refused};
pub use producer::Producer;
pub use reader::Reader;

use counts::RefusedCells;

/// The largest limit, bytes: a charge is kept in 32 bits beside its item.
pub const MAX_BYTES: usize = 1 << 30;

/// The optimisations in use, in the order in which the kernel got them; each step includes those before it. Anything
/// but the default is for measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Step {
    /// One queue, and a lock of the socket beside the queue's: workers hold it while they enqueue a datagram, the
    /// reader takes it to release one's bytes (Linux until 4.9).
    SocketLock,
    /// One queue; worker and reader take its lock for each datagram, and charge and release there (4.10).
    OneQueue,
    /// The reader accumulates what it frees, the account uses the pool in quanta (4.11).
    BulkRelease,
    /// While the socket is more than half full, workers wait for each other at a lock of their own, so that only one of
    /// them competes with the reader for the queue's (4.11 to 6.17).
    BusyLock,
    /// The reader has a queue of its own and splices (4.13).
    TwoQueues,
    /// Workers take the lock, and check for a sleeping reader, once per burst; instead of the lock of their own (6.18
    /// has a queue without a lock before this one).
    Bursts,
    /// The producer queue is a ring, and the reader's own queue is the part of it that the reader has seen: a splice
    /// is one load, and only workers share the lock.
    #[default]
    Ring,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 7] = [
        Self::SocketLock,
        Self::OneQueue,
        Self::BulkRelease,
        Self::BusyLock,
        Self::TwoQueues,
        Self::Bursts,
        Self::Ring,
    ];

    /// Whether workers have a lock of their own.
    fn has_busy_lock(self) -> bool {
        (Self::BusyLock..=Self::TwoQueues).contains(&self)
    }
}

/// Settings of a socket's queue.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Maximum bytes charged at a time, from [`MIN_CHARGE`] to [`MAX_BYTES`] (the kernel's `SO_RCVBUF`). Lower: short
    /// bursts overflow. Higher: a reader that is too slow answers ever older requests instead of dropping early.
    pub limit: usize,
    /// The optimisations in use.
    pub step: Step,
}

impl Config {
    /// A queue of at most `limit` bytes, with all optimisations.
    pub fn new(limit: usize) -> Self {
        Self { limit, step: Step::default() }
    }
}

/// A queue could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The limit is out of range.
    #[error("cannot create a socket queue of {limit} bytes: expected {MIN_CHARGE} to {MAX_BYTES}")]
    Limit {
        /// The requested limit, bytes.
        limit: usize,
    },
    /// The eventfd that a sleeping reader waits on.
    #[error("cannot open an eventfd for a socket queue's reader")]
    Eventfd {
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
}

/// An item taken from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<T> {
    /// The item.
    pub item: T,
    /// How many the socket had refused when it enqueued this one, modulo 2^32: the difference from the item before is
    /// what was lost between them.
    pub refused_before: u32,
    /// Its charge, bytes.
    charge: u32,
}

/// State shared by producers and reader.
struct Shared<T> {
    limit: usize,
    step: Step,
    locked: CachePadded<Mutex<Locked<T>>>,
    /// Taken before `locked`: that of the socket in [`Step::SocketLock`], the workers' own from [`Step::BusyLock`] to
    /// [`Step::TwoQueues`].
    outer: CachePadded<Mutex<()>>,
    hints: CachePadded<Hints>,
    /// Bytes the reader has released since the start, wrapping; written by the reader only.
    released: CachePadded<AtomicUsize>,
    refused: CachePadded<RefusedCells>,
}

struct Locked<T> {
    /// The producer queue in the steps before it became a ring.
    queue: VecDeque<Received<T>>,
    /// The producer queue; the account guarantees that it has room.
    ring: ring::Producer<Received<T>>,
    account: Account,
    /// The value of `Shared::released` that the account includes.
    settled: usize,
    enqueued: u64,
    /// The reader is gone.
    closed: bool,
}

/// Copies of state under the lock, to be read without it. Written under the lock only.
struct Hints {
    /// Length of the producer queue: if it is zero, the reader need not take the lock.
    waiting: AtomicUsize,
    /// Bytes charged since the start, wrapping; together with the released bytes, they show a worker that the socket
    /// is full.
    charged: AtomicUsize,
}

/// Creates a socket's queue, whose bytes are reserved from `pool`. All memory is allocated here.
pub fn queue<T: Charged + Send>(config: Config, pool: &Pool) -> Result<(Producer<T>, Reader<T>), Error> {
    let Config { limit, step } = config;
    if !(MIN_CHARGE..=MAX_BYTES).contains(&limit) {
        return Err(Error::Limit { limit });
    }
    let (waker, sleeper) = wake::pair().map_err(|cause| Error::Eventfd { cause })?;
    let dealing = if step < Step::BulkRelease { Dealing::Exact } else { Dealing::Quanta };
    // No more items than this can be charged at a time, in both queues together.
    let most_items = limit / MIN_CHARGE;
    let (producer_items, own_items, ring_items) = match step {
        Step::SocketLock | Step::OneQueue | Step::BulkRelease | Step::BusyLock => (most_items, 0, 1),
        Step::TwoQueues | Step::Bursts => (most_items, most_items, 1),
        Step::Ring => (0, 0, most_items.next_power_of_two()),
    };
    // The largest limit divided by the minimum charge is no more than a ring's maximum.
    let (ring, consumer) = ring::ring(ring_items).map_err(|_| Error::Limit { limit })?;
    let shared = Arc::new(Shared {
        limit,
        step,
        locked: CachePadded::new(Mutex::new(Locked {
            queue: VecDeque::with_capacity(producer_items),
            ring,
            account: Account::new(limit, dealing, pool.clone()),
            settled: 0,
            enqueued: 0,
            closed: false,
        })),
        outer: CachePadded::new(Mutex::new(())),
        hints: CachePadded::new(Hints { waiting: AtomicUsize::new(0), charged: AtomicUsize::new(0) }),
        released: CachePadded::new(AtomicUsize::new(0)),
        refused: CachePadded::default(),
    });
    let reader = Reader {
        shared: Arc::clone(&shared),
        own: VecDeque::with_capacity(own_items),
        consumer,
        empty_polls: 0,
        gathered: Gathered::new(limit),
        released: 0,
        unsettled: false,
        sleeper,
    };
    Ok((Producer { shared, waker }, reader))
}

impl<T> Shared<T> {
    fn counts(&self) -> Counts {
        let enqueued = lock(&self.locked).enqueued;
        Counts { enqueued, refused: self.refused.read() }
    }

    /// Publishes what the reader accumulated; the next holder of the lock settles it.
    #[inline]
    fn release(&self, released: &mut usize, gathered: &mut Gathered) {
        *released = released.wrapping_add(gathered.take());
        // Release: the ring's slots are free before the bytes are.
        self.released.store(*released, Ordering::Release);
    }

    /// Credits what the reader released to the account; the caller holds the lock.
    #[inline]
    fn settle(&self, locked: &mut Locked<T>) {
        // Acquire: the slots become free with the bytes, so a ring never has less room than the account.
        let released = self.released.load(Ordering::Acquire);
        locked.account.release(released.wrapping_sub(locked.settled));
        locked.settled = released;
    }

    /// Whether there is no room even for the smallest item. Read without the lock, so the answer may be stale.
    #[inline]
    fn looks_full(&self) -> bool {
        self.outstanding() + MIN_CHARGE as isize > self.limit as isize
    }

    /// Bytes charged and not released. Read without the lock: it may be stale, and negative if the second load saw what
    /// was charged after the first.
    #[inline]
    fn outstanding(&self) -> isize {
        let charged = self.hints.charged.load(Ordering::Relaxed);
        let released = self.released.load(Ordering::Relaxed);
        charged.wrapping_sub(released) as isize
    }

    /// The lock that a worker takes before the queue's for a datagram, in the steps that have one.
    #[inline]
    fn outer(&self) -> Option<MutexGuard<'_, ()>> {
        let half_full = || self.outstanding() > (self.limit / 2) as isize;
        let wanted = self.step == Step::SocketLock || (self.step.has_busy_lock() && half_full());
        wanted.then(|| lock(&self.outer))
    }

    /// Publishes the hints; the caller holds the lock.
    #[inline]
    fn publish(&self, locked: &Locked<T>) {
        // Relaxed: the lock is taken before acting on a hint, and the wake-up protocol has its own fences.
        self.hints.charged.store(locked.settled.wrapping_add(locked.account.charged()), Ordering::Relaxed);
        self.hints.waiting.store(locked.queue.len(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
