//! Tables that workers read without a lock or a reference count, and that are replaced while they are read.
//!
//! A worker looks up sockets, neighbours and routes for every packet; they change a few times a second at most. A
//! read lock or a reference count makes every reader write to one shared cache line, which costs more than the lookup
//! (FreeBSD's UDP path was measured to spend 61 % of its time there). Here a reader writes nothing shared while
//! nothing changes. The writer replaces the table with a new one and keeps the old one until no reader can still be
//! using it.
//!
//! ```text
//!   Domain   epoch ──────────────────────▶ +1 with every publish
//!   ├─ slots    [ 7 ] [ 6 ] [ idle ]       the epoch each reader has announced
//!   │            │      └─ "worker 1" may still use what was replaced in epoch 6 and later
//!   │            └──────── "worker 0" has seen epoch 7: everything it loads from now on is newer
//!   └─ retired  (6, old table)             freed when every slot is idle or above 6
//!   Table<T> ──▶ T                         an atomic pointer; publish() swaps it
//! ```
//! # Usage
//! ```
//! use udpath_stack::epoch::{Domain, Table};
//!
//! let domain = Domain::new(2, 64);
//! let table = Table::new(&domain, vec![53_u16]);
//! let mut reader = domain.register("worker 0")?;
//! for _turn in 0..3 {
//!     let guard = reader.pin(); // once per burst, in every iteration of the loop, with packets or without
//!     let ports = table.load(&guard); // once per burst is enough; all its packets see the same table
//!     assert!(ports.contains(&53)); // per packet: just the lookup
//! }
//! reader.idle(); // before anything that may block
//! table.publish(vec![53, 123])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! # Why it is correct
//! This is quiescent-state based reclamation: a reader's announcement is valid until its next [`Reader::pin`], also
//! between bursts, and `pin` renews it only if the epoch has moved. So in the steady state pinning is **one load and
//! a comparison**; the store and the full fence are paid once per publish, not once per burst.
//! - The writer swaps the pointer, then raises the epoch from `e` to `e + 1` and retires the old value under `e`. To
//!   reclaim it, the writer fences and reads all slots: the value is freed when each slot is idle or above `e`.
//! - A reader that announced an epoch above `e` read an epoch that was raised after the swap, and fenced: it can no
//!   longer load the old pointer. It has finished with what it loaded before: its announcement is a release store
//!   that the writer read with acquire.
//! - A reader whose announcement the writer does not see yet: the fences (one after the reader's store, one before
//!   the writer's scan of the slots) order one before the other. Either the writer sees the store after all, or the
//!   reader loads the new pointer.
//!
//! `tests/loom` checks this: no use after free, and a reader pinned before a publish keeps its value.
//!
//! # Bounded garbage
//! The price of this scheme: a reader that neither pins nor goes idle stops all reclamation. So retired values are
//! counted, and once there are as many as the domain allows, `publish` fails with an error that **names the reader**
//! and how many epochs it is behind; the current table stays in use. [`Domain::stalled`] reports it earlier. Guards
//! borrow their reader, so `idle` cannot be called while one is alive.
//!
//! # Why not crossbeam-epoch
//! It was measured against this (`make bench BENCH=epoch`): its pin costs an atomic exchange and a fence every time,
//! 2.4 ns against 0.5 ns here, and every 128th pin collects garbage on the packet path. Over a burst of 32 lookups
//! this module is 1.1 to 1.3 times as fast if the table is loaded once per burst; loaded anew for each packet, they
//! are equal (0.9 to 1.1 times), because this one checks at each load that guard and table belong together. The bound
//! matters more than the speed: crossbeam neither bounds garbage nor names the reader that holds it. It supports any
//! number of threads and lock-free writers, which the datapath does not need: workers are known, writers are rare.

mod sys;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicU64, Mutex, Ordering, fence, lock};

pub use sys::Table;

/// The slot value of an idle reader: it is behind no epoch.
const IDLE: u64 = u64::MAX;

/// How long [`Domain::flush`] sleeps between two checks.
///
/// Longer: shutdown takes longer than necessary. Shorter: it takes CPU time from the readers it waits for.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A set of readers and the tables they read.
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Shared>,
}

struct Shared {
    /// Incremented by writers only, under the lock.
    epoch: CachePadded<AtomicU64>,
    /// One per reader, written by that reader only, each on its own cache line.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// The maximum number of values that may wait to be freed.
    bound: usize,
    control: Mutex<Control>,
}

/// State shared by writers and the registry; never locked on the read path.
struct Control {
    /// By slot; `None` if the slot is free.
    names: Box<[Option<String>]>,
    /// In the order of their epochs.
    retired: VecDeque<sys::Retired>,
}

impl Domain {
    /// A domain for up to `readers` concurrent readers, in which up to `bound` replaced values may wait for them.
    ///
    /// `bound` is at least 1. Lower: a reader that takes long over one burst makes writers fail. Higher: a reader
    /// that hangs costs more memory before it is reported. A few dozen is a good start.
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

