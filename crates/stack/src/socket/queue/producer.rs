//! The workers' side.

use arrayvec::ArrayVec;

use super::super::memory::{Charged, Denied, MIN_CHARGE};
use super::counts::{Counts, Refused};
use super::{Locked, Received, Shared, Step};
use crate::primitive::{Arc, lock};
use crate::wake::Waker;

/// A worker's side of a socket; each worker has a clone.
pub struct Producer<T> {
    pub(super) shared: Arc<Shared<T>>,
    pub(super) waker: Waker,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waker: self.waker.clone() }
    }
}

impl<T: Charged + Send> Producer<T> {
    /// Enqueues `burst` into the socket, in order, and wakes its reader if it sleeps; returns how many items were
    /// enqueued.
    ///
    /// What the socket refused stays in `burst`, in order, and is counted here by reason: the caller only has to
    /// recycle the frames.
    pub fn enqueue_burst<const N: usize>(&self, burst: &mut ArrayVec<T, N>) -> usize {
        let offered = burst.len();
        offered - self.offer_burst(burst).total() as usize
    }

    /// As [`Producer::enqueue_burst`], but returns the refusals by reason.
    pub fn offer_burst<const N: usize>(&self, burst: &mut ArrayVec<T, N>) -> Refused {
        if burst.is_empty() {
            return Refused::default();
        }
        let shared = &*self.shared;
        // Known to be full without taking the lock: a flood that is going to be dropped must not take the lock from
        // the reader, which alone can make room. If the hint is stale, a few more items are dropped, or the lock is
        // taken in vain.
        if shared.looks_full() {
            let refused = Refused { socket_full: burst.len() as u64, ..Refused::default() };
            shared.refused.add(refused);
            return refused;
        }
        let mut left = ArrayVec::<T, N>::new();
        let mut refused = Refused::default();
        if shared.step >= Step::Bursts {
            refused.add(self.take_in(burst.drain(..), &mut left));
        } else {
            for item in burst.drain(..) {
                refused.add(self.take_in(std::iter::once(item), &mut left));
            }
        }
        if !left.is_empty() {
            burst.extend(left);
        }
        refused
    }

    /// Enqueues one item, or returns it. Prefer bursts.
    pub fn enqueue(&self, item: T) -> Result<(), T> {
        let mut one = ArrayVec::<T, 1>::new();
        one.push(item);
        self.enqueue_burst(&mut one);
        one.pop().map_or(Ok(()), Err)
    }

    /// The counts so far; takes the lock.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Enqueues all `items` under one lock.
    #[inline]
    fn take_in<const N: usize>(&self, items: impl Iterator<Item = T>, left: &mut ArrayVec<T, N>) -> Refused {
        let shared = &*self.shared;
        let mut refused = Refused::default();
        {
            let _outer = shared.outer();
            let mut guard = lock(&shared.locked);
            let locked = &mut *guard;
            // Under the lock, so that the sequence numbers in items never go back.
            let before = shared.refused.read().total();
            shared.settle(locked);
            let Locked { queue, ring, account, enqueued, closed, .. } = locked;
            let mut taken = items.filter_map(|item| {
                let charge = item.charge().max(MIN_CHARGE);
                let charged = if *closed { None } else { Some(account.charge(charge)) };
                match charged {
                    Some(Ok(())) => {
                        *enqueued += 1;
                        let refused_before = (before + refused.total()) as u32;
                        // At most the limit, so the charge fits.
                        return Some(Received { item, refused_before, charge: charge as u32 });
                    }
                    Some(Err(Denied::SocketFull)) => refused.socket_full += 1,
                    Some(Err(Denied::PoolFull)) => refused.pool_full += 1,
                    None => refused.closed += 1,
                }
                left.push(item);
                None
            });
            if shared.step >= Step::Ring {
                ring.push_from(&mut taken);
                // A full ring takes no more; then the account is full as well, and denies the rest.
                let beyond = taken.count();
                debug_assert_eq!(beyond, 0, "the ring has room for everything the account admits");
            } else {
                queue.extend(taken);
            }
            shared.refused.add(refused);
            shared.publish(locked);
        }
        self.waker.wake();
        refused
    }
}
