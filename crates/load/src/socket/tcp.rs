//! TCP: `rr` with fixed-size messages, and `stream`; one thread's loop.
//!
//! ```text
//!   backlog (intended times) ──▶ messages written into one buffer ──write──▶ connection ──read──▶ cut into messages
//!      bounded, per connection     the first may be half sent already            the last may be half here already
//! ```
//! A message that the kernel took in part is written again from its transaction's number, so no connection keeps bytes
//! to send. It counts as sent when its last byte is taken.

mod replies;

use std::collections::VecDeque;
use std::io;
use std::iter::Peekable;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::{Task, try_later};
use crate::plan::{Arrivals, Mode, Plan, Schedule};
use crate::record::{Pending, Tally};
use crate::template::Template;
use crate::threads::{Clock, Course, Failures, LONGEST, Poller, Report, Shared, left_over};

/// Bytes per `write` and `read`. Higher: longer turns of one connection. Lower: more system calls.
const CHUNK: usize = 256 << 10;
/// Open loop: requests that may wait for a connection whose send buffer is full; then the whole schedule waits.
const BACKLOG: usize = 256;
/// Writes of one connection per turn.
const WRITES: usize = 4;
/// Schedule entries taken per turn.
const TURN: usize = 256;
/// Pause when nothing can be done but the schedule is due, nanoseconds.
const RETRY: u64 = 1_000_000;

