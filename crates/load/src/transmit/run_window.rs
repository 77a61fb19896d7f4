//! One thread's timing: when its window begins and ends, and when it gives up lost requests.

use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::plan::Plan;
use crate::record::ThreadTime;
use crate::start;
use crate::threads::Shared;

/// How often a closed loop looks for requests to give up, as a fraction of the timeout, and its bounds in nanoseconds.
/// More often: each time costs a walk over all flows. Less often: the place of a lost request stays empty longer.
const GIVE_UP: (u64, u64, u64) = (8, 1_000_000, 100_000_000);

/// See the module.
pub(super) struct RunWindow<'a> {
    clock: Clock,
    shared: &'a Shared<'a>,
    /// CPU time when the window began.
    began: Option<ThreadTime>,
    /// How late it started, if the plan has a time for that, nanoseconds.
    pub(super) start_skew: Option<i64>,
    give_up_interval: u64,
    give_up_at: u64,
}

impl<'a> RunWindow<'a> {
    /// Sleeps until the plan starts.
    pub(super) fn start(plan: &Plan, clock: Clock, shared: &'a Shared<'a>) -> Self {
        let (fraction, min, max) = GIVE_UP;
        let interval = (plan.timeout.as_nanos() as u64 / fraction).clamp(min, max);
        // Before the wait, which takes no CPU time: at the start, threads of other senders may wait for this CPU.
        let began = plan.warmup.is_zero().then(ThreadTime::now);
        clock.wait_for_start();
        let start_skew = start::skew(plan);
        Self { clock, shared, began, start_skew, give_up_interval: interval, give_up_at: interval }
    }

    /// Whether `now` is before the end of the window, and no stop was requested. Called once per turn.
    pub(super) fn is_open(&mut self, now: u64) -> bool {
        if self.began.is_none() && now >= self.clock.window() {
            self.began = Some(ThreadTime::now());
        }
        now < self.clock.end() && !self.shared.stopped()
    }

    /// Whether it is time to look for requests past their timeout.
    pub(super) fn is_time_to_give_up(&mut self, now: u64) -> bool {
        let due = now >= self.give_up_at;
        if due {
            self.give_up_at = now + self.give_up_interval;
        }
        due
    }

    /// Reports that this thread's window is over; returns the CPU time it took.
    pub(super) fn end(self) -> ThreadTime {
        self.shared.running.fetch_sub(1, Ordering::Release);
        self.began.map_or_else(ThreadTime::default, |then| ThreadTime::now().since(then))
    }
}
