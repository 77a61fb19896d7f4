//! The reader's side.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use super::super::memory::{Charged, Gathered};
use super::counts::Counts;
use super::{Received, Shared, Step};
use crate::primitive::{Arc, Ordering, lock, spin_loop};
use crate::ring;
use crate::wake::{self, Announced, Sleeper};

/// How often a busy-polling reader polls the producer queue between two reads of the clock.
///
/// Lower: most of the time goes to reading the clock (tens of nanoseconds). Higher: the budget is exceeded by that
/// many polls and their pauses, some microseconds.
const POLLS_PER_CLOCK_READ: u32 = 16;

/// Pause instructions between two polls.
///
/// Lower: the reader takes the cache lines of the queue's end away from the worker that is writing there; without a
/// pause a flood delivers a third less. Higher: a datagram is seen later, by some 25 ns for each.
const PAUSES_PER_POLL: u32 = 16;

/// How often in a row a polling reader finds the queue empty before it settles with the pool itself.
///
/// Lower: it takes the workers' lock in every gap between two bursts. Higher: an idle socket whose reader polls keeps
/// its memory from others for longer. A reader that goes to sleep settles at once.
const EMPTY_POLLS_BEFORE_SETTLING: u32 = 64;

/// The reader's side of a socket. Dropping it drops the items that wait, and producers are refused from then on.
pub struct Reader<T> {
    pub(super) shared: Arc<Shared<T>>,
    /// In the steps before the ring: older than everything in the producer queue, with which it is swapped at each
    /// splice.
    pub(super) own: VecDeque<Received<T>>,
    pub(super) consumer: ring::Consumer<Received<T>>,
    pub(super) gathered: Gathered,
    /// The value of `Shared::released`.
    pub(super) released: usize,
    /// Whether bytes were released without the lock since it was last held; a worker may have settled them in the
    /// meantime.
    pub(super) unsettled: bool,
    /// How often in a row the ring was empty while something was unsettled.
    pub(super) empty_polls: u32,
    pub(super) sleeper: Sleeper,
}

