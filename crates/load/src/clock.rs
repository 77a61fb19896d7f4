//! The plan's clock: nanoseconds since its start, the same on all threads.

use std::time::Instant;

use crate::plan::Plan;
use crate::start;

/// Time below which sleeping is too coarse, nanoseconds: a thread with time to spare wakes this much early and polls.
/// Higher: more CPU time wasted. Lower: the wake-up of a sleeping CPU (tens of microseconds) shows as lateness.
const SPIN: u64 = 50_000;
/// Polling may take one part in this many of a thread's time: plans with shorter intervals sleep until the due time.
const SPIN_SHARE: u64 = 20;
/// Shortest sleep, nanoseconds: requests that fall due within it are sent together, in few system calls. Higher:
/// fewer calls, more lateness. Lower: at high rates every datagram would cost a wake-up of its own.
const MIN_PAUSE: u64 = 20_000;
/// Longest sleep, nanoseconds: a stop takes effect within it.
pub(crate) const MAX_PAUSE: u64 = 10_000_000;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    window: u64,
    end: u64,
    spin: u64,
}

impl Clock {
    pub(crate) fn new(start: Instant, plan: &Plan) -> Self {
        let window = plan.warmup.as_nanos() as u64;
        let interval = plan.peak_rate().map_or(0, |rate| (plan.parts() as f64 / rate * 1e9) as u64);
        Self {
            start,
            window,
            end: window + plan.duration.as_nanos() as u64,
            spin: if interval >= SPIN * SPIN_SHARE { SPIN } else { 0 },
        }
    }

    /// Nanoseconds since the start; 0 before it.
    pub(crate) fn now(&self) -> u64 {
        Instant::now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Sleeps until the plan starts.
    pub(crate) fn wait_for_start(&self) {
        start::sleep_until(self.start);
    }

    /// When the window begins.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// When it ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether `at` is in the window.
    pub(crate) fn in_window(&self, at: u64) -> bool {
        (self.window..self.end).contains(&at)
    }

    /// How long to wait for replies at `now` if the next request is due at `next`, nanoseconds; 0 means poll.
    pub(crate) fn pause(&self, now: u64, next: u64) -> u64 {
        let gap = next.saturating_sub(now);
        let pause = if self.spin > 0 { gap.saturating_sub(self.spin) } else { gap.max(MIN_PAUSE) };
        pause.min(MAX_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Arrivals, Process};

    fn clock(rate: f64) -> Clock {
        let mut plan = Plan::new("192.0.2.1:7".parse().unwrap());
        plan.arrivals = Arrivals::Open { rate, process: Process::Constant };
        Clock::new(Instant::now(), &plan)
    }

    #[test]
    fn slow_plans_poll_at_the_end_and_fast_ones_send_in_batches() {
        let slow = clock(100.0);
        assert_eq!(slow.pause(0, 1_000_000), 1_000_000 - SPIN);
        assert_eq!(slow.pause(0, SPIN / 2), 0);
        let fast = clock(1e6);
        assert_eq!(fast.pause(0, 1), MIN_PAUSE);
        assert_eq!(fast.pause(0, 5_000_000_000), MAX_PAUSE);
    }
}
