//! Closed loop: how many requests each flow may send now, and which flows have requests to send.
//!
//! ```text
//!   a reply, or a request given up ──▶ credit of its flow ──▶ spent by sending
//!                                                   └─ could not send ─▶ waits, is tried again later
//! ```

use std::collections::VecDeque;

use crate::clock::MAX_PAUSE;

/// See the module. Flows are identified by their index in the thread's list.
#[derive(Debug)]
pub(super) struct Credits {
    /// Requests that may be sent now, by flow.
    credit: Box<[u32]>,
    /// Flows with credit that could not send; at the start, all.
    waiting: VecDeque<usize>,
    /// Whether a flow is in `waiting`.
    waits: Box<[bool]>,
    /// Flows that earned credit since they last sent, and when they earned the first of it.
    earned: VecDeque<(usize, u64)>,
    /// Whether a flow is in `earned`.
    earns: Box<[bool]>,
    /// When flows that could not send are tried again, nanoseconds since the start.
    retry_at: u64,
}

impl Credits {
    /// Flows to try in one turn. More: replies wait. Fewer: a start with many flows takes more turns.
    pub(super) const TURN: usize = 64;

    /// `inflight` requests for each of `flows`; 0 in an open loop, which does not use credits.
    pub(super) fn new(flows: usize, inflight: u32) -> Self {
        let closed = inflight > 0;
        // Neither queue ever exceeds its capacity: each flow is in it at most once.
        let mut waiting = VecDeque::with_capacity(flows);
        waiting.extend((0..flows).filter(|_| closed));
        Self {
            credit: vec![inflight; flows].into(),
            waiting,
            waits: vec![closed; flows].into(),
            earned: VecDeque::with_capacity(flows),
            earns: vec![false; flows].into(),
            retry_at: 0,
        }
    }

    /// The next flow to try; or, if there is none, how long to wait for one, nanoseconds.
    pub(super) fn next(&mut self, now: u64) -> Result<usize, u64> {
        let index = match self.waiting.front() {
            None => return Err(MAX_PAUSE),
            Some(_) if now < self.retry_at => return Err(self.retry_at - now),
            Some(&index) => index,
        };
        self.waiting.pop_front();
        self.waits[index] = false;
        Ok(index)
    }

    /// The next flow that earned credit and does not wait, and when it earned it.
    #[inline]
    pub(super) fn next_earned(&mut self) -> Option<(usize, u64)> {
        while let Some((index, at)) = self.earned.pop_front() {
            self.earns[index] = false;
            if !self.waits[index] {
                return Some((index, at));
            }
        }
        None
    }

    /// Requests that flow `index` may send now.
    #[inline]
    pub(super) fn of(&self, index: usize) -> u32 {
        self.credit[index]
    }

    /// Lets flow `index` send `n` more, from `at` on.
    #[inline]
    pub(super) fn earn(&mut self, index: usize, n: u32, at: u64) {
        self.credit[index] += n;
        if !self.earns[index] {
            self.earns[index] = true;
            self.earned.push_back((index, at));
        }
    }

    /// Records that flow `index` sent `n`.
    #[inline]
    pub(super) fn spend(&mut self, index: usize, n: u32) {
        self.credit[index] -= n;
    }

    /// Flow `index` could not send its requests, and tries again at `retry_at`.
    pub(super) fn wait(&mut self, index: usize, retry_at: u64) {
        self.retry_at = retry_at;
        if !self.waits[index] {
            self.waits[index] = true;
            self.waiting.push_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: u64 = 1000;

    /// All flows that can be tried, and how long to wait then.
    fn turn(credits: &mut Credits, now: u64) -> (Vec<usize>, u64) {
        let mut tried = Vec::new();
        loop {
            match credits.next(now) {
                Ok(index) => tried.push(index),
                Err(pause) => return (tried, pause),
            }
        }
    }

    #[test]
    fn at_the_start_every_flow_is_tried() {
        let mut credits = Credits::new(100, 2);
        assert_eq!(turn(&mut credits, 0), ((0..100).collect(), MAX_PAUSE));
        assert_eq!(turn(&mut credits, 0), (vec![], MAX_PAUSE));
    }

    #[test]
    fn a_flow_that_cannot_send_delays_all_waiting_flows() {
        let mut credits = Credits::new(3, 2);
        assert_eq!(credits.next(0), Ok(0));
        credits.spend(0, 1);
        credits.wait(0, RETRY);
        assert_eq!(turn(&mut credits, 0), (vec![], RETRY));
        assert_eq!(turn(&mut credits, 400), (vec![], 600));
        assert_eq!(turn(&mut credits, RETRY), (vec![1, 2, 0], MAX_PAUSE));
        assert_eq!((credits.of(0), credits.of(1)), (1, 2));
    }

    #[test]
    fn a_flow_waits_at_most_once() {
        let mut credits = Credits::new(1, 1);
        for _ in 0..10 {
            credits.wait(0, RETRY);
        }
        assert_eq!(turn(&mut credits, RETRY), (vec![0], MAX_PAUSE));
        assert_eq!(turn(&mut credits, RETRY), (vec![], MAX_PAUSE));
    }

    #[test]
    fn earned_credit_is_found_once_and_from_its_first_moment() {
        let mut credits = Credits::new(2, 1);
        assert_eq!(turn(&mut credits, 0).0, [0, 1]);
        credits.earn(1, 1, 50);
        credits.earn(1, 2, 60);
        credits.earn(0, 1, 70);
        assert_eq!((credits.next_earned(), credits.of(1)), (Some((1, 50)), 4));
        // A waiting flow is not tried before its retry.
        credits.wait(0, 80 + RETRY);
        assert_eq!(credits.next_earned(), None);
        credits.earn(1, 1, 90);
        assert_eq!(credits.next_earned(), Some((1, 90)));
    }

    #[test]
    fn in_an_open_loop_no_flow_waits() {
        assert_eq!(turn(&mut Credits::new(5, 0), 0), (vec![], MAX_PAUSE));
    }
}
