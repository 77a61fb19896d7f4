//! One thread's record of its requests: those in flight, the outcomes of the others, and the contents of the result.

use std::io;
use std::mem;
use std::sync::atomic::Ordering;

use super::Transmit;
use super::credits::Credits;
use crate::clock::Clock;
use crate::plan::{Arrivals, Mode, Plan};
use crate::record::{Pending, Tally, ThreadTime};
use crate::template::{Judgement, Template};
use crate::threads::{Failures, Report, Shared};

/// One flow of the thread.
struct Flow {
    /// Its number in the plan.
    number: u32,
    pending: Pending,
    /// Requests taken by the engine and not sent yet.
    staged: u64,
    /// Whether it can no longer send or receive.
    closed: bool,
}

/// See the module. Flows are identified by their index in the thread's list.
pub(crate) struct Ledger<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) thread: usize,
    pub(crate) clock: Clock,
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) failures: Failures,
    /// Times a request had to wait because the engine's send queue was full.
    pub(crate) queue_full: u64,
    /// Replies that the generator's own receive queues dropped.
    pub(crate) own_drops: u64,
    /// Requests due in the window that were never sent.
    pub(crate) unsent: u64,
    /// How late the thread started, if the plan has a time for that, nanoseconds.
    pub(crate) start_skew: Option<i64>,
    pub(crate) warnings: Vec<String>,
    template: Box<dyn Template>,
    flows: Box<[Flow]>,
    credits: Credits,
    /// Intended times for requests that are due at the current moment.
    stamps: Box<[u64]>,
    /// Open loop: every request has an intended time of its own.
    scheduled: bool,
    sending: bool,
    tally: Tally,
    received: u64,
    sent: u64,
    last_sent: u64,
    held_back: u64,
    /// Number of the last interval whose latency was reported.
    interval: u64,
}

impl<'a> Ledger<'a> {
    /// For the flows with these numbers in the plan.
    pub(crate) fn new(
        plan: &'a Plan,
        thread: usize,
        clock: Clock,
        shared: &'a Shared<'a>,
        template: Box<dyn Template>,
        flows: impl Iterator<Item = u32>,
    ) -> Self {
        let flows: Box<[Flow]> = flows
            .map(|number| Flow {
                number,
                pending: Pending::new(plan, template.seq_bits()),
                staged: 0,
                closed: false,
            })
            .collect();
        let inflight = match plan.arrivals {
            Arrivals::Closed { inflight } if plan.mode == Mode::Rr => inflight,
            _ => 0,
        };
        Self {
            plan,
            thread,
            clock,
            shared,
            failures: Failures::default(),
            queue_full: 0,
            own_drops: 0,
            unsent: 0,
            start_skew: None,
            warnings: Vec::new(),
            template,
            credits: Credits::new(flows.len(), inflight),
            flows,
            stamps: Box::default(),
            scheduled: plan.peak_rate().is_some(),
            sending: true,
            tally: Tally::new(),
            received: 0,
            sent: 0,
            last_sent: 0,
            held_back: 0,
            interval: 0,
        }
    }

