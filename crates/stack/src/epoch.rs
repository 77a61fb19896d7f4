//! Tables that workers read without a lock or a reference count, and that are replaced under them.
//!
//! A worker looks up sockets, neighbours and routes for every packet; they change a few times a second at most. A
//! read lock or a reference count makes every reader write to one shared cache line, which costs more than the lookup
//! (seed: FreeBSD's UDP path spent 61 % of its time there). Here a reader writes to nothing shared while nothing
//! changes. The writer replaces the table by another and keeps the old one until no reader can still look at it.
//!
//! ```text
//!   Domain   epoch ──────────────────────▶ +1 with every publish
//!   ├─ slots    [ 7 ] [ 6 ] [ idle ]       the epoch each reader has announced
//!   │            │      └─ "worker 1" may still look at what was replaced in epoch 6 and later
//!   │            └──────── "worker 0" has seen epoch 7: whatever it reads from now on is newer
//!   └─ retired  (6, old table)             freed when every slot is idle or above 6
//!   Table<T> ──▶ T                         an atomic pointer; publish() swaps it
//! ```
//! # How a reader uses it
//! ```
//! use udpath_stack::epoch::{Domain, Table};
//!
//! let domain = Domain::new(2, 64);
//! let table = Table::new(&domain, vec![53_u16]);
//! let mut reader = domain.register("worker 0")?;
//! for _turn in 0..3 {
//!     let guard = reader.pin(); // once per burst, in every turn of the loop, with packets or without
//!     let ports = table.load(&guard); // once per burst is enough, and all its packets see the same table
//!     assert!(ports.contains(&53)); // per packet: nothing but the lookup
//! }
//! reader.idle(); // before anything that may block
//! table.publish(vec![53, 123])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! # Why it is right
//! This is quiescent-state reclamation: a reader's announcement stands until its next [`Reader::pin`], also between
//! bursts, and `pin` renews it only if the epoch moved. So in steady state pinning is **one load and a comparison**; the
//! store and the full fence are paid once per publish, not once per burst.
//! - The writer swaps the pointer, then raises the epoch from `e` to `e + 1` and retires the old value under `e`. To
//!   reclaim it fences and reads all slots: the value goes when each slot is idle or above `e`.
//! - A reader that announced above `e` read an epoch that was raised after the swap, and fenced: it cannot load the
//!   old pointer any more. What it loaded before, it is done with: its announcement is a release store that the
//!   writer read with acquire.
//! - A reader whose announcement the writer does not see yet: the fences (one after the reader's store, one before the
//!   writer's look at the slots) order one before the other. Either the writer sees the store after all, or the reader
//!   loads the new pointer.
//!
//! `tests/loom.rs` walks through it: no use after free, and a reader pinned before a publish keeps what it sees.
//!
//! # Bounded garbage
//! A reader that neither pins nor goes idle stops all reclamation: that is the price. So retired values are
//! counted, and when there are as many as the domain allows, `publish` refuses with an error that **names the reader**
//! and says how many epochs it is behind; the table in use stays in use. [`Domain::stalled`] tells before it comes to
//! that. Guards are bound to their reader by lifetime: `idle` cannot be called while one is alive.
//!
//! # Why not crossbeam-epoch
//! It was measured beside this (`make bench BENCH=epoch`): its pinning takes an exchange and a fence every time, 2.4 ns
//! against 0.5 ns here, and every 128th pin collects garbage inside the packet path. Over a burst of 32 lookups that is
//! 1.1 to 1.3 x in this one's favour if the table is loaded once per burst; loaded anew for each packet they are level
//! (0.9 to 1.1 x), since this one checks at each load that guard and table belong together. More than by speed it wins
//! by its bound: crossbeam neither bounds garbage nor names who holds it. What it has and this lacks - any number of
//! threads, lock-free writers - the datapath does not need: workers are known, writers are rare.

mod sys;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicU64, Mutex, Ordering, fence, lock};

pub use sys::Table;

/// What the slot of a reader says that looks at nothing: it is behind no epoch.
const IDLE: u64 = u64::MAX;

/// How long [`Domain::flush`] sleeps between two looks.
///
/// Longer: shutting down takes longer than it must. Shorter: it takes CPU from the readers it waits for.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A set of readers and the tables they read.
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Shared>,
}

struct Shared {
    /// Raised by writers only, under the lock.
    epoch: CachePadded<AtomicU64>,
    /// One per reader, each written by that reader alone, each on a cache line of its own.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Most values that may wait to be freed.
    bound: usize,
    control: Mutex<Control>,
}

/// What writers and the registry share; never taken by a reader that reads.
struct Control {
    /// By slot; `None` is free.
    names: Box<[Option<String>]>,
    /// In the order of their epochs.
    retired: VecDeque<sys::Retired>,
}