    /// Adds a reader, idle. `name` identifies it in errors, for example `worker 3`. Dropping the reader frees its
    /// slot.
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

    /// Frees what no reader can see any more; returns how many values still wait.
    ///
    /// Every publish does this too; call it now and then so that what the last publish replaced is freed as well.
    pub fn collect(&self) -> usize {
        let (freed, waiting) = {
            let mut control = lock(&self.shared.control);
            (control.reclaim(&self.shared.slots).freed, control.retired.len())
        };
        drop(freed); // outside the lock: a drop may take long, and may publish
        waiting
    }

    /// Waits until everything replaced so far has been freed, for at most `timeout`. Call it at shutdown.
    pub fn flush(&self, timeout: Duration) -> Result<(), Stalled> {
        let end = Instant::now() + timeout;
        while self.collect() > 0 {
            if Instant::now() >= end {
                // None: the last reader moved on between the two checks.
                return self.stalled().into_iter().next().map_or(Ok(()), Err);
            }
            std::thread::sleep(FLUSH_POLL_INTERVAL);
        }
        Ok(())
    }

    /// The readers that keep replaced values from being freed now, the one furthest behind first. A reader that is
    /// working through its bursts appears occasionally, one or two epochs behind; one that stays in the list is
    /// stalled.
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

/// The result of one round of reclamation.
struct Reclaimed {
    /// To be dropped outside the lock.
    freed: Vec<sys::Retired>,
    /// The slot and announced epoch of the reader furthest behind, if any is not idle.
    last: Option<(usize, u64)>,
}

impl Control {
    /// Removes from `retired` what no reader can see any more.
    fn reclaim(&mut self, slots: &[CachePadded<AtomicU64>]) -> Reclaimed {
        if self.retired.is_empty() {
            return Reclaimed { freed: Vec::new(), last: None };
        }
        // Orders the swaps of all retired values (made earlier, under this lock) before the loads of the slots; pairs
        // with the fence in `Reader::announce`.
        fence(Ordering::SeqCst);
        let last = (slots.iter().enumerate())
            // Acquire: a reader that moved on has finished with what it loaded before.
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

/// A thread's registration as a reader. It may be moved to another thread while it is not pinned.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: usize,
    /// The value of our slot.
    announced: u64,
}

impl Reader {
    /// Begins a burst: values loaded under the guard stay valid while the guard lives.
    ///
    /// Call it in **every** iteration of the loop, also without packets: the announcement of the last iteration stays
    /// in effect until then (or until [`Reader::idle`]) and keeps what has been replaced since from being freed.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        // Relaxed: if the epoch is new, the fence in `announce` makes visible what was published before it.
        let epoch = self.domain.shared.epoch.load(Ordering::Relaxed);
        if epoch != self.announced {
            self.announce(epoch);
        }
        Guard { shared: &self.domain.shared }
    }

    /// Withdraws the announcement. Call it before anything that may block. The next [`Reader::pin`] announces again.
    #[inline]
    pub fn idle(&mut self) {
        self.announced = IDLE;
        // Release: all our reads happened before.
        self.own_slot().store(IDLE, Ordering::Release);
    }

    /// The name it was registered with.
    pub fn name(&self) -> String {
        lock(&self.domain.shared.control).names[self.slot].clone().unwrap_or_default()
    }

    #[cold]
    fn announce(&mut self, epoch: u64) {
        self.announced = epoch;
        // Release: our reads under the previous announcement happened before.
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

/// A burst in progress: references loaded with it are valid while it lives.
pub struct Guard<'r> {
    /// The reader's domain; the borrow keeps the reader from going idle.
    shared: &'r Shared,
}

impl Guard<'_> {
    #[inline]
    fn is_of(&self, domain: &Domain) -> bool {
        std::ptr::eq(self.shared, &raw const *domain.shared)
    }
}

impl<T: Send + Sync + 'static> Table<T> {
    /// Replaces the value and retires the old one. Readers see the new value from their next load on.
    ///
    /// Writers are serialised; they never wait for readers. If as many replaced values as the domain allows still
    /// wait for a reader, nothing is replaced, and the error returns `value` and names that reader.
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
        drop(freed); // outside the lock: a drop may take long, and may publish
        Ok(())
    }
}

/// The domain has no free slot for another reader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot register reader '{name}': all {readers} slots of the domain are in use; create the domain with more"
)]
pub struct TooManyReaders {
    /// The reader that was to be registered.
    pub name: String,
    /// Readers the domain has room for.
    pub readers: usize,
}

/// A reader that keeps replaced values from being freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "reader '{reader}' is {behind} epochs behind and keeps {holds} replaced values from being freed; it must pin in \
     every iteration of its loop, and go idle before it blocks"
)]
pub struct Stalled {
    /// Its name.
    pub reader: String,
    /// Publishes since it last announced an epoch.
    pub behind: u64,
    /// Replaced values it may still be using.
    pub holds: usize,
}

/// A value that was not published because a reader stalls reclamation.
pub struct PublishError<T> {
    /// The value that was to be published.
    pub value: T,
    /// The reader that stalls reclamation.
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