    /// Allocates for `batch` requests at once.
    pub(super) fn prepare(&mut self, batch: usize) {
        if !self.scheduled {
            self.stamps = vec![0; batch].into();
        }
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The plan's number of flow `index`.
    pub(crate) fn number(&self, index: usize) -> u32 {
        self.flows[index].number
    }

    /// When the last request was sent.
    pub(super) fn last_sent(&self) -> u64 {
        self.last_sent
    }

    /// Requests in flight, on flows that can still receive.
    pub(super) fn open(&self) -> u64 {
        self.flows.iter().filter(|flow| !flow.closed).map(|flow| flow.pending.open()).sum()
    }

    /// Whether there is room for `count` more requests on flow `index`. Counts those that must wait.
    #[inline]
    pub(super) fn has_room(&mut self, index: usize, count: usize, now: u64) -> bool {
        let flow = &mut self.flows[index];
        let room = flow.pending.room(flow.staged + count as u64, now);
        self.held_back += u64::from(!room);
        room
    }

    /// Writes the request of flow `index` that is `ahead` places after the last one sent; returns its length.
    #[inline]
    pub(crate) fn write(&mut self, index: usize, ahead: u64, request: &mut [u8]) -> usize {
        let flow = &self.flows[index];
        let len = self.template.write(flow.number, flow.pending.next() + ahead, request);
        debug_assert!(len <= request.len() && len > 0, "{len} of {} bytes", request.len());
        len.min(request.len())
    }

    /// Requests of flow `index` that the engine took and has not sent.
    #[inline]
    pub(crate) fn staged(&self, index: usize) -> u64 {
        self.flows[index].staged
    }

    /// Records `count` requests of flow `index` that the engine took and will send later.
    #[inline]
    pub(crate) fn stage(&mut self, index: usize, count: u64) {
        self.flows[index].staged += count;
    }

    /// Records `count` staged requests of flow `index` that the engine sent or gave up.
    #[inline]
    pub(crate) fn unstage(&mut self, index: usize, count: u64) {
        self.flows[index].staged -= count;
    }

    /// Records the next request of flow `index` as sent at `at`.
    #[inline]
    pub(crate) fn sent(&mut self, index: usize, intended: u64, at: u64) {
        let pending = &mut self.flows[index].pending;
        if intended >= self.clock.window() {
            pending.begin_window();
            self.tally.sent(intended, at);
        }
        match self.plan.mode {
            Mode::Rr => pending.insert(intended, at),
            Mode::Stream | Mode::Flood => pending.skip(),
        }
        self.sent += 1;
        self.last_sent = at;
    }

    /// Records the next requests of flow `index` as sent at `at`, in one call.
    #[inline]
    pub(crate) fn sent_burst(&mut self, index: usize, intended: &[u64], at: u64) {
        if self.plan.mode != Mode::Rr && !self.scheduled {
            let count = intended.len() as u64;
            self.flows[index].pending.skip_many(count);
            self.tally.sent_unplanned(count);
            self.sent += count;
            self.last_sent = at;
        } else {
            for intended in intended {
                self.sent(index, *intended, at);
            }
        }
        self.failures.sent();
    }

    /// Records the next request of flow `index` as refused at `at`. True: continue with the one after it.
    pub(crate) fn refused(&mut self, index: usize, intended: u64, error: &io::Error, at: u64) -> bool {
        self.tally.counts.send_errors += u64::from(intended >= self.clock.window());
        if self.failures.refuse(error, at) {
            self.cut();
            return false;
        }
        if self.scheduled {
            self.flows[index].pending.skip();
        }
        self.scheduled
    }

    /// Records requests that cannot be sent because their flow is closed.
    pub(crate) fn undeliverable(&mut self, intended: &[u64]) {
        if self.scheduled {
            let window = self.clock.window();
            self.tally.counts.send_errors += intended.iter().filter(|at| **at >= window).count() as u64;
        }
    }

    /// Closes flow `index`: its requests in flight are lost.
    pub(crate) fn close_flow(&mut self, index: usize) {
        (self.flows[index].closed, self.flows[index].staged) = (true, 0);
    }

    /// Ends the run for a reason given by the engine.
    pub(crate) fn give_up_run(&mut self, why: String) {
        self.failures.give_up(why);
        self.cut();
    }

    fn cut(&self) {
        self.shared.cut.store(true, Ordering::Relaxed);
    }

    /// Judges a reply that arrived on the flow with this number in the plan.
    #[inline]
    pub(crate) fn check(&self, number: u32, reply: &[u8]) -> Judgement {
        self.template.check(number, reply)
    }

    /// Judges and counts a reply that arrived on flow `index` at `at`.
    #[inline]
    pub(crate) fn receive(&mut self, index: usize, reply: &[u8], at: u64) {
        let judgement = self.check(self.flows[index].number, reply);
        self.count(index, judgement, at);
    }

    /// Counts a judged reply that arrived on flow `index` at `at`.
    #[inline]
    pub(crate) fn count(&mut self, index: usize, judgement: Judgement, at: u64) {
        self.received += 1;
        let answered = self.tally.judge(&mut self.flows[index].pending, judgement, at, &self.clock);
        if answered && !self.scheduled {
            self.credits.earn(index, 1, at);
        }
    }

    /// Closed loop: sends the next requests of flows whose requests were answered.
    pub(crate) fn refill<T: Transmit>(&mut self, transmit: &mut T) {
        while self.sending
            && let Some((index, at)) = self.credits.next_earned()
        {
            self.spend(transmit, index, at);
        }
    }

    /// Closed loop: gives up requests past their timeout, and sends the next ones in their place.
    pub(super) fn give_up<T: Transmit>(&mut self, transmit: &mut T, now: u64) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let given_up = flow.pending.give_up(now);
            if given_up > 0 {
                self.credits.earn(index, given_up, now);
            }
        }
        self.refill(transmit);
    }

    /// Closed loop: tries the flows that wait; returns how long to wait then, nanoseconds.
    pub(super) fn send_waiting<T: Transmit>(&mut self, transmit: &mut T, now: u64) -> u64 {
        for _ in 0..Credits::TURN {
            match self.credits.next(now) {
                Ok(index) => self.spend(transmit, index, now),
                Err(pause) => return pause,
            }
        }
        0
    }

    /// Sends as many requests as flow `index` has credit for, intended at `now`.
    fn spend<T: Transmit>(&mut self, transmit: &mut T, index: usize, now: u64) {
        while self.credits.of(index) > 0 {
            let count = (self.credits.of(index) as usize).min(transmit.batch());
            // The table holds three times what is in flight; requests past their timeout make room.
            let sent =
                if self.has_room(index, count, now) { self.send_now(transmit, index, count, now) } else { 0 };
            self.credits.spend(index, sent as u32);
            if sent < count {
                return self.credits.wait(index, now + T::RETRY);
            }
        }
    }

    /// Sends `count` requests, intended at `now`, on flow `index`; returns how many the engine took.
    pub(super) fn send_now<T: Transmit>(
        &mut self,
        transmit: &mut T,
        index: usize,
        count: usize,
        now: u64,
    ) -> usize {
        let mut stamps = mem::take(&mut self.stamps);
        stamps[..count].fill(now);
        let taken = transmit.send(self, index, &stamps[..count]);
        self.stamps = stamps;
        taken
    }

    /// From now on replies do not make room for requests.
    pub(super) fn stop_sending(&mut self) {
        self.sending = false;
    }

    /// Publishes this thread's progress, once per turn.
    pub(super) fn publish(&mut self) {
        self.shared.publish(self.thread, self.sent, self.tally.ok_ever);
        self.shared.copies.offer(self.thread, &mut self.interval, self.tally.intended());
    }

    pub(super) fn into_report(mut self, time: ThreadTime, ended: u64) -> Report {
        self.tally.counts.received = self.received - self.tally.ignored;
        Report {
            kinds: self.template.kinds(),
            tally: self.tally,
            time,
            ended,
            unsent: self.unsent,
            start_skew: self.start_skew,
            queue_full: self.queue_full,
            held_back: self.held_back,
            own_drops: self.own_drops,
            failures: self.failures,
            warnings: self.warnings,
        }
    }
}