impl Domain {
    /// A domain for up to `readers` readers at a time, in which up to `bound` replaced values may wait for them.
    ///
    /// `bound`, at least 1: lower, a reader that takes long over one burst makes writers fail; higher, one that
    /// hangs costs more memory before anybody is told. A few dozen is a good start.
    pub fn new(readers: usize, bound: usize) -> Self {
        let bound = bound.max(1);
        Self {
            shared: Arc::new(Shared {
                epoch: CachePadded::new(AtomicU64::new(0)),
                slots: (0..readers).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
                bound,
                control: Mutex::new(Control {
                    names: vec![None; readers].into(),
                    retired: VecDeque::with_capacity(bound),
                }),
            }),
        }
    }

    /// Adds a reader, idle. `name` is what errors call it, such as `worker 3`. Its place is free again when it is dropped.
    pub fn register(&self, name: impl Into<String>) -> Result<Reader, TooManyReaders> {
        let name = name.into();
        let mut control = lock(&self.shared.control);
        match control.names.iter().position(Option::is_none) {
            Some(slot) => {
                control.names[slot] = Some(name);
                Ok(Reader { domain: self.clone(), slot, announced: IDLE })
            }
            None => Err(TooManyReaders { name, readers: control.names.len() }),
        }
    }

    /// Frees what no reader can see any more; says how many values still wait.
    ///
    /// Every publish does so too; call this now and then so that the last one's leavings go as well.
    pub fn collect(&self) -> usize {
        let (freed, waiting) = {
            let mut control = lock(&self.shared.control);
            (control.reclaim(&self.shared.slots).freed, control.retired.len())
        };
        drop(freed); // outside the lock: it may take long, and it may publish
        waiting
    }

    /// Waits until all that was replaced so far has been freed, for at most `timeout`. To be called when shutting down.
    pub fn flush(&self, timeout: Duration) -> Result<(), Stalled> {
        let end = Instant::now() + timeout;
        while self.collect() > 0 {
            if Instant::now() >= end {
                // None: the last reader moved on between the two looks.
                return self.stalled().into_iter().next().map_or(Ok(()), Err);
            }
            std::thread::sleep(FLUSH_POLL_INTERVAL);
        }
        Ok(())
    }

    /// The readers for which replaced values are kept now, the one furthest behind first. One that works through its
    /// bursts shows up at times, one or two epochs behind; one that stays is stalled.
    pub fn stalled(&self) -> Vec<Stalled> {
        let control = lock(&self.shared.control);
        let epoch = self.shared.epoch.load(Ordering::Relaxed);
        let mut stalled: Vec<_> = (self.shared.slots.iter().enumerate())
            .filter_map(|(slot, announced)| {
                let announced = announced.load(Ordering::Relaxed);
                let holds = control.retired.iter().filter(|retired| retired.epoch() >= announced).count();
                (holds > 0).then(|| control.stalled_reader(slot, epoch - announced, holds))
            })
            .collect();
        stalled.sort_by_key(|stalled| std::cmp::Reverse(stalled.behind));
        stalled
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = lock(&self.shared.control);
        f.debug_struct("Domain")
            .field("epoch", &self.shared.epoch.load(Ordering::Relaxed))
            .field("readers", &control.names)
            .field("waiting", &control.retired.len())
            .finish()
    }
}

/// What one round of reclamation found.
struct Reclaimed {
    /// To be dropped outside the lock.
    freed: Vec<sys::Retired>,
    /// The reader furthest behind, if any announces an epoch: slot and announced epoch.
    last: Option<(usize, u64)>,
}

impl Control {
    /// Takes out of `retired` what no reader can see any more.
    fn reclaim(&mut self, slots: &[CachePadded<AtomicU64>]) -> Reclaimed {
        if self.retired.is_empty() {
            return Reclaimed { freed: Vec::new(), last: None };
        }
        // Orders the swaps of all retired values (made before, under this lock) before the looks at the slots; pairs
        // with the fence in `Reader::announce`.
        fence(Ordering::SeqCst);
        let last = (slots.iter().enumerate())
            // Acquire: a reader that moved on is done with what it read before.
            .map(|(slot, announced)| (slot, announced.load(Ordering::Acquire)))
            .min_by_key(|(_, announced)| *announced)
            .filter(|(_, announced)| *announced != IDLE);
        let oldest_seen = last.map_or(IDLE, |(_, announced)| announced);
        let free = self.retired.partition_point(|retired| retired.epoch() < oldest_seen);
        Reclaimed { freed: self.retired.drain(..free).collect(), last }
    }

    fn stalled_reader(&self, slot: usize, behind: u64, holds: usize) -> Stalled {
        Stalled { reader: self.names[slot].clone().unwrap_or_default(), behind, holds }
    }
}