struct Flow {
    number: u32,
    socket: OwnedFd,
    pending: Pending,
    /// Intended times of requests that are not wholly sent; the first is the one half sent.
    backlog: VecDeque<u64>,
    /// Bytes of the first one that the kernel has.
    offset: usize,
    /// Watched for room to send.
    blocked: bool,
    /// A reply that is not all here.
    inbox: Box<[u8]>,
    filled: usize,
    closed: bool,
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
    tx: Box<[u8]>,
    rx: Box<[u8]>,
    depth: usize,
    sending: bool,
    alive: usize,
    tally: Tally,
    failures: Failures,
    warnings: Vec<String>,
    received: u64,
    ignored: u64,
    sent_ever: u64,
    ok_ever: u64,
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
        let chunk = CHUNK.max(plan.size);
        let depth = match (plan.mode, plan.arrivals) {
            (Mode::Rr, Arrivals::Closed { inflight }) => inflight as usize,
            (_, Arrivals::Closed { .. }) => chunk / plan.size,
            _ => BACKLOG,
        };
        let inbox = if plan.mode == Mode::Rr { plan.size } else { 0 };
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|(number, socket)| Flow {
                number,
                socket,
                pending: Pending::new(plan),
                backlog: VecDeque::with_capacity(depth),
                offset: 0,
                blocked: false,
                inbox: vec![0; inbox].into(),
                filled: 0,
                closed: false,
            })
            .collect();
        Self {
            schedule: Schedule::new(plan, thread, plan.threads, flows.len() as u32).map(Iterator::peekable),
            plan,
            clock,
            shared,
            thread,
            template,
            poller,
            alive: flows.len(),
            flows,
            tx: vec![0; chunk].into(),
            rx: vec![0; CHUNK].into(),
            depth,
            sending: true,
            tally: Tally::new(),
            failures: Failures::default(),
            warnings: Vec::new(),
            received: 0,
            ignored: 0,
            sent_ever: 0,
            ok_ever: 0,
            last_sent: 0,
            queue_full: 0,
            held_back: 0,
        }
    }

    fn run(mut self) -> Report {
        for i in 0..self.flows.len() {
            if let Err(e) = self.poller.watch(self.flows[i].socket.as_fd(), i, false) {
                self.failures
                    .give_up(format!("cannot watch the connection of flow {}: {e}", self.flows[i].number));
                self.shared.cut.store(true, Ordering::Relaxed);
            }
        }
        let mut course = Course::start(self.plan, self.clock, self.shared);
        let mut now = self.clock.now();
        let rr = self.plan.mode == Mode::Rr;
        if self.schedule.is_none() {
            for index in 0..self.flows.len() {
                self.top_up(index, self.depth, now);
            }
        }
        while course.goes_on(now) {
            let pause = match self.schedule {
                Some(_) => self.take_due(now),
                None if rr => LONGEST,
                None => self.stream(now),
            };
            self.shared.tell(self.thread, self.sent_ever, self.ok_ever);
            self.turn(pause.min(self.clock.end() - now));
            now = self.clock.now();
            if rr && self.schedule.is_none() && course.gives_up(now) {
                for index in 0..self.flows.len() {
                    let given_up = self.flows[index].pending.give_up(now) as usize;
                    self.top_up(index, given_up, now);
                }
            }
        }
        let ended = now.min(self.clock.end());
        if self.schedule.is_some() && !self.shared.stopped() {
            // What fell due during the last sleep.
            self.take_due(ended);
        }
        self.sending = false;
        let left = left_over(self.schedule.as_mut(), self.plan, self.clock.window(), ended);
        let waiting: usize = self.flows.iter().map(|f| f.backlog.len()).sum();
        let unsent = if self.schedule.is_some() { left + waiting as u64 } else { 0 };
        let time = course.end();
        if rr {
            self.drain();
        }
        self.tally.counts.received = self.received - self.ignored;
        Report {
            tally: self.tally,
            time,
            ended,
            unsent,
            queue_full: self.queue_full,
            held_back: self.held_back,
            own_drops: 0,
            failures: self.failures,
            warnings: self.warnings,
        }
    }

    /// Moves what is due from the schedule to the connections; how long to wait then.
    fn take_due(&mut self, now: u64) -> u64 {
        for _ in 0..TURN {
            let Some(&next) = self.schedule.as_mut().and_then(Peekable::peek) else { return LONGEST };
            if next.at > now {
                return self.clock.pause(now, next.at);
            }
            let flow = &mut self.flows[next.flow as usize];
            if flow.closed {
                self.tally.counts.send_errors += u64::from(next.at >= self.clock.window());
            } else if flow.backlog.len() == self.depth {
                self.queue_full += 1;
                self.flush(next.flow as usize);
                return RETRY;
            } else {
                flow.backlog.push_back(next.at);
            }
            let index = next.flow as usize;
            let mut run_ends = true;
            if let Some(schedule) = &mut self.schedule {
                schedule.next();
                run_ends = schedule.peek().is_none_or(|t| t.flow as usize != index || t.at > now);
            }
            // A run of requests to one connection is one write.
            if run_ends {
                self.flush(index);
            }
        }
        0
    }

    /// Keeps all connections that have room full; how long to wait then.
    fn stream(&mut self, now: u64) -> u64 {
        let mut pause = LONGEST;
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            if flow.closed || flow.blocked {
                continue;
            }
            let room = self.depth - flow.backlog.len();
            self.top_up(index, room, now);
            if !self.flows[index].blocked {
                pause = 0;
            }
        }
        pause
    }

    /// Closed loop: lets connection `index` send `n` more requests.
    fn top_up(&mut self, index: usize, n: usize, now: u64) {
        let flow = &mut self.flows[index];
        if n == 0 || flow.closed || !self.sending {
            return;
        }
        for _ in 0..n.min(self.depth - flow.backlog.len()) {
            flow.backlog.push_back(now);
        }
        self.flush(index);
    }

    /// Writes as much of connection `index`'s backlog as the kernel takes, within a turn's bound.
    fn flush(&mut self, index: usize) {
        for _ in 0..WRITES {
            let size = self.plan.size;
            let flow = &mut self.flows[index];
            if flow.closed || flow.blocked || flow.backlog.is_empty() {
                return;
            }
            let now = self.clock.now();
            let n = flow.backlog.len().min(self.tx.len() / size);
            if self.plan.mode == Mode::Rr && !flow.pending.room(n as u64, now) {
                self.held_back += 1;
                break;
            }
            for (seq, message) in (flow.pending.next()..).zip(self.tx.chunks_exact_mut(size).take(n)) {
                self.template.write(flow.number, seq, message);
            }
            let bytes = &self.tx[flow.offset..n * size];
            match rustix::net::send(&flow.socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(taken) => self.account(index, taken, now),
                Err(e) => {
                    let error = io::Error::from(e);
                    if !try_later(&error) {
                        return self.close(index, &error.to_string());
                    }
                    self.queue_full += 1;
                    break;
                }
            }
        }
        // Whatever is left, because the kernel or the table is full or the turn is over, goes on when there is room.
        if !self.flows[index].backlog.is_empty() {
            self.block(index, true);
        }
    }

    /// `taken` more bytes of the backlog are with the kernel, handed over at `at`.
    fn account(&mut self, index: usize, taken: usize, at: u64) {
        let flow = &mut self.flows[index];
        let total = flow.offset + taken;
        let whole = total / self.plan.size;
        flow.offset = total % self.plan.size;
        for intended in flow.backlog.drain(..whole) {
            if intended >= self.clock.window() {
                flow.pending.begin_window();
                self.tally.sent(intended, at);
            }
            if self.plan.mode == Mode::Rr {
                flow.pending.insert(intended, at);
            } else {
                flow.pending.skip();
            }
        }
        self.sent_ever += whole as u64;
        self.last_sent = at;
        self.failures.sent();
    }

    fn block(&mut self, index: usize, blocked: bool) {
        let flow = &mut self.flows[index];
        if flow.blocked != blocked {
            flow.blocked = blocked;
            if let Err(e) = self.poller.rewatch(flow.socket.as_fd(), index, blocked) {
                self.close(index, &e.to_string());
            }
        }
    }

    /// Connection `index` is gone; when it was the last, so is the run.
    fn close(&mut self, index: usize, why: &str) {
        let flow = &mut self.flows[index];
        if flow.closed {
            return;
        }
        flow.closed = true;
        flow.backlog.clear();
        self.poller.forget(flow.socket.as_fd());
        self.alive -= 1;
        let when = self.clock.now() as f64 / 1e9;
        if self.warnings.is_empty() {
            self.warnings
                .push(format!("the connection of flow {} ended after {when:.1} s: {why}", flow.number));
        }
        if self.alive == 0 {
            self.failures.give_up(format!("no connection is left; the last ended after {when:.1} s: {why}"));
            self.shared.cut.store(true, Ordering::Relaxed);
        }
    }

    fn drain(&mut self) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        let deadline = self.last_sent.saturating_add(timeout.saturating_mul(2));
        loop {
            let now = self.clock.now();
            let open: u64 = self.flows.iter().filter(|f| !f.closed).map(|f| f.pending.open()).sum();
            if open == 0 || now >= deadline || self.alive == 0 {
                return;
            }
            self.turn(LONGEST.min(deadline - now));
        }
    }
}
