//! Open loop: takes due requests from the schedule, and divides them into runs to one flow.

use std::iter::Peekable;

use super::Ledger;
use crate::clock::{Clock, MAX_PAUSE};
use crate::plan::{Intended, Plan, Schedule};

/// Requests sent in one turn before replies are received.
pub(super) const TURN: usize = 256;
/// Maximum number of schedule entries walked to count unsent requests; beyond that the count is the rate
/// times the time.
const MAX_WALK: usize = 1_000_000;

/// The schedule of one thread, and its requests that are due and not sent yet.
pub(super) struct Due {
    schedule: Peekable<Schedule>,
    times: Box<[u64; TURN]>,
    flows: Box<[u32; TURN]>,
    /// The range of due requests in both.
    from: usize,
    to: usize,
}

impl Due {
    /// None in a closed loop.
    pub(super) fn new(ledger: &Ledger<'_>) -> Option<Self> {
        let (plan, flows) = (ledger.plan, ledger.flows() as u32);
        Some(Self {
            schedule: Schedule::new(plan, plan.part(ledger.thread), plan.parts(), flows)?.peekable(),
            times: Box::new([0; TURN]),
            flows: Box::new([0; TURN]),
            from: 0,
            to: 0,
        })
    }

    /// How many requests are due and not sent.
    pub(super) fn len(&self) -> usize {
        self.to - self.from
    }

    /// Takes the requests due at `now` from the schedule, up to a turn's worth; returns how long until the
    /// next one is due.
    pub(super) fn gather(&mut self, clock: &Clock, now: u64) -> u64 {
        if self.from > 0 {
            self.times.copy_within(self.from..self.to, 0);
            self.flows.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        while self.to < TURN {
            match self.schedule.peek() {
                None => return MAX_PAUSE,
                Some(next) if next.at > now => return clock.pause(now, next.at),
                Some(&Intended { at, flow }) => {
                    (self.times[self.to], self.flows[self.to]) = (at, flow);
                    self.to += 1;
                    self.schedule.next();
                }
            }
        }
        0
    }

    /// The next requests to one flow, at most `most`: the flow, and their intended times.
    #[inline]
    pub(super) fn run(&self, most: usize) -> Option<(usize, &[u64])> {
        let flows = &self.flows[self.from..self.to];
        let flow = *flows.first()?;
        let count = flows.iter().take(most).take_while(|other| **other == flow).count();
        Some((flow as usize, &self.times[self.from..self.from + count]))
    }

    /// Records that the first `count` were taken.
    #[inline]
    pub(super) fn take(&mut self, count: usize) {
        self.from += count;
    }

    /// Counts the requests due in the window, between `window` and `ended`, that were never sent.
    pub(super) fn unsent(&mut self, plan: &Plan, window: u64, ended: u64) -> u64 {
        let due = self.times[self.from..self.to].iter().filter(|at| (window..ended).contains(*at)).count();
        let (mut walked, mut count, mut reached) = (0, due as u64, window);
        for next in self.schedule.by_ref().take(MAX_WALK).take_while(|next| next.at < ended) {
            walked += 1;
            count += u64::from(next.at >= window);
            reached = next.at.max(window);
        }
        if walked == MAX_WALK {
            let rate = plan.offered().unwrap_or(0.0) / plan.parts() as f64;
            count += (rate * (ended - reached) as f64 / 1e9) as u64;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Arrivals, Process};

    /// 32 per microsecond on two flows, in runs of 16.
    fn due() -> (Due, Clock, Plan) {
        let mut plan = Plan::new("192.0.2.1:7".parse().unwrap());
        plan.arrivals = Arrivals::Open { rate: 32e6, process: Process::Constant };
        let clock = Clock::new(std::time::Instant::now(), &plan);
        let schedule = Schedule::new(&plan, 0, 1, 2).unwrap().peekable();
        let due = Due { schedule, times: Box::new([0; TURN]), flows: Box::new([0; TURN]), from: 0, to: 0 };
        (due, clock, plan)
    }

    #[test]
    fn runs_go_to_one_flow_and_keep_their_order() {
        let (mut due, clock, _) = due();
        assert!(due.gather(&clock, 999) > 0);
        assert_eq!(due.len(), 32);
        assert_eq!(due.run(64).map(|(flow, times)| (flow, times.len())), Some((0, 16)));
        // Ten of them were taken, and more fell due.
        due.take(10);
        due.gather(&clock, 1999);
        assert_eq!(
            due.run(4).map(|(flow, times)| (flow, times.to_vec())),
            Some((0, vec![312, 343, 375, 406]))
        );
        due.take(6);
        assert_eq!(due.run(64).map(|(flow, times)| (flow, times[0], times.len())), Some((1, 500, 16)));
        due.take(16);
        assert_eq!((due.run(64).map(|(flow, _)| flow), due.len()), (Some(0), 32));
    }

    #[test]
    fn a_turn_has_a_bound_and_the_rest_counts_as_unsent() {
        let (mut due, clock, plan) = due();
        assert_eq!(due.gather(&clock, 100_000), 0);
        assert_eq!(due.len(), TURN);
        due.take(TURN);
        assert!(due.run(1).is_none());
        assert_eq!(due.unsent(&plan, 0, 100_000), 3200 - TURN as u64);
    }

    #[test]
    fn only_the_window_counts_as_unsent() {
        let (mut due, clock, plan) = due();
        due.gather(&clock, 999);
        assert_eq!(due.unsent(&plan, 500, 2000), 48);
    }
}
