//! The ring's slots, and the access of the two ends to them.
#![allow(unsafe_code, reason = "slot ownership is transferred by publishing indices")]

use std::mem::MaybeUninit;

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// State shared by both ends.
///
/// Invariant: the slots of the indices `head..tail` are initialised and belong to the consumer, all others are free
/// and belong to the producer; `tail - head` is at most the number of slots, which is a power of two.
struct Shared<T> {
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: only the side that owns a slot accesses it, and ownership changes with a release store that the other side
// loads with acquire; so two threads never access a slot at the same time. Items move between threads: `T: Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: both ends are gone (`&mut self`, and the last decrement of the reference count orders their
            // accesses before this), and the slots of head..tail are initialised.
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

pub(super) fn ends<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    debug_assert!(capacity.is_power_of_two());
    let shared = Arc::new(Shared {
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (
        Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 },
        Consumer { shared, head: 0, tail_seen: 0 },
    )
}

/// The producing end. Used by one thread at a time; it can be moved to another.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// The next index to write: the value of `shared.tail` after this burst is published.
    tail: usize,
    /// The consumer's index when last loaded; it may have advanced since, never gone back.
    head_seen: usize,
}

impl<T: Send> Producer<T> {
    /// The ring's capacity, items.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// How many of `wanted` items fit now. Reloads the consumer's index only if the cached one is not enough.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        let mut free = self.capacity() - self.tail.wrapping_sub(self.head_seen);
        if free < wanted {
            // Acquire: the consumer has read the items in the slots before this index.
            self.head_seen = self.shared.head.load(Ordering::Acquire);
            free = self.capacity() - self.tail.wrapping_sub(self.head_seen);
        }
        free.min(wanted)
    }

    /// Takes items from `items` while there is room, publishes them together, and returns how many.
    ///
    /// The iterator is not advanced past what fits: whatever it still yields afterwards was not taken. If it panics,
    /// nothing of this burst is published, and the items taken so far are leaked.
    #[inline]
    pub fn push_from(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        let start = self.tail;
        let mut tail = start;
        loop {
            if tail.wrapping_sub(self.head_seen) == self.capacity() {
                // Acquire: as in `room`.
                self.head_seen = self.shared.head.load(Ordering::Acquire);
                if tail.wrapping_sub(self.head_seen) == self.capacity() {
                    break;
                }
            }
            let Some(item) = items.next() else { break };
            self.shared.slot(tail).with_mut(|slot| {
                // SAFETY: this index is less than one capacity ahead of the consumer's, so the slot is free, and it
                // stays ours until `tail` is published below.
                unsafe { (*slot).write(item) };
            });
            tail = tail.wrapping_add(1);
        }
        if tail != start {
            self.tail = tail;
            // Release: the items are written before the consumer can see the index.
            self.shared.tail.store(tail, Ordering::Release);
        }
        tail.wrapping_sub(start)
    }
}

/// The consuming end. Used by one thread at a time; it can be moved to another.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// The next index to read: the value of `shared.head` after this burst is published.
    head: usize,
    /// The producer's index when last loaded; it may have advanced since, never gone back.
    tail_seen: usize,
}

impl<T> Consumer<T> {
    /// Items in the ring now; more may arrive at any moment.
    #[inline]
    pub fn len(&self) -> usize {
        self.shared.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Whether the ring is empty now. Check it again after announcing sleep (see [`crate::wake`]).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends items to `into`, as many as there are and fit; returns how many.
    #[inline]
    pub fn pop_burst<const N: usize>(&mut self, into: &mut ArrayVec<T, N>) -> usize {
        let count = self.ready(into.remaining_capacity());
        for offset in 0..count {
            let item = self.shared.slot(self.head.wrapping_add(offset)).with(|slot| {
                // SAFETY: the index is before the producer's, so the slot is initialised and ours until `head` is
                // published below. It is read once: nothing in between can panic, because there is room.
                unsafe { (*slot).assume_init_read() }
            });
            // SAFETY: `count` is at most the remaining capacity.
            unsafe { into.push_unchecked(item) };
        }
        self.pass(count);
        count
    }

    /// Pops one item. Prefer bursts.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready(1) == 0 {
            return None;
        }
        // SAFETY: as in `pop_burst`.
        let item = self.shared.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.pass(1);
        Some(item)
    }

    /// How many of `wanted` items can be read now. Reloads the producer's index only if the cached one is not enough.
    #[inline]
    fn ready(&mut self, wanted: usize) -> usize {
        let mut ready = self.tail_seen.wrapping_sub(self.head);
        if ready < wanted {
            // Acquire: the items before this index are written.
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
            ready = self.tail_seen.wrapping_sub(self.head);
        }
        ready.min(wanted)
    }

    /// Returns `count` slots to the producer.
    #[inline]
    fn pass(&mut self, count: usize) {
        if count > 0 {
            self.head = self.head.wrapping_add(count);
            // Release: the items are read before the producer can see the index.
            self.shared.head.store(self.head, Ordering::Release);
        }
    }
}
