//! A port, and the burst of requests that is being gathered for it.

use arrayvec::ArrayVec;
use udpath_stack::frame::{BURST, Burst, Frame};
use udpath_stack::port::Port;
use udpath_stack::port::xdp::XdpPort;

/// A request in a frame that the port has not taken yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    /// Its flow's number among the thread's.
    pub(super) index: u32,
    pub(super) intended: u64,
}

/// See the module. Frames and what is known of them stand in the same order.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) port: XdpPort,
    free: Burst,
    frames: Burst,
    staged: ArrayVec<Staged, BURST>,
    looked: Look,
}

/// What the port had counted when it was last looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    /// Calls that failed, and requests that the queue dropped.
    trouble: u64,
    /// Requests that left, and were not dropped.
    gone: u64,
}

impl Lane {
    pub(super) fn new(port: XdpPort) -> Self {
        Self {
            port,
            free: Burst::new(),
            frames: Burst::new(),
            staged: ArrayVec::new(),
            looked: Look::default(),
        }
    }

    /// Is there no room for another request until some have been sent?
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.staged.len()
    }

    /// An empty frame; none while all are with the kernel.
    #[inline]
    pub(super) fn frame(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.port.supply(&mut self.free, BURST);
        }
        self.free.pop()
    }

    /// Adds a request. The caller has asked [`Lane::is_full`].
    #[inline]
    pub(super) fn stage(&mut self, frame: Frame, staged: Staged) {
        self.frames.push(frame);
        self.staged.push(staged);
    }

    /// Hands what waits to the port, as far as that has room; what it took.
    #[inline]
    pub(super) fn hand_over(&mut self) -> impl Iterator<Item = Staged> + '_ {
        self.port.transmit(&mut self.frames);
        let taken = self.staged.len() - self.frames.len();
        self.staged.drain(..taken)
    }

    /// Since the last look: did sending go wrong, and did nothing get away? Makes a system call.
    pub(super) fn is_stuck(&mut self) -> bool {
        let statistics = self.port.statistics();
        let left = self.port.counts().transmitted - self.port.sending() as u64;
        let now = Look {
            trouble: statistics.link_down + statistics.failed + statistics.dropped_sending,
            gone: left.saturating_sub(statistics.dropped_sending),
        };
        let before = std::mem::replace(&mut self.looked, now);
        now.trouble > before.trouble && now.gone <= before.gone
    }

    /// Gives all frames back; how many requests were still waiting for room, never sent.
    pub(super) fn close(&mut self) -> u64 {
        self.port.recycle(&mut self.free);
        self.port.recycle(&mut self.frames);
        self.staged.drain(..).count() as u64
    }
}
