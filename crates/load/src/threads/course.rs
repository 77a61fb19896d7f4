//! One thread's way through the plan's time: when its window begins, when it looks for lost requests, when it is done.

use std::sync::atomic::Ordering;

use super::{Clock, Shared};
use crate::plan::Plan;
use crate::record::ThreadTime;

/// How often a closed loop looks for requests to give up, as a share of the timeout, and its bounds in nanoseconds. More
/// often: a walk over all flows each time. Less often: a lost request's place stays empty longer.
const GIVE_UP: (u64, u64, u64) = (8, 1_000_000, 100_000_000);

/// See the module.
pub(crate) struct Course<'a> {
    clock: Clock,
    shared: &'a Shared<'a>,
    /// CPU time at the begin of the window.
    window: Option<ThreadTime>,
    give_up_every: u64,
    give_up_at: u64,
}

impl<'a> Course<'a> {
    /// Sleeps until the plan starts.
    pub(crate) fn start(plan: &Plan, clock: Clock, shared: &'a Shared<'a>) -> Self {
        let (share, least, most) = GIVE_UP;
        let every = (plan.timeout.as_nanos() as u64 / share).clamp(least, most);
        clock.wait_for_start();
        Self { clock, shared, window: None, give_up_every: every, give_up_at: every }
    }

    /// Is the window still to come, or under way, at `now`? Asked once per turn.
    pub(crate) fn goes_on(&mut self, now: u64) -> bool {
        if self.window.is_none() && now >= self.clock.window() {
            self.window = Some(ThreadTime::now());
        }
        now < self.clock.end() && !self.shared.stopped()
    }

    /// Is it time to look for requests that are past their timeout?
    pub(crate) fn gives_up(&mut self, now: u64) -> bool {
        let due = now >= self.give_up_at;
        if due {
            self.give_up_at = now + self.give_up_every;
        }
        due
    }

    /// Tells the others that this thread's window is over; the CPU time it took.
    pub(crate) fn end(self) -> ThreadTime {
        self.shared.running.fetch_sub(1, Ordering::Release);
        self.window.map_or_else(ThreadTime::default, |then| ThreadTime::now().since(then))
    }
}
