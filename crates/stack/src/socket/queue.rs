//! The two queues of a socket: workers put datagrams into one, the reader takes them from the other.
//!
//! ```text
//!   worker 0 ─┐                        ┌────────── splice: the whole queue at once, ──────────┐
//!   worker 1 ─┼─▶ producer queue ──────┘          when the reader's own is empty              ▼
//!   worker 2 ─┘   under a lock, once per burst                                     reader's own queue ──▶ reader
//!                 memory charged here  ◀── memory released here, in bulk ──────────  no lock, no atomic
//! ```
//! With one queue, reader and workers take the same lock for every datagram, and each other's cache lines with it. With
//! two, the reader takes it once per splice, and under load a splice is long: the more there is to do, the less they
//! meet (Linux 4.13, `reader_queue`; 6.18 does the same for its per-node queues). The splice is a swap of two buffers.
//!
//! - **Order** is that of arrival per worker: the reader's own queue is always older than the producer queue.
//! - **Memory** is charged when an item is taken in, and released by the reader in bulk ([`super::memory`]); items in
//!   either queue count. The limit also bounds the number of items, so that nothing is allocated after the start.
//! - **A full socket** refuses: the item stays with the worker, who owns its frame, and is counted here by reason.
//!   Each item received carries the number of refusals before it was taken in, like `SO_RXQ_OVFL`.
//! - **Identity**, at rest: `offered = enqueued + refused (by reason)`, `enqueued = received + waiting`.
//! - **Sleep**: the reader sleeps through [`crate::wake`]; producers signal once per burst, and only then.
//!
//! [`Step`] takes the improvements back one by one, so that each can be measured (`make bench BENCH=two_queue`).
//!
//! # Why a lock, not a lock-free list
//! A list needs a node per datagram, or room for one in every frame, and its exchange is one contended atomic per
//! **datagram**; a lock taken once per burst is two per burst. The memory accounting and the drop counts, which must
//! agree with the queue, come for free under the same lock.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use super::memory::{Account, Charged, Dealing, Denied, Gathered, LEAST_CHARGE, Pool};
use crate::primitive::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, lock, spin_loop};
use crate::wake::{self, Sleeper, Waker};

/// The largest limit, bytes: a charge is kept in 32 bits beside its item.
pub const MOST_BYTES: usize = 1 << 30;

/// How many looks at the producer queue a busy-polling reader takes between two looks at the clock.
///
/// Lower: reading the clock (some 25 ns) becomes what the reader does. Higher: the budget is overdrawn by that many
/// pauses, some microseconds.
const LOOKS_PER_CLOCK: u32 = 64;

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
    #[default]
    Bursts,
}

/// What a socket's queue is made with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Most bytes charged at a time, from [`LEAST_CHARGE`] to [`MOST_BYTES`] (the kernel's `SO_RCVBUF`). Lower: short
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
    #[error("cannot make a socket queue of {limit} bytes: give {LEAST_CHARGE} to {MOST_BYTES}")]
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
}

/// What happened to all items so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken into the producer queue.
    pub enqueued: u64,
    /// Left with the worker.
    pub refused: Refused,
}

/// An item out of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<T> {
    /// What a worker put in.
    pub item: T,
    /// How many the socket had refused when it took this one, modulo 2^32: the difference to the item before is what
    /// was lost between them.
    pub refused_before: u32,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    charge: u32,
    refused_before: u32,
}

/// What producers and reader share.
struct Shared<T> {
    limit: usize,
    step: Step,
    locked: CachePadded<Mutex<Locked<T>>>,
    hints: CachePadded<Hints>,
    refused: CachePadded<RefusedCells>,
}

struct Locked<T> {
    queue: VecDeque<Entry<T>>,
    account: Account,
    enqueued: u64,
    /// The reader is gone.
    closed: bool,
}

/// Copies of what is under the lock, for looking without taking it. Written under the lock only.
struct Hints {
    /// Length of the producer queue: zero tells the reader not to bother.
    waiting: AtomicUsize,
    /// Bytes charged: too many tell a worker not to bother.
    charged: AtomicUsize,
}

#[derive(Default)]
struct RefusedCells {
    socket_full: AtomicU64,
    pool_full: AtomicU64,
    closed: AtomicU64,
}

