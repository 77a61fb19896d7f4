//! A port, and the burst of requests that is being gathered for it.

use arrayvec::ArrayVec;
use udpath_stack::frame::{BURST, Burst, Frame};
use udpath_stack::port::xdp::XdpPort;
use udpath_stack::port::{Departed, Port};

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
    departed: Departed,
}

/// What the port had counted when it was last looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    /// Calls that failed, and requests that the queue dropped.
    trouble: u64,
    /// Requests that left, and were not dropped.
    gone: u64,
}

impl Look {
    /// Takes over what is counted `now`. Did sending go wrong meanwhile, and did nothing get away?
    ///
    /// A frame that was dropped counts as trouble at once, and as sent until it is collected. So what is gone may seem less
    /// than it is for a while, and only more than ever before means that something got away.
    fn advance(&mut self, now: Self) -> bool {
        let stuck = now.trouble > self.trouble && now.gone <= self.gone;
        *self = Self { trouble: now.trouble, gone: now.gone.max(self.gone) };
        stuck
    }
}

impl Lane {
    pub(super) fn new(port: XdpPort) -> Self {
        Self {
            port,
            free: Burst::new(),
            frames: Burst::new(),
            staged: ArrayVec::new(),
            looked: Look::default(),
            departed: Departed::default(),
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

    /// Has the port send what it took.
    #[inline]
    pub(super) fn flush(&mut self) {
        self.port.flush();
        // What the device dropped is lost as on the wire: no reply comes.
        self.port.departed(&mut self.departed);
        self.departed.clear();
    }

    /// Since the last look: did sending go wrong, and did nothing get away? Makes a system call.
    pub(super) fn is_stuck(&mut self) -> bool {
        let statistics = self.port.statistics();
        let left = self.port.counts().transmitted - self.port.sending() as u64;
        let now = Look {
            trouble: statistics.link_down + statistics.failed + statistics.dropped_sending,
            gone: left.saturating_sub(statistics.dropped_sending),
        };
        self.looked.advance(now)
    }

    /// Gives all frames back; how many requests were still waiting for room, never sent.
    pub(super) fn close(&mut self) -> u64 {
        self.port.recycle(&mut self.free);
        self.port.recycle(&mut self.frames);
        self.staged.drain(..).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link went down after 100 requests: at each look some of what was dropped is not collected yet, more or less.
    #[test]
    fn nothing_gets_away_however_many_dropped_frames_are_still_out() {
        let mut looked = Look { trouble: 0, gone: 100 };
        let stuck =
            [97, 100, 92, 99, 95].map(|gone| looked.advance(Look { trouble: looked.trouble + 7, gone }));
        assert_eq!(stuck, [true; 5]);
        // It is up again; single drops do not matter then, nor does silence.
        assert!(!looked.advance(Look { trouble: 36, gone: 101 }));
        assert!(!looked.advance(Look { trouble: 36, gone: 101 }));
    }
}
