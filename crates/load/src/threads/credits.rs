//! Closed loop: how many requests each flow may send now, and which flows wait to do so.
//!
//! ```text
//!   a reply, or a request given up ──▶ credit of its flow ──▶ spent by sending
//!                                                   └─ could not send ─▶ waits, is tried again after `retry`
//! ```

use std::collections::VecDeque;

use super::LONGEST;

/// See the module. Flows go by their place in the thread's list.
#[derive(Debug)]
pub(crate) struct Credits {
    /// Requests that may be sent now, by flow.
    credit: Box<[u32]>,
    /// Flows with credit that could not send; at the start, all.
    waiting: VecDeque<usize>,
    /// Is it in `waiting`? By flow.
    waits: Box<[bool]>,
    /// Time after which a flow that could not send is tried again, nanoseconds.
    retry: u64,
    retry_at: u64,
}

impl Credits {
    /// Flows to try in one turn. More: replies wait. Fewer: a start with many flows takes more turns.
    pub(crate) const TURN: usize = 64;

    /// `inflight` requests for each of `flows`; 0 in an open loop, which has no use for credits.
    pub(crate) fn new(flows: usize, inflight: u32, retry: u64) -> Self {
        let waits = inflight > 0;
        // Within its capacity for ever: each flow is in it once.
        let mut waiting = VecDeque::with_capacity(flows);
        waiting.extend((0..flows).filter(|_| waits));
        Self {
            credit: vec![inflight; flows].into(),
            waiting,
            waits: vec![waits; flows].into(),
            retry,
            retry_at: 0,
        }
    }

    /// The next flow to try; or, if there is none, how long to wait for one, nanoseconds.
    pub(crate) fn next(&mut self, now: u64) -> Result<usize, u64> {
        let index = match self.waiting.front() {
            None => return Err(LONGEST),
            Some(_) if now < self.retry_at => return Err(self.retry_at - now),
            Some(&index) => index,
        };
        self.waiting.pop_front();
        self.waits[index] = false;
        Ok(index)
    }

    /// Requests that flow `index` may send now.
    #[inline]
    pub(crate) fn of(&self, index: usize) -> u32 {
        self.credit[index]
    }

    /// Does flow `index` wait for its next try?
    #[inline]
    pub(crate) fn waits(&self, index: usize) -> bool {
        self.waits[index]
    }

    /// Flow `index` may send `n` more.
    #[inline]
    pub(crate) fn earn(&mut self, index: usize, n: u32) {
        self.credit[index] += n;
    }

    /// Flow `index` sent `n`.
    #[inline]
    pub(crate) fn spend(&mut self, index: usize, n: u32) {
        self.credit[index] -= n;
    }

    /// Flow `index` could not send what it may.
    pub(crate) fn wait(&mut self, index: usize, now: u64) {
        self.retry_at = now + self.retry;
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
        let mut credits = Credits::new(100, 2, RETRY);
        assert_eq!(turn(&mut credits, 0), ((0..100).collect(), LONGEST));
        assert_eq!(turn(&mut credits, 0), (vec![], LONGEST));
    }

    #[test]
    fn who_cannot_send_waits_and_so_do_the_others() {
        let mut credits = Credits::new(3, 2, RETRY);
        assert_eq!(credits.next(0), Ok(0));
        credits.spend(0, 1);
        credits.wait(0, 0);
        assert_eq!(turn(&mut credits, 0), (vec![], RETRY));
        assert_eq!(turn(&mut credits, 400), (vec![], 600));
        assert_eq!(turn(&mut credits, RETRY), (vec![1, 2, 0], LONGEST));
        assert_eq!((credits.of(0), credits.of(1)), (1, 2));
    }

    #[test]
    fn a_flow_waits_once_however_often_it_is_told_to() {
        let mut credits = Credits::new(1, 1, RETRY);
        for _ in 0..10 {
            credits.wait(0, 0);
        }
        assert!(credits.waits(0));
        assert_eq!(turn(&mut credits, RETRY), (vec![0], LONGEST));
        assert!(!credits.waits(0));
    }

    #[test]
    fn an_open_loop_has_nobody_waiting() {
        assert_eq!(turn(&mut Credits::new(5, 0, RETRY), 0), (vec![], LONGEST));
    }
}
