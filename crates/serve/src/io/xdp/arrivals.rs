//! Frames between the program and the workers: taken by the program, and dropped by the kernel before a worker received
//! them.
//!
//! ```text
//! program: taken ─ redirect ─┬▸ receive ring: delivered ─▸ worker: received
//!                            ├ receive ring full, fill ring empty       counted by the socket
//!                            └ no socket accepted it                    not counted: taken, minus all of the above
//! ```
//! The last number is exact while no traffic arrives, and after the end. Under traffic there are always frames between
//! the program and a ring; frames taken before one read and in no counter at the next are a lower bound.

use std::time::{Duration, Instant};

use udpath_stack::port::xdp::{Monitor, ReceiveCounts};

use crate::status::Arrivals;

/// How long the number of frames taken must stay the same until none is between the program and a ring. A softirq takes
/// a few milliseconds at most; if its CPU stalled for longer, the next read corrects the number.
const SETTLE_INTERVAL: Duration = Duration::from_millis(40);

/// Adds up what the ports received.
pub(super) struct ArrivalCounter {
    /// By port.
    monitors: Vec<Monitor>,
    /// By port: what the probe sent.
    probed: Vec<ReceiveCounts>,
    /// The number of frames taken when it last changed, and when that was seen.
    taken: (u64, Instant),
    /// Frames taken at the last read.
    last: u64,
    failed: u64,
    /// The programs take nothing any more, and no frame is on its way to a ring.
    closed: bool,
}

impl ArrivalCounter {
    pub(super) fn new(monitors: Vec<Monitor>) -> Self {
        let probed = vec![ReceiveCounts::default(); monitors.len()];
        Self { monitors, probed, taken: (0, Instant::now()), last: 0, failed: 0, closed: false }
    }

    /// Declares all frames so far to be the probe's.
    pub(super) fn forget_probe(&mut self) {
        self.probed = self.monitors.iter().map(Monitor::received).collect();
    }

    /// The programs take nothing any more, and no frame is on its way to a ring: from now on reads are exact.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// What has arrived so far; `taken` returns how many frames the programs took.
    pub(super) fn read(&mut self, taken: impl FnOnce() -> u64) -> Arrivals {
        let received: Vec<_> = self
            .monitors
            .iter()
            .zip(&self.probed)
            .map(|(port, probed)| since(port.received(), *probed))
            .collect();
        let arrived: u64 = received.iter().map(|port| port.delivered + port.ring_full + port.no_frame).sum();
        // Read after the rings: frames in them were counted as taken before.
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

fn since(now: ReceiveCounts, before: ReceiveCounts) -> ReceiveCounts {
    ReceiveCounts {
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
    fn frames_in_flight_are_not_failures_and_failures_are_found() {
        let mut arrivals = ArrivalCounter::new(Vec::new());
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // Under traffic some are always between the program and the ring.
        arrivals.note(1_000, 970, at(10));
        assert_eq!(arrivals.failed, 0);
        arrivals.note(2_000, 1_990, at(20));
        assert_eq!(arrivals.failed, 0);
        // The socket accepts nothing more: found by the next read.
        arrivals.note(3_000, 1_990, at(30));
        assert_eq!(arrivals.failed, 10, "at least");
        arrivals.note(3_000, 1_990, at(80));
        assert_eq!(arrivals.failed, 1_010, "exactly, once nothing comes");
        // A read while the CPU stalled is corrected.
        arrivals.note(3_000, 2_000, at(90));
        assert_eq!(arrivals.failed, 1_000);
        arrivals.note(4_000, 2_950, at(100));
        arrivals.close();
        arrivals.note(4_000, 3_000, at(100));
        assert_eq!(arrivals.failed, 1_000);
    }
}
