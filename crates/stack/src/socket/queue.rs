//! The two queues of a socket: workers put datagrams into one, the reader takes them from the other.
//!
//! ```text
//!               lock, once per burst                 ring
//!   worker 0 ─┐                          ┌───────────────┬───────────────┐
//!   worker 1 ─┼─▶ charge memory, put in ─▶ producer queue│ reader's own  ├──▶ reader
//!   worker 2 ─┘        ▲                 └───────────────┴───────────────┘    no lock
//!                      │                         splice = a look at the ring's index
//!                      └────────── one word: bytes released so far ──────────── in bulk
//! ```
//! With one queue, reader and workers take the same lock for every datagram, and each other's cache lines with it. The
//! kernel gave the reader a queue of its own, filled by a splice of the whole producer queue (Linux 4.13,
//! `reader_queue`; 6.18 does the same for its per-node queues). Here both are one ring ([`crate::ring`]): what the
//! reader has seen of it is its own, a splice moves that border with one load, and **the reader never takes the
//! workers' lock** to read.
//!
//! - **Order** is that of arrival per worker.
//! - **Memory** is charged when an item is taken in, and released by the reader in bulk ([`super::memory`]); items in
//!   either queue count. The reader only stores how many bytes it has released so far, a quarter of the limit at a
//!   time; who next holds the lock settles it. The limit also bounds the number of items, so that nothing is allocated
//!   after the start.
//! - **A full socket** refuses: the item stays with the worker, who owns its frame, and is counted here by reason.
//!   Each item received carries the number of refusals before it was taken in, like `SO_RXQ_OVFL`.
//! - **Identity**, at rest: `offered = enqueued + refused (by reason)`, `enqueued = received + waiting`.
//! - **Sleep**: the reader sleeps through [`crate::wake`]; producers signal once per burst, and only then.
//!
//! [`Step`] takes the improvements back one by one, so that each can be measured (`make bench BENCH=two_queue`).
//!
//! # Why a lock among the workers
//! Memory, drop counts and the order of stamps must agree with the queue; under a lock, taken once per burst, they do.
//! A lock-free queue of many producers (crossbeam's `ArrayQueue`, with the charge in an atomic) was measured beside it:
//! with one worker it delivers a third to twice as much, for its two ends never wait for a whole burst. But its
//! limit is not exact, a burst is not kept together, and each of its datagrams is a contended exchange as soon as
//! there are two workers.

mod counts;
mod producer;
mod reader;

use std::collections::VecDeque;
use std::io;

use crossbeam_utils::CachePadded;

use super::memory::{Account, Charged, Dealing, Gathered, MIN_CHARGE, Pool};
use crate::primitive::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::ring;
use crate::wake;

pub use counts::{Counts, Refused};
pub use producer::Producer;
pub use reader::Reader;

use counts::RefusedCells;

/// The largest limit, bytes: a charge is kept in 32 bits beside its item.
pub const MAX_BYTES: usize = 1 << 30;

/// How far the queue has come; each step includes those before it. Anything but the default is for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Step {
    /// One queue; each datagram is a lock taken by its worker and by the reader, charged and released there.
    OneQueue,
    /// The reader gathers what it frees, the account deals with the pool in quanta.
    BulkRelease,
    /// The reader has a queue of its own and splices.
    TwoQueues,
    /// Workers take the lock, and look for a sleeping reader, once per burst.
    Bursts,
    /// The producer queue is a ring, the reader's own queue is the part of it that the reader has seen: a splice is one
    /// load, and the lock is among workers alone.
    #[default]
    Ring,
}

/// What a socket's queue is made with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Most bytes charged at a time, from [`MIN_CHARGE`] to [`MAX_BYTES`] (the kernel's `SO_RCVBUF`). Lower: short
    /// bursts overflow. Higher: a reader that is too slow answers ever older requests instead of dropping early.
    pub limit: usize,
    /// How far the queue has come.
    pub step: Step,
}

impl Config {
    /// A queue of at most `limit` bytes, with all improvements.
    pub fn new(limit: usize) -> Self {
        Self { limit, step: Step::default() }
    }
}

