//! Request and reply over UDP: one thread's loop.
//!
//! ```text
//!   ┌▶ send what is due ──▶ wait until the next is due, or replies come ──▶ take replies, judge, refill ─┐
//!   └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Work is done in bursts: a run of requests to one flow is one `sendmmsg`, what a flow has received is one
//! `recvmmsg`, and the clock is read once for each. Nothing is allocated once the loop runs. Every inner loop is
//! bounded, so that neither sending nor receiving can keep the other waiting.

mod replies;

use std::io;
use std::iter::Peekable;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::sys::{Messages, dropped};
use super::{Task, try_later};
use crate::plan::{Arrivals, Plan, Schedule};
use crate::record::{Pending, Tally};
use crate::template::Template;
use crate::threads::{Clock, Course, Credits, Failures, LONGEST, Poller, Report, Shared, left_over};

/// Datagrams per system call. Higher: replies to the first wait until the last is handled, and buffers leave the
/// cache. Lower: more system calls.
const BATCH: usize = 64;
/// Bytes of buffers for each direction: with large payloads a batch is smaller.
const BATCH_BYTES: usize = 1 << 20;
/// Requests sent in one turn before replies are looked at.
const TURN: usize = 256;
/// Time after which a flow that could not send is tried again, nanoseconds.
const RETRY: u64 = 1_000_000;
/// Attempts to send after `ECONNREFUSED`, which tells of an earlier datagram: this one was not tried.
const REFUSALS: usize = 3;

struct Flow {
    number: u32,
    socket: OwnedFd,
    pending: Pending,
}

struct Worker<'a> {
    plan: &'a Plan,
    clock: Clock,
    shared: &'a Shared<'a>,
    thread: usize,
    template: Box<dyn Template>,
    poller: Poller,
    flows: Vec<Flow>,
    schedule: Option<Peekable<Schedule>>,
    tx: Messages,
    rx: Messages,
    /// Intended times of the requests in `tx`.
    due: Box<[u64]>,
    /// Open loop: flow, first and end of the requests in `tx` that the kernel has not taken yet.
    staged: Option<(usize, usize, usize)>,
    credits: Credits,
    sending: bool,
    tally: Tally,
    failures: Failures,
    /// Datagrams received.
    received: u64,
    sent_ever: u64,
    last_sent: u64,
    queue_full: u64,
    held_back: u64,
}

pub(super) fn work(task: Task<'_>) -> Report {
    Worker::new(task).run()
}

