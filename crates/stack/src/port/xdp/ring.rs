//! The user-space ends of the rings shared with the kernel (`net/xdp/xsk_queue.h`).
//!
//! ```text
//!              consumer        producer                 fill, transmit:        we produce, the kernel consumes
//!                 ▾               ▾                     receive, completion:   the kernel produces, we consume
//!   ...  [free] [entry] [entry] [free]  ...
//! ```
//! Both indices only grow, and wrap at 2^32. Each side caches its own index and the last value it saw of the other's,
//! reloads the other's index only when the cached value leaves nothing to do, and stores its own once per burst, so
//! the cache line of an index rarely moves between CPUs. Entries are written before the index is (release), and read
//! after it was (acquire).

use std::io;
use std::os::fd::BorrowedFd;
// Not this crate's `primitive`: the other side is the kernel, which no model checker runs.
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use super::sys::{Entry, Ring};

/// Largest ring, entries. The kernel would accept more, but that many packets are tens of milliseconds of delay.
pub(super) const MAX_RING_LEN: u32 = 1 << 16;

/// The producing end.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write.
    next: u32,
    /// The first entry that may not be written yet, as last seen.
    end: u32,
}

/// The consuming end.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// The first entry that is not available yet, as last seen.
    end: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, place, offsets, size)?;
        let next = ring.producer().load(Relaxed);
        Ok(Self { ring, next, end: next })
    }

    /// Entries that can be pushed: at least `wanted`, or all there is room for.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let known = self.end.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        self.end = self.ring.consumer().load(Acquire).wrapping_add(self.ring.size());
        let room = self.end.wrapping_sub(self.next);
        // More than the ring's size: the index is invalid.
        if room > self.ring.size() {
            self.end = self.next;
            return 0;
        }
        room
    }

    /// Writes the next entry; the kernel sees it once it is published. Call it for at most the available room.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.next != self.end, "asked for room");
        self.ring.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the pushed entries to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Release);
    }

    /// Published entries that the kernel has not consumed yet.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Acquire))
    }

    /// The index of the next entry to write: it grows, and wraps at 2^32.
    #[inline]
    pub(super) fn index(&self) -> u32 {
        self.next
    }

    /// An entry that was pushed and has not been overwritten since.
    pub(super) fn pushed(&self, index: u32) -> T {
        self.ring.read(index)
    }

    /// Whether the kernel needs a system call to notice published entries.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then reads the index again: whichever side is later sees the other's store.
        fence(SeqCst);
        // Without flags (before Linux 5.4) it always needs one.
        self.ring
            .flags()
            .is_none_or(|flags| flags.load(Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

impl<T: Entry> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, place, offsets, size)?;
        let next = ring.consumer().load(Relaxed);
        Ok(Self { ring, next, end: next })
    }

    /// Entries that can be taken: at least `wanted`, or all that are available.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        let known = self.end.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        self.end = self.ring.producer().load(Acquire);
        let available = self.end.wrapping_sub(self.next);
        // More than the ring's size: the index is invalid.
        if available > self.ring.size() {
            self.end = self.next;
            return 0;
        }
        available
    }

    /// The next available entry.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        let entry = self.ring.read(self.next);
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of taken entries to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Release);
    }
}