impl RefusedCells {
    fn read(&self) -> Refused {
        Refused {
            socket_full: self.socket_full.load(Ordering::Relaxed),
            pool_full: self.pool_full.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    fn add(&self, refused: Refused) {
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

/// Makes a socket's queue, whose bytes come out of `pool`. All memory is allocated here.
pub fn queue<T: Charged + Send>(config: Config, pool: &Pool) -> Result<(Producer<T>, Reader<T>), Error> {
    let Config { limit, step } = config;
    if !(LEAST_CHARGE..=MOST_BYTES).contains(&limit) {
        return Err(Error::Limit { limit });
    }
    let (waker, sleeper) = wake::pair().map_err(|cause| Error::Eventfd { cause })?;
    let dealing = if step == Step::OneQueue { Dealing::Exact } else { Dealing::Quanta };
    // No more items than this can be charged at a time, in both queues together.
    let most_items = limit / LEAST_CHARGE;
    let own_items = if step >= Step::TwoQueues { most_items } else { 0 };
    let shared = Arc::new(Shared {
        limit,
        step,
        locked: CachePadded::new(Mutex::new(Locked {
            queue: VecDeque::with_capacity(most_items),
            account: Account::new(limit, dealing, pool.clone()),
            enqueued: 0,
            closed: false,
        })),
        hints: CachePadded::new(Hints { waiting: AtomicUsize::new(0), charged: AtomicUsize::new(0) }),
        refused: CachePadded::default(),
    });
    let reader = Reader {
        shared: Arc::clone(&shared),
        own: VecDeque::with_capacity(own_items),
        gathered: Gathered::new(limit),
        sleeper,
    };
    Ok((Producer { shared, waker }, reader))
}

impl<T> Shared<T> {
    fn counts(&self) -> Counts {
        let enqueued = lock(&self.locked).enqueued;
        Counts { enqueued, refused: self.refused.read() }
    }

    /// Publishes the hints; the caller holds the lock.
    #[inline]
    fn publish(&self, locked: &Locked<T>) {
        // Relaxed: whoever acts on a hint takes the lock first, and the wake-up protocol brings its own fences.
        self.hints.charged.store(locked.account.charged(), Ordering::Relaxed);
        self.hints.waiting.store(locked.queue.len(), Ordering::Relaxed);
    }
}

/// A worker's side of a socket; each worker has a clone.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    waker: Waker,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waker: self.waker.clone() }
    }
}

impl<T: Charged + Send> Producer<T> {
    /// Moves `burst` into the socket, in order, and wakes its reader if it sleeps; says how many items went.
    ///
    /// What the socket refused stays in `burst`, in order, and is counted here by reason: the caller has only to
    /// give the frames back.
    pub fn enqueue_burst<const N: usize>(&self, burst: &mut ArrayVec<T, N>) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let shared = &*self.shared;
        // Full for anything, by a look without the lock: a flood that is going to be dropped must not take the lock from
        // the reader, who alone can make room. The hint may be old; then a few items more are dropped, or the lock
        // is taken in vain.
        if shared.hints.charged.load(Ordering::Relaxed) + LEAST_CHARGE > shared.limit {
            shared.refused.add(Refused { socket_full: burst.len() as u64, ..Refused::default() });
            return 0;
        }
        let mut refused = ArrayVec::<T, N>::new();
        let offered = burst.len();
        if shared.step >= Step::Bursts {
            self.take_in(burst.drain(..), &mut refused);
        } else {
            for item in burst.drain(..) {
                self.take_in(std::iter::once(item), &mut refused);
            }
        }
        let taken = offered - refused.len();
        if !refused.is_empty() {
            burst.extend(refused);
        }
        taken
    }

    /// Puts one item into the socket, or gives it back. Prefer bursts.
    pub fn enqueue(&self, item: T) -> Result<(), T> {
        let mut one = ArrayVec::<T, 1>::new();
        one.push(item);
        self.enqueue_burst(&mut one);
        one.pop().map_or(Ok(()), Err)
    }

    /// What happened so far; takes the lock.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Takes the lock once for all `items`.
    #[inline]
    fn take_in<const N: usize>(&self, items: impl Iterator<Item = T>, left: &mut ArrayVec<T, N>) {
        let shared = &*self.shared;
        let mut refused = Refused::default();
        {
            let mut guard = lock(&shared.locked);
            let locked = &mut *guard;
            // Under the lock, so that the numbers items carry never go back.
            let before = shared.refused.read().total();
            for item in items {
                let charge = item.charge().max(LEAST_CHARGE);
                let denied = if locked.closed {
                    &mut refused.closed
                } else {
                    match locked.account.charge(charge) {
                        Ok(()) => {
                            locked.queue.push_back(Entry {
                                item,
                                // Not above the limit, so it fits.
                                charge: charge as u32,
                                refused_before: (before + refused.total()) as u32,
                            });
                            locked.enqueued += 1;
                            continue;
                        }
                        Err(Denied::SocketFull) => &mut refused.socket_full,
                        Err(Denied::PoolFull) => &mut refused.pool_full,
                    }
                };
                *denied += 1;
                left.push(item);
            }
            shared.refused.add(refused);
            shared.publish(locked);
        }
        self.waker.wake();
    }
}

/// The reader's side of a socket. When it is dropped, what waits is dropped, and producers are refused.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    /// Older than all in the producer queue. Its buffer and that one change places at each splice.
    own: VecDeque<Entry<T>>,
    gathered: Gathered,
    sleeper: Sleeper,
}