impl<'a> Worker<'a> {
    fn new(task: Task<'a>) -> Self {
        let Task { plan, thread, clock, shared, template, flows, poller } = task;
        let closed = match plan.arrivals {
            Arrivals::Closed { inflight } => inflight,
            _ => 0,
        };
        // One byte more than the longest reply: a longer one is seen to be longer.
        let reply = template.max_reply(plan.size).max(plan.size) + 1;
        let batch = (BATCH_BYTES / reply).clamp(1, BATCH);
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|(number, socket)| Flow { number, socket, pending: Pending::new(plan) })
            .collect();
        let mut tx = Messages::new(batch, plan.size);
        for i in 0..batch {
            tx.set_len(i, plan.size);
        }
        Self {
            schedule: Schedule::new(plan, thread, plan.threads, flows.len() as u32).map(Iterator::peekable),
            credits: Credits::new(flows.len(), closed, RETRY),
            plan,
            clock,
            shared,
            thread,
            template,
            poller,
            flows,
            tx,
            rx: Messages::new(batch, reply),
            due: vec![0; batch].into(),
            staged: None,
            sending: true,
            tally: Tally::new(),
            failures: Failures::default(),
            received: 0,
            sent_ever: 0,
            last_sent: 0,
            queue_full: 0,
            held_back: 0,
        }
    }

    fn run(mut self) -> Report {
        for i in 0..self.flows.len() {
            if let Err(e) = self.poller.watch(self.flows[i].socket.as_fd(), i, false) {
                self.failures
                    .give_up(format!("cannot watch the socket of flow {}: {e}", self.flows[i].number));
                self.shared.cut.store(true, Ordering::Relaxed);
            }
        }
        let mut course = Course::start(self.plan, self.clock, self.shared);
        let mut now = self.clock.now();
        while course.goes_on(now) {
            let pause = match self.schedule {
                Some(_) => self.send_due(now),
                None => self.refill(now),
            };
            let pause = pause.min(self.clock.end() - now);
            self.shared.tell(self.thread, self.sent_ever, self.tally.ok_ever);
            self.receive_ready(pause);
            now = self.clock.now();
            if self.schedule.is_none() && course.gives_up(now) {
                self.give_up(now);
            }
        }
        let ended = now.min(self.clock.end());
        if self.schedule.is_some() && !self.shared.stopped() {
            // What fell due during the last sleep.
            self.send_due(ended);
        }
        self.sending = false;
        let unsent = self.unsent(ended);
        let time = course.end();
        self.drain();
        self.tally.counts.received = self.received - self.tally.ignored;
        Report {
            own_drops: self.flows.iter().map(|f| dropped(f.socket.as_fd())).sum(),
            tally: self.tally,
            time,
            ended,
            unsent,
            queue_full: self.queue_full,
            held_back: self.held_back,
            failures: self.failures,
            warnings: Vec::new(),
        }
    }

    // ---- sending, open loop ----

    /// Sends what is due; how long to wait then.
    fn send_due(&mut self, now: u64) -> u64 {
        if let Some((flow, from, to)) = self.staged.take() {
            let done = self.transmit(flow, from, to);
            if done < to {
                self.staged = Some((flow, done, to));
                return RETRY;
            }
        }
        let mut sent = 0;
        while sent < TURN {
            let Some(next) = self.peek() else { return LONGEST };
            if next.0 > now {
                return self.clock.pause(now, next.0);
            }
            let index = next.1;
            if !self.flows[index].pending.room(self.tx.count() as u64, now) {
                self.held_back += 1;
                return RETRY;
            }
            let n = self.gather(index, now);
            let done = self.transmit(index, 0, n);
            if done < n {
                self.staged = Some((index, done, n));
                return RETRY;
            }
            sent += n;
        }
        0
    }

    /// Intended time and flow of the next request.
    fn peek(&mut self) -> Option<(u64, usize)> {
        self.schedule.as_mut()?.peek().map(|t| (t.at, t.flow as usize))
    }

    /// Writes the requests that are due on flow `index` one after the other into `tx`; how many.
    fn gather(&mut self, index: usize, now: u64) -> usize {
        let mut n = 0;
        while n < self.tx.count() {
            match self.peek() {
                Some((at, flow)) if flow == index && at <= now => self.due[n] = at,
                _ => break,
            }
            self.write(index, n);
            n += 1;
            if let Some(schedule) = &mut self.schedule {
                schedule.next();
            }
        }
        n
    }

    /// Writes the `n`-th request from now of flow `index` into place `n`.
    fn write(&mut self, index: usize, n: usize) {
        let flow = &self.flows[index];
        self.template.write(flow.number, flow.pending.next() + n as u64, self.tx.buffer(n));
    }

    /// Requests due before `ended` that were never tried.
    fn unsent(&mut self, ended: u64) -> u64 {
        let staged = self.staged.map_or(0, |(_, from, to)| (to - from) as u64);
        staged + left_over(self.schedule.as_mut(), self.plan, self.clock.window(), ended)
    }

    // ---- sending, closed loop ----

    /// Fills up flows that wait for it; how long to wait then.
    fn refill(&mut self, now: u64) -> u64 {
        for _ in 0..Credits::TURN {
            match self.credits.next(now) {
                Ok(index) => self.spend(index, now),
                Err(pause) => return pause,
            }
        }
        0
    }

    /// Sends as many requests as flow `index` has credit for, intended `now`.
    fn spend(&mut self, index: usize, now: u64) {
        if !self.sending {
            return;
        }
        while self.credits.of(index) > 0 {
            let n = (self.credits.of(index) as usize).min(self.tx.count());
            // The closed loop's table holds three times what is in flight; open ones past their timeout make room.
            if !self.flows[index].pending.room(n as u64, now) {
                self.held_back += 1;
                return self.credits.wait(index, now);
            }
            for i in 0..n {
                self.write(index, i);
                self.due[i] = now;
            }
            let done = self.transmit(index, 0, n);
            self.credits.spend(index, done as u32);
            if done < n {
                return self.credits.wait(index, now);
            }
        }
    }

    fn give_up(&mut self, now: u64) {
        for index in 0..self.flows.len() {
            let given_up = self.flows[index].pending.give_up(now);
            if given_up > 0 {
                self.credits.earn(index, given_up);
                self.spend(index, now);
            }
        }
    }

    // ---- sending, both ----

    /// Hands requests `from..to` of `tx` to the kernel; the first that it has not taken. Open loop: a request the
    /// kernel refuses is counted and passed over. Closed loop: it keeps its credit, and the flow waits.
    fn transmit(&mut self, index: usize, from: usize, to: usize) -> usize {
        let flow = &mut self.flows[index];
        let (mut from, mut refusals) = (from, 0);
        while from < to {
            let at = self.clock.now();
            let error = match self.tx.send(flow.socket.as_fd(), from, to) {
                Ok(n) => {
                    for &intended in &self.due[from..from + n] {
                        if intended >= self.clock.window() {
                            flow.pending.begin_window();
                            self.tally.sent(intended, at);
                        }
                        flow.pending.insert(intended, at);
                    }
                    from += n;
                    self.sent_ever += n as u64;
                    self.last_sent = at;
                    self.failures.sent();
                    continue;
                }
                Err(error) => error,
            };
            if try_later(&error) {
                self.queue_full += 1;
                return from;
            }
            if error.kind() == io::ErrorKind::ConnectionRefused {
                self.failures.refused += 1;
                refusals += 1;
                if refusals < REFUSALS {
                    continue;
                }
                return from;
            }
            if self.due[from] >= self.clock.window() {
                self.tally.counts.send_errors += 1;
            }
            if self.failures.refuse(&error, at) {
                self.shared.cut.store(true, Ordering::Relaxed);
                return from;
            }
            if self.schedule.is_none() {
                return from;
            }
            flow.pending.skip();
            from += 1;
        }
        from
    }
}
