//! A port, and the burst of requests being gathered for it.

use arrayvec::ArrayVec;
use udpath_stack::frame::{BURST, Burst, Frame};
use udpath_stack::port::xdp::XdpPort;
use udpath_stack::port::{Completions, Port};

use super::progress::SendProgress;

/// A request in a frame that the port has not taken yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    /// Its flow's index in the thread's list.
    pub(super) index: u32,
    pub(super) intended: u64,
}

/// See the module. `frames` and `staged` are in the same order.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) port: XdpPort,
    free: Burst,
    frames: Burst,
    staged: ArrayVec<Staged, BURST>,
    completions: Completions,
}

impl Lane {
    pub(super) fn new(port: XdpPort) -> Self {
        Self {
            port,
            free: Burst::new(),
            frames: Burst::new(),
            staged: ArrayVec::new(),
            completions: Completions::default(),
        }
    }

    /// Whether there is no room for another request until some have been sent.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.staged.len()
    }

    /// A free frame; none while the kernel has all of them.
    #[inline]
    pub(super) fn frame(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.port.supply(&mut self.free, BURST);
        }
        self.free.pop()
    }

    /// Adds a request. The caller has checked [`Lane::is_full`].
    #[inline]
    pub(super) fn stage(&mut self, frame: Frame, staged: Staged) {
        self.frames.push(frame);
        self.staged.push(staged);
    }

    /// Passes waiting requests to the port, as many as it has room for; returns those it took.
    #[inline]
    pub(super) fn hand_over(&mut self) -> impl Iterator<Item = Staged> + '_ {
        self.port.transmit(&mut self.frames);
        let taken = self.staged.len() - self.frames.len();
        self.staged.drain(..taken)
    }

    /// Makes the port send the requests it took.
    #[inline]
    pub(super) fn flush(&mut self) {
        self.port.flush();
        // A request dropped by the device is lost as if on the wire: there is no reply.
        self.port.completions(&mut self.completions);
        self.completions.clear();
    }

    /// What it has sent so far. Makes a system call.
    pub(super) fn progress(&mut self) -> SendProgress {
        let statistics = self.port.statistics();
        let left = self.port.counts().transmitted - self.port.sending() as u64;
        SendProgress {
            trouble: statistics.link_down + statistics.failed + statistics.dropped_sending,
            gone: left.saturating_sub(statistics.dropped_sending),
        }
    }

    /// Returns all frames; returns how many requests were never sent.
    pub(super) fn close(&mut self) -> u64 {
        self.port.recycle(&mut self.free);
        self.port.recycle(&mut self.frames);
        self.staged.drain(..).count() as u64
    }
}
