//! The two ends of a ring shared with the kernel (`net/xdp/xsk_queue.h`).
//!
//! ```text
//!              consumer        producer                 fill, transmit:        we produce, the kernel consumes
//!                 ▾               ▾                     receive, completion:   the kernel produces, we consume
//!   ...  [free] [entry] [entry] [free]  ...
//! ```
//! Both indices only grow, and wrap at 2^32. Each side keeps a copy of its own index and of where the other's was last,
//! reads the other's index only when the copy says there is nothing to do, and writes its own once per burst: the cache
//! line of an index crosses to the other CPU as seldom as that. Entries are written before the index is (release), and
//! read after it was (acquire).

use std::io;
use std::os::fd::BorrowedFd;
// Not this crate's `primitive`: the other side is the kernel, which no model checker runs.
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use super::sys::{Entry, Ring};

/// Largest ring, entries. The kernel would take more; that many packets are tens of milliseconds of delay.
pub(super) const MAX_RING_LEN: u32 = 1 << 16;

/// The end that puts entries in.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write.
    next: u32,
    /// The first entry that may not be written yet, as far as known.
    end: u32,
}

/// The end that takes entries out.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// The first entry that is not there yet, as far as known.
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

    /// Entries that can be pushed: at least `wanted`, or all there are.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let known = self.end.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        self.end = self.ring.consumer().load(Acquire).wrapping_add(self.ring.size());
        let room = self.end.wrapping_sub(self.next);
        // More than the ring has: an index that cannot be.
        if room > self.ring.size() {
            self.end = self.next;
            return 0;
        }
        room
    }

    /// Writes the next entry; the kernel sees it once it is published. For as many as there was room.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.next != self.end, "asked for room");
        self.ring.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Release);
    }

    /// Published entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Acquire))
    }

    /// The index of the next entry to write: it grows, and wraps at 2^32.
    #[inline]
    pub(super) fn index(&self) -> u32 {
        self.next
    }

    /// An entry that was pushed, and not written over since.
    pub(super) fn pushed(&self, index: u32) -> T {
        self.ring.read(index)
    }

    /// Whether the kernel looks at what was published only when it is told to.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then looks at the index once more: whoever is later sees the other's.
        fence(SeqCst);
        // Without flags (before Linux 5.4) it must always be told.
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

    /// Entries that can be taken: at least `wanted`, or all there are.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        let known = self.end.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        self.end = self.ring.producer().load(Acquire);
        let available = self.end.wrapping_sub(self.next);
        // More than the ring has: an index that cannot be.
        if available > self.ring.size() {
            self.end = self.next;
            return 0;
        }
        available
    }

    /// The next of those that are available.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        let entry = self.ring.read(self.next);
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel the places of what was taken.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Release);
    }
}