impl<T: Charged + Send> Reader<T> {
    /// Moves items to the end of `into`, as many as wait and fit; says how many. Never sleeps.
    pub fn try_receive_burst<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>) -> usize {
        let wanted = into.remaining_capacity();
        let before = into.len();
        if self.shared.step >= Step::TwoQueues {
            self.receive_own(into, wanted);
        } else {
            while into.len() - before < wanted && self.receive_locked(into) {}
        }
        into.len() - before
    }

    /// As [`Reader::try_receive_burst`], but sleeps until there is something, for at most `timeout` if there is one.
    /// Zero items: the time is over, or this thread handled a Unix signal.
    pub fn receive_burst<const N: usize>(
        &mut self,
        into: &mut ArrayVec<Received<T>, N>,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let count = self.try_receive_burst(into);
            if count > 0 || into.is_full() {
                return Ok(count);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let waiting = &self.shared.hints.waiting;
            let woken = self.sleeper.sleep(left, || waiting.load(Ordering::Relaxed) > 0)?;
            if matches!(woken, wake::Woken::TimedOut | wake::Woken::Interrupted) {
                return Ok(self.try_receive_burst(into));
            }
        }
    }

    /// As [`Reader::try_receive_burst`], but looks again and again for up to `budget` (the kernel's `SO_BUSY_POLL`): no
    /// wake-up to wait for, for the price of the CPU.
    pub fn busy_receive_burst<const N: usize>(
        &mut self,
        into: &mut ArrayVec<Received<T>, N>,
        budget: Duration,
    ) -> usize {
        let mut end = None;
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                let count = self.try_receive_burst(into);
                if count > 0 || into.is_full() {
                    return count;
                }
                spin_loop();
            }
            let now = Instant::now();
            if now >= *end.get_or_insert(now + budget) {
                return 0;
            }
        }
    }

    /// What happened so far; takes the lock.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// How many items wait, in both queues.
    pub fn waiting(&self) -> usize {
        self.own.len() + self.shared.hints.waiting.load(Ordering::Relaxed)
    }

    /// From our own queue, after a splice if that is empty.
    #[inline]
    fn receive_own<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>, wanted: usize) {
        if self.own.is_empty() && !self.splice() {
            return;
        }
        let count = self.own.len().min(wanted);
        for entry in self.own.drain(..count) {
            self.gathered.add(entry.charge as usize);
            into.push(entry.received());
        }
        if self.gathered.is_enough() && !self.own.is_empty() {
            // A long queue of our own: producers shall not wait for its end. If it is empty, the next splice is near.
            let mut locked = lock(&self.shared.locked);
            locked.account.release(self.gathered.take());
            self.shared.publish(&locked);
        }
    }

    /// Takes the whole producer queue; releases what was gathered under the same lock. Is there anything to read now?
    fn splice(&mut self) -> bool {
        // A look without the lock. Relaxed: if it is old, the next look, or the one after the announcement, is not.
        let nothing_waits = self.shared.hints.waiting.load(Ordering::Relaxed) == 0;
        if nothing_waits && self.gathered.is_empty() {
            return false;
        }
        let mut locked = lock(&self.shared.locked);
        std::mem::swap(&mut locked.queue, &mut self.own);
        locked.account.release(self.gathered.take());
        self.shared.publish(&locked);
        !self.own.is_empty()
    }

    /// The steps with one queue: one item under the lock.
    fn receive_locked<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>) -> bool {
        let nothing_waits = self.shared.hints.waiting.load(Ordering::Relaxed) == 0;
        if nothing_waits && self.gathered.is_empty() {
            return false;
        }
        let mut locked = lock(&self.shared.locked);
        let entry = locked.queue.pop_front();
        if let Some(entry) = &entry {
            self.gathered.add(entry.charge as usize);
        }
        if self.shared.step == Step::OneQueue || self.gathered.is_enough() || locked.queue.is_empty() {
            locked.account.release(self.gathered.take());
        }
        self.shared.publish(&locked);
        drop(locked);
        entry.is_some_and(|entry| {
            into.push(entry.received());
            true
        })
    }
}

impl<T> Entry<T> {
    #[inline]
    fn received(self) -> Received<T> {
        Received { item: self.item, refused_before: self.refused_before }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut locked = lock(&self.shared.locked);
            locked.closed = true;
            let waiting = std::mem::take(&mut locked.queue);
            let charged = locked.account.charged();
            locked.account.release(charged);
            self.shared.publish(&locked);
            waiting
        };
        drop(waiting); // outside the lock: giving frames back may take long
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