/// A queue could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The limit is out of range.
    #[error("cannot make a socket queue of {limit} bytes: give {MIN_CHARGE} to {MAX_BYTES}")]
    Limit {
        /// What was asked for, bytes.
        limit: usize,
    },
    /// The descriptor that a sleeping reader waits on.
    #[error("cannot open an eventfd for a socket queue's reader: {cause}")]
    Eventfd {
        /// What the kernel said.
        cause: io::Error,
    },
}

/// An item out of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<T> {
    /// What a worker put in.
    pub item: T,
    /// How many the socket had refused when it took this one, modulo 2^32: the difference to the item before is what
    /// was lost between them.
    pub refused_before: u32,
    /// What it was charged, bytes.
    charge: u32,
}

/// What producers and reader share.
struct Shared<T> {
    limit: usize,
    step: Step,
    locked: CachePadded<Mutex<Locked<T>>>,
    hints: CachePadded<Hints>,
    /// Bytes the reader has released since the start, wrapping; written by the reader alone.
    released: CachePadded<AtomicUsize>,
    refused: CachePadded<RefusedCells>,
}

struct Locked<T> {
    /// The producer queue before it became a ring.
    queue: VecDeque<Received<T>>,
    /// The producer queue; its room is what the account allows.
    ring: ring::Producer<Received<T>>,
    account: Account,
    /// What of `Shared::released` the account knows of.
    settled: usize,
    enqueued: u64,
    /// The reader is gone.
    closed: bool,
}

/// Copies of what is under the lock, for looking without taking it. Written under the lock only.
struct Hints {
    /// Length of the producer queue: zero tells the reader not to bother.
    waiting: AtomicUsize,
    /// Bytes charged since the start, wrapping; with those released since the start they tell a worker not to bother.
    charged: AtomicUsize,
}

/// Makes a socket's queue, whose bytes come out of `pool`. All memory is allocated here.
pub fn queue<T: Charged + Send>(config: Config, pool: &Pool) -> Result<(Producer<T>, Reader<T>), Error> {
    let Config { limit, step } = config;
    if !(MIN_CHARGE..=MAX_BYTES).contains(&limit) {
        return Err(Error::Limit { limit });
    }
    let (waker, sleeper) = wake::pair().map_err(|cause| Error::Eventfd { cause })?;
    let dealing = if step == Step::OneQueue { Dealing::Exact } else { Dealing::Quanta };
    // No more items than this can be charged at a time, in both queues together.
    let most_items = limit / MIN_CHARGE;
    let (producer_items, own_items, ring_items) = match step {
        Step::OneQueue | Step::BulkRelease => (most_items, 0, 1),
        Step::TwoQueues | Step::Bursts => (most_items, most_items, 1),
        Step::Ring => (0, 0, most_items.next_power_of_two()),
    };
    // The most bytes a limit may be, by the least charge, are no more than the most items a ring may have.
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

    /// Tells the workers what the reader gathered; whoever next holds the lock settles it.
    #[inline]
    fn release(&self, released: &mut usize, gathered: &mut Gathered) {
        *released = released.wrapping_add(gathered.take());
        // Release: the ring's slots are free before the bytes are.
        self.released.store(*released, Ordering::Release);
    }

    /// Gives what the reader released back to the account; the caller holds the lock.
    #[inline]
    fn settle(&self, locked: &mut Locked<T>) {
        // Acquire: with the bytes come the slots, so a ring never has less room than the account.
        let released = self.released.load(Ordering::Acquire);
        locked.account.release(released.wrapping_sub(locked.settled));
        locked.settled = released;
    }

    /// Is there no room for anything? Without the lock, so it may be an old answer.
    #[inline]
    fn looks_full(&self) -> bool {
        let charged = self.hints.charged.load(Ordering::Relaxed);
        let released = self.released.load(Ordering::Relaxed);
        // Negative if the second look saw what was charged after the first.
        let outstanding = charged.wrapping_sub(released) as isize;
        outstanding + MIN_CHARGE as isize > self.limit as isize
    }

    /// Publishes the hints; the caller holds the lock.
    #[inline]
    fn publish(&self, locked: &Locked<T>) {
        // Relaxed: whoever acts on a hint takes the lock first, and the wake-up protocol brings its own fences.
        self.hints.charged.store(locked.settled.wrapping_add(locked.account.charged()), Ordering::Relaxed);
        self.hints.waiting.store(locked.queue.len(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
