//! What came between the program and the workers: frames that it took and that the kernel dropped before a worker got them.
//!
//! ```text
//! program: taken ─ redirect ─┬▸ receive ring: delivered ─▸ worker: received
//!                            ├ receive ring full, fill ring empty       counted by the socket
//!                            └ no socket accepted it                    counted by nobody: taken, less all of the above
//! ```
//! The last is known exactly while nothing comes, and after the end. Under traffic frames are between the program and the ring
//! at any moment; what was taken at one look and is in no counter at the next one is a lower bound.

use std::time::{Duration, Instant};

use udpath_stack::port::xdp::{Monitor, Received};

use crate::status::Arrivals;

/// Between two looks that find the same number of frames taken, after which none is between the program and a ring. A softirq
/// takes a few milliseconds at most; a look that is wrong, for its CPU stood still that long, is put right by the next.
const SETTLE_INTERVAL: Duration = Duration::from_millis(40);

/// Adds up what the ports of a server received.
pub(super) struct ArrivalCounter {
    /// By port.
    monitors: Vec<Monitor>,
    /// What of it was the probe's.
    probed: Vec<Received>,
    /// Frames taken at the last look at which that number was another, and when that was.
    taken: (u64, Instant),
    /// Frames taken at the last look.
    last: u64,
    failed: u64,
    /// Nothing is taken any more, and nothing is on its way to a ring.
    closed: bool,
}

impl ArrivalCounter {
    pub(super) fn new(monitors: Vec<Monitor>) -> Self {
        let probed = vec![Received::default(); monitors.len()];
        Self { monitors, probed, taken: (0, Instant::now()), last: 0, failed: 0, closed: false }
    }

    /// All that came so far was the probe's.
    pub(super) fn forget_probe(&mut self) {
        self.probed = self.monitors.iter().map(Monitor::received).collect();
    }

    /// Nothing is taken any more, and nothing is on its way to a ring: from now on the look is exact.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// What came so far; `taken` says how many frames the programs took.
    pub(super) fn read(&mut self, taken: impl FnOnce() -> u64) -> Arrivals {
        let received: Vec<_> = self
            .monitors
            .iter()
            .zip(&self.probed)
            .map(|(port, probed)| since(port.received(), *probed))
            .collect();
        let arrived: u64 = received.iter().map(|port| port.delivered + port.ring_full + port.no_frame).sum();
        // After the rings: what they have was counted as taken before.
        let taken = taken();
        self.note(taken, arrived, Instant::now());
        Arrivals { taken, received, redirect_failed: self.failed }
    }

    fn note(&mut self, taken: u64, arrived: u64, now: Instant) {
        if taken != self.taken.0 {
            self.taken = (taken, now);
        }
        if self.closed || now.duration_since(self.taken.1) >= SETTLE_INTERVAL {
            self.failed = taken.saturating_sub(arrived);
        } else {
            self.failed = self.failed.max(self.last.saturating_sub(arrived));
        }
        self.last = taken;
    }
}

fn since(now: Received, before: Received) -> Received {
    Received {
        delivered: now.delivered - before.delivered,
        ring_full: now.ring_full - before.ring_full,
        no_frame: now.no_frame - before.no_frame,
        invalid: now.invalid - before.invalid,
        fill_ring_empty: now.fill_ring_empty - before.fill_ring_empty,
        transmit_invalid: now.transmit_invalid - before.transmit_invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_under_way_are_no_failures_and_failures_are_found() {
        let mut arrivals = ArrivalCounter::new(Vec::new());
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // Under traffic some are always between the program and the ring.
        arrivals.note(1_000, 970, at(10));
        assert_eq!(arrivals.failed, 0);
        arrivals.note(2_000, 1_990, at(20));
        assert_eq!(arrivals.failed, 0);
        // The socket accepts nothing more: seen at the next look.
        arrivals.note(3_000, 1_990, at(30));
        assert_eq!(arrivals.failed, 10, "at least");
        arrivals.note(3_000, 1_990, at(80));
        assert_eq!(arrivals.failed, 1_010, "exactly, once nothing comes");
        // A look while the CPU stood still is put right.
        arrivals.note(3_000, 2_000, at(90));
        assert_eq!(arrivals.failed, 1_000);
        arrivals.note(4_000, 2_950, at(100));
        arrivals.close();
        arrivals.note(4_000, 3_000, at(100));
        assert_eq!(arrivals.failed, 1_000);
    }
}