impl<T: Charged + Send> Reader<T> {
    /// Appends items to `into`, as many as wait and fit; returns how many. Never sleeps.
    pub fn try_receive_burst<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>) -> usize {
        let wanted = into.remaining_capacity();
        let before = into.len();
        if self.shared.step >= Step::Ring {
            self.receive_ring(into);
        } else if self.shared.step >= Step::TwoQueues {
            self.receive_own(into, wanted);
        } else {
            while into.len() - before < wanted && self.receive_locked(into) {}
        }
        into.len() - before
    }

    /// As [`Reader::try_receive_burst`], but sleeps until an item arrives, for at most `timeout` if given. Zero
    /// items: the timeout expired, or this thread handled a Unix signal.
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
            if self.unsettled {
                self.settle();
            }
            let (ring, hint) = (&self.consumer, &self.shared.hints.waiting);
            let woken = self.sleeper.sleep(left, || !ring.is_empty() || hint.load(Ordering::Relaxed) > 0)?;
            if matches!(woken, wake::Woken::TimedOut | wake::Woken::Interrupted) {
                return Ok(self.try_receive_burst(into));
            }
        }
    }

    /// As [`Reader::try_receive_burst`], but busy-polls for up to `budget` (the kernel's `SO_BUSY_POLL`): no wake-up
    /// latency, at the cost of CPU time.
    pub fn busy_receive_burst<const N: usize>(
        &mut self,
        into: &mut ArrayVec<Received<T>, N>,
        budget: Duration,
    ) -> usize {
        let mut end = None;
        loop {
            for _ in 0..POLLS_PER_CLOCK_READ {
                let count = self.try_receive_burst(into);
                if count > 0 || into.is_full() {
                    return count;
                }
                for _ in 0..PAUSES_PER_POLL {
                    spin_loop();
                }
            }
            let now = Instant::now();
            if now >= *end.get_or_insert(now + budget) {
                return 0;
            }
        }
    }

    /// Announces to all producers that the reader is about to sleep, for a wait together with other descriptors;
    /// `None` if something waits here already. See [`crate::wake::Sleeper::announce`].
    pub fn announce(&mut self) -> Option<Announced<'_>> {
        if self.unsettled {
            self.settle();
        }
        let (ring, own, hint) = (&self.consumer, &self.own, &self.shared.hints.waiting);
        let announced = self.sleeper.announce();
        let quiet = ring.is_empty() && own.is_empty() && hint.load(Ordering::Relaxed) == 0;
        quiet.then_some(announced)
    }

    /// Refuses everything from here on. What waits already can still be received.
    pub fn close(&mut self) {
        lock(&self.shared.locked).closed = true;
    }

    /// The counts so far; takes the lock.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Items waiting, in both queues.
    pub fn waiting(&self) -> usize {
        self.consumer.len() + self.own.len() + self.shared.hints.waiting.load(Ordering::Relaxed)
    }

    /// From the ring: the part already seen is the reader's own queue, loading the index is the splice.
    #[inline]
    fn receive_ring<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>) {
        let before = into.len();
        if self.consumer.pop_burst(into) == 0 {
            if self.unsettled || !self.gathered.is_empty() {
                self.ran_empty();
            }
            return;
        }
        self.empty_polls = 0;
        self.gathered.add(into[before..].iter().map(|received| received.charge as usize).sum());
        if self.gathered.is_enough() {
            self.shared.release(&mut self.released, &mut self.gathered);
            self.unsettled = true;
        }
    }

    /// Nothing to read: releases everything accumulated. It is settled only if the queue stays empty; otherwise a
    /// reader that is faster than the workers would take their lock for every burst.
    #[cold]
    fn ran_empty(&mut self) {
        if !self.gathered.is_empty() {
            self.shared.release(&mut self.released, &mut self.gathered);
            self.unsettled = true;
        }
        self.empty_polls += 1;
        if self.empty_polls >= EMPTY_POLLS_BEFORE_SETTLING {
            self.settle();
        }
    }

    /// Credits what was released to the account and the pool, under the lock.
    fn settle(&mut self) {
        (self.unsettled, self.empty_polls) = (false, 0);
        let mut locked = lock(&self.shared.locked);
        self.shared.settle(&mut locked);
        self.shared.publish(&locked);
    }

    /// From the reader's own queue, after a splice if that is empty.
    #[inline]
    fn receive_own<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>, wanted: usize) {
        if self.own.is_empty() && !self.splice() {
            return;
        }
        let count = self.own.len().min(wanted);
        for entry in self.own.drain(..count) {
            self.gathered.add(entry.charge as usize);
            into.push(entry);
        }
        if self.gathered.is_enough() {
            self.shared.release(&mut self.released, &mut self.gathered);
            self.unsettled = true;
        }
    }

    /// Whether there is a reason to take the lock: items, or bytes that no worker may come to settle.
    #[inline]
    fn has_business(&self) -> bool {
        // Without the lock. Relaxed: if the value is stale, the next poll, or the check after the announcement, sees
        // the new one.
        self.shared.hints.waiting.load(Ordering::Relaxed) > 0 || self.unsettled || !self.gathered.is_empty()
    }

    /// Takes the whole producer queue and settles everything released. Returns whether there is anything to read now.
    fn splice(&mut self) -> bool {
        if !self.has_business() {
            return false;
        }
        self.shared.release(&mut self.released, &mut self.gathered);
        self.unsettled = false;
        let mut locked = lock(&self.shared.locked);
        std::mem::swap(&mut locked.queue, &mut self.own);
        self.shared.settle(&mut locked);
        self.shared.publish(&locked);
        !self.own.is_empty()
    }

    /// With one queue: one item under the lock. Its bytes are released there, under the socket's lock, or in bulk.
    fn receive_locked<const N: usize>(&mut self, into: &mut ArrayVec<Received<T>, N>) -> bool {
        if !self.has_business() {
            return false;
        }
        let shared = &*self.shared;
        let mut locked = lock(&shared.locked);
        let entry = locked.queue.pop_front();
        self.gathered.add(entry.as_ref().map_or(0, |entry| entry.charge as usize));
        let mut socket = None;
        if shared.step == Step::SocketLock {
            shared.publish(&locked);
            // The socket's lock comes first: a worker that has it may be waiting for the queue's.
            drop(locked);
            socket = Some(lock(&shared.outer));
            locked = lock(&shared.locked);
        }
        if shared.step < Step::BulkRelease || entry.is_none() {
            shared.release(&mut self.released, &mut self.gathered);
            shared.settle(&mut locked);
            self.unsettled = false;
        } else if self.gathered.is_enough() {
            shared.release(&mut self.released, &mut self.gathered);
            self.unsettled = true;
        }
        shared.publish(&locked);
        drop((locked, socket));
        entry.is_some_and(|entry| {
            into.push(entry);
            true
        })
    }
}

/// Readable when woken. Wait on it only while an [announcement](Reader::announce) is in effect.
impl<T> AsFd for Reader<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut locked = lock(&self.shared.locked);
            locked.closed = true;
            let waiting = std::mem::take(&mut locked.queue);
            self.shared.settle(&mut locked);
            // Everything waiting in either queue, accumulated, or reserved in advance: a table may hold a producer
            // for a long time.
            locked.account.close();
            self.shared.publish(&locked);
            waiting
        };
        // Outside the lock: recycling frames may take long. From here on no worker puts anything into the ring.
        drop(waiting);
        while self.consumer.pop().is_some() {}
    }
}