/// One thread's right to read. It may be moved to another thread while it is not pinned.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: usize,
    /// What our slot says.
    announced: u64,
}

impl Reader {
    /// Begins a burst: what is loaded under the guard stays while the guard lives.
    ///
    /// To be called in **every** turn of the loop, also without packets: the announcement of the last turn stands until
    /// then (or until [`Reader::idle`]) and keeps what was replaced since from being freed.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        // Relaxed: if it is a new epoch, the fence in `announce` makes what was published before it visible.
        let epoch = self.domain.shared.epoch.load(Ordering::Relaxed);
        if epoch != self.announced {
            self.announce(epoch);
        }
        Guard { shared: &self.domain.shared }
    }

    /// Withdraws the announcement, before anything that may block. The next [`Reader::pin`] announces again.
    #[inline]
    pub fn idle(&mut self) {
        self.announced = IDLE;
        // Release: all we read was read before.
        self.own_slot().store(IDLE, Ordering::Release);
    }

    /// The name it was registered by.
    pub fn name(&self) -> String {
        lock(&self.domain.shared.control).names[self.slot].clone().unwrap_or_default()
    }

    #[cold]
    fn announce(&mut self, epoch: u64) {
        self.announced = epoch;
        // Release: what we read under the previous announcement was read before.
        self.own_slot().store(epoch, Ordering::Release);
        // Orders the announcement before the loads of pointers; pairs with the fence in `Control::reclaim`. It also
        // orders these loads after that of `epoch`, which pairs with the release store in `publish`.
        fence(Ordering::SeqCst);
    }

    fn own_slot(&self) -> &AtomicU64 {
        &self.domain.shared.slots[self.slot]
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.idle();
        lock(&self.domain.shared.control).names[self.slot] = None;
    }
}

/// A burst under way: references loaded with it are valid while it lives.
pub struct Guard<'r> {
    /// The reader's domain; borrowing it from the reader is what keeps the reader from going idle.
    shared: &'r Shared,
}

impl Guard<'_> {
    #[inline]
    fn is_of(&self, domain: &Domain) -> bool {
        std::ptr::eq(self.shared, &raw const *domain.shared)
    }
}

impl<T: Send + Sync + 'static> Table<T> {
    /// Replaces the value, and retires the old one. Readers see it from their next load on.
    ///
    /// Writers take turns; they never wait for readers. If as many replaced values as the domain allows still wait for
    /// a reader, nothing is replaced, and the error gives `value` back and names that reader.
    pub fn publish(&self, value: T) -> Result<(), PublishError<T>> {
        let shared = &self.domain().shared;
        let value = Box::new(value);
        let freed = {
            let mut control = lock(&shared.control);
            let reclaimed = control.reclaim(&shared.slots);
            let epoch = shared.epoch.load(Ordering::Relaxed);
            let waiting = control.retired.len();
            if let (true, Some((slot, announced))) = (waiting >= shared.bound, reclaimed.last) {
                let holds = control.retired.iter().filter(|retired| retired.epoch() >= announced).count();
                let stalled = control.stalled_reader(slot, epoch - announced, holds);
                return Err(PublishError { value: *value, stalled });
            }
            control.retired.push_back(self.replace(value, epoch));
            // Release: a reader that sees this epoch sees the new pointer.
            shared.epoch.store(epoch + 1, Ordering::Release);
            reclaimed.freed
        };
        drop(freed); // outside the lock: it may take long, and it may publish
        Ok(())
    }
}

/// A domain has no room for another reader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot register reader '{name}': the domain was made for {readers}, and all are registered; make it for more"
)]
pub struct TooManyReaders {
    /// Who wanted to register.
    pub name: String,
    /// How many the domain was made for.
    pub readers: usize,
}

/// A reader for which replaced values are kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "reader '{reader}' is {behind} epochs behind and keeps {holds} replaced values from being freed; it must pin in \
     every turn of its loop, and go idle before it blocks"
)]
pub struct Stalled {
    /// Its name.
    pub reader: String,
    /// How many times something was published since it announced an epoch for the last time.
    pub behind: u64,
    /// How many replaced values it may still look at.
    pub holds: usize,
}

/// A value that was not published, since a reader stalls reclamation.
pub struct PublishError<T> {
    /// What was to be published.
    pub value: T,
    /// Who stands in the way.
    pub stalled: Stalled,
}

impl<T> fmt::Debug for PublishError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishError").field("stalled", &self.stalled).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PublishError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot publish: {}", self.stalled)
    }
}

impl<T> std::error::Error for PublishError<T> {}

#[cfg(all(test, not(loom)))]
mod tests;
