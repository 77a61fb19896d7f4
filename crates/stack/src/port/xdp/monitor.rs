//! Counts frames that the kernel put into a port's receive ring or dropped there, readable from any thread: a worker
//! that gets no CPU time cannot report them.
//!
//! ```text
//! program ─ redirect ─┬▸ receive ring: delivered        the ring's producer index
//!                     ├ receive ring full               XDP_STATISTICS, rx_ring_full
//!                     ├ no frame in the fill ring       XDP_STATISTICS, rx_dropped     (copy mode)
//!                     └ rejected by the socket          not counted by the socket: the rest of the program's own count
//! ```
//! Every frame that the program redirected is in exactly one of these (`xsk_rcv`, net/xdp/xsk.c): with XDP_STATISTICS
//! of Linux 5.9 and later `rx_dropped` and `rx_ring_full` do not overlap; before, `rx_dropped` is the sum of both.
//! With zero-copy, a driver without a frame drops packets before the program sees them; these are in the driver's
//! counters only, and `fill_ring_empty` counts how often that happened.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::sockopt;
use rustix::net::xdp::{XdpDesc, XdpStatistics};

use super::sys::Ring;

/// Frames that the program redirected to a port's socket, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveCounts {
    /// Put into the receive ring.
    pub delivered: u64,
    /// Dropped: the receive ring was full. The worker is too slow, or gets too little CPU time.
    pub ring_full: u64,
    /// Dropped: no frame in the fill ring, or (copy mode) longer than one.
    pub no_frame: u64,
    /// Taken from the receive ring with an invalid address or length.
    pub invalid: u64,
    /// How often the kernel found the fill ring empty; with zero-copy the device counts the packets lost by that.
    pub fill_ring_empty: u64,
    /// Transmit ring entries that the kernel rejected and did not send.
    pub transmit_invalid: u64,
}

impl ReceiveCounts {
    /// All frames that did not reach the worker.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.ring_full + self.no_frame + self.invalid
    }
}

/// A port's socket, and a second mapping of its receive ring.
#[derive(Debug)]
pub(super) struct Descriptor {
    /// Declared before the descriptor that it is a mapping of.
    pub(super) receive: Ring<XdpDesc>,
    pub(super) fd: OwnedFd,
}

impl AsFd for Descriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Descriptor {
    /// The kernel's counters.
    pub(super) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd).ok()
    }
}

/// Reads what a port [received](ReceiveCounts), from any thread, also after the port was dropped. Keeps no descriptor
/// open.
#[derive(Debug, Clone)]
pub struct Monitor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: Weak<Descriptor>,
    last: Mutex<Last>,
    /// Counted by the port: invalid entries.
    invalid: AtomicU64,
}

#[derive(Debug, Default)]
struct Last {
    /// The producer index when last read. It wraps at 2^32, so it must be read more often than that many frames
    /// arrive.
    index: u32,
    received: ReceiveCounts,
}

impl Monitor {
    pub(super) fn new(socket: &Arc<Descriptor>) -> Self {
        let socket = Arc::downgrade(socket);
        Self { shared: Arc::new(Shared { socket, last: Mutex::default(), invalid: AtomicU64::new(0) }) }
    }

    /// Counts invalid entries of the receive ring.
    #[cold]
    pub(super) fn add_invalid(&self, count: u32) {
        self.shared.invalid.fetch_add(count.into(), Ordering::Relaxed);
    }

    /// What the port received so far. Makes a system call. Call it at least once per four billion frames.
    #[must_use]
    pub fn received(&self) -> ReceiveCounts {
        let mut last = self.shared.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = self.shared.socket.upgrade() {
            let index = socket.receive.producer().load(Ordering::Acquire);
            last.received.delivered += u64::from(index.wrapping_sub(last.index));
            last.index = index;
            if let Some(kernel) = socket.statistics() {
                last.received.ring_full = kernel.rx_ring_full.unwrap_or(0);
                last.received.no_frame = kernel.rx_dropped;
                last.received.fill_ring_empty = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
                last.received.transmit_invalid = kernel.tx_invalid_descs;
            }
        }
        last.received.invalid = self.shared.invalid.load(Ordering::Relaxed);
        last.received
    }
}
