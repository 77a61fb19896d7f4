//! One way over UDP: `stream` and `flood`, one thread's loop.
//!
//! `stream` hands the kernel several datagrams as one message and lets it cut them (GSO), down to the very edge of the
//! stack. `flood` sends each on its own, many per system call. Both send as fast as the sockets take it, or at the
//! plan's rate. Nothing comes back: what arrived, the receiver must be asked (see `run`).

use std::io;
use std::iter::Peekable;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::sys::{Messages, set_segment};
use super::{Task, try_later};
use crate::plan::{MAX_SIZE, Mode, Plan, Schedule};
use crate::record::{Tally, ThreadTime};
use crate::template::Template;
use crate::threads::{Clock, Failures, LONGEST, Poller, Report, Shared, left_over};

/// Datagrams that one message may be cut into; the kernel's own limit (UDP_MAX_SEGMENTS) before 6.9.
const SEGMENTS: usize = 64;
/// Messages per system call. Higher: longer bursts of one flow. Lower: more system calls.
const FLOOD_BATCH: usize = 32;
const STREAM_BATCH: usize = 4;
/// Bursts that may follow the end of the window.
const LAST: usize = 16;
/// Time to wait for room in a full send queue before the clock is looked at again, nanoseconds.
const ROOM: i64 = 10_000_000;
/// Attempts to send after `ECONNREFUSED`, which tells of an earlier datagram.
const REFUSALS: usize = 3;

struct Flow {
    number: u32,
    socket: OwnedFd,
    seq: u64,
}

/// How a burst ended.
enum Burst {
    /// All of it was sent (or refused and counted).
    Done,
    /// The queue is full; datagrams from this one on are left.
    Blocked(usize),
    /// It is of no use to go on.
    Hopeless,
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
    /// Datagrams per message: 1 without GSO.
    segments: usize,
    /// Intended times of the burst's datagrams.
    due: Box<[u64]>,
    tally: Tally,
    failures: Failures,
    sent_ever: u64,
    queue_full: u64,
    warnings: Vec<String>,
}

pub(super) fn work(task: Task<'_>) -> Report {
    Worker::new(task).run()
}

impl<'a> Worker<'a> {
    fn new(task: Task<'a>) -> Self {
        let Task { plan, thread, clock, shared, template, flows, poller } = task;
        let flows: Vec<Flow> =
            flows.into_iter().map(|(number, socket)| Flow { number, socket, seq: 0 }).collect();
        let (segments, batch) = match plan.mode {
            Mode::Stream => ((MAX_SIZE / plan.size).clamp(1, SEGMENTS), STREAM_BATCH),
            _ => (1, FLOOD_BATCH),
        };
        let batch = if segments == 1 { FLOOD_BATCH.min((1 << 20) / plan.size) } else { batch };
        let mut worker = Self {
            schedule: Schedule::new(plan, thread, plan.threads, flows.len() as u32).map(Iterator::peekable),
            plan,
            clock,
            shared,
            thread,
            template,
            poller,
            flows,
            tx: Messages::new(batch, segments * plan.size),
            segments,
            due: vec![0; batch * segments].into(),
            tally: Tally::new(),
            failures: Failures::default(),
            sent_ever: 0,
            queue_full: 0,
            warnings: Vec::new(),
        };
        if segments > 1 {
            worker.segment();
        }
        worker
    }

    /// Switches GSO on for all flows, or off for good.
    fn segment(&mut self) {
        let size = self.plan.size as u16;
        if let Some(e) = self.flows.iter().find_map(|f| set_segment(f.socket.as_fd(), size).err()) {
            self.stop_segmenting(&e);
        }
    }

    fn stop_segmenting(&mut self, why: &io::Error) {
        self.segments = 1;
        for flow in &self.flows {
            // A kernel that cannot switch it off could not switch it on.
            let _ = set_segment(flow.socket.as_fd(), 0);
        }
        self.warnings
            .push(format!("sent without GSO, one datagram per message: the kernel refused it ({why})"));
    }

    fn run(mut self) -> Report {
        self.clock.wait_for_start();
        let began = ThreadTime::now();
        match self.schedule.is_some() {
            true => self.keep_the_rate(),
            false => self.as_fast_as_it_goes(),
        }
        let ended = self.clock.now().min(self.clock.end());
        let unsent = self.unsent(ended);
        let time = ThreadTime::now().since(began);
        self.shared.running.fetch_sub(1, Ordering::Release);
        Report {
            tally: self.tally,
            time,
            ended,
            unsent,
            queue_full: self.queue_full,
            held_back: 0,
            own_drops: 0,
            failures: self.failures,
            warnings: self.warnings,
        }
    }

    fn going(&self) -> bool {
        self.shared.tell(self.thread, self.sent_ever, 0);
        self.clock.now() < self.clock.end() && !self.shared.stopped()
    }

    fn as_fast_as_it_goes(&mut self) {
        let mut index = 0;
        while self.going() {
            let n = self.tx.count() * self.segments;
            match self.burst(index, 0, n) {
                Burst::Done => {}
                Burst::Blocked(_) => self.wait_for_room(index),
                Burst::Hopeless => return,
            }
            index = (index + 1) % self.flows.len();
        }
    }

    fn keep_the_rate(&mut self) {
        let mut left = None;
        while self.going() {
            let (index, from, n) = match left.take() {
                Some(left) => left,
                None => {
                    let now = self.clock.now();
                    match self.gather(now) {
                        Ok((index, n)) => (index, 0, n),
                        Err(next) => {
                            let pause = self.clock.pause(now, next).min(self.clock.end().saturating_sub(now));
                            if pause > 0 {
                                self.poller.wait(pause);
                            }
                            continue;
                        }
                    }
                }
            };
            match self.burst(index, from, n) {
                Burst::Done => {}
                Burst::Blocked(from) => {
                    self.wait_for_room(index);
                    left = Some((index, from, n));
                }
                Burst::Hopeless => return,
            }
        }
        // What fell due during the last sleep: little, unless the rate was not kept anyway.
        for _ in 0..LAST {
            if left.is_some() || self.shared.stopped() {
                return;
            }
            let Ok((index, n)) = self.gather(self.clock.end() - 1) else { return };
            if !matches!(self.burst(index, 0, n), Burst::Done) {
                return;
            }
        }
    }

    /// The flow and number of datagrams due now, their times in `due`; or when the next one is.
    fn gather(&mut self, now: u64) -> Result<(usize, usize), u64> {
        let most = self.tx.count() * self.segments;
        let Some(schedule) = &mut self.schedule else { return Err(now + LONGEST) };
        let Some(first) = schedule.peek().copied() else { return Err(now + LONGEST) };
        if first.at > now {
            return Err(first.at);
        }
        let mut n = 0;
        while n < most
            && let Some(next) = schedule.next_if(|t| t.flow == first.flow && t.at <= now)
        {
            self.due[n] = next.at;
            n += 1;
        }
        Ok((first.flow as usize, n))
    }

    /// Sends datagrams `from..to` of a burst on flow `index`.
    fn burst(&mut self, index: usize, mut from: usize, to: usize) -> Burst {
        let mut refusals = 0;
        while from < to {
            let messages = self.write(index, to - from);
            let at = self.clock.now();
            let error = match self.tx.send(self.flows[index].socket.as_fd(), 0, messages) {
                Ok(taken) => {
                    let n: usize = (0..taken).map(|i| self.tx.len(i) / self.plan.size).sum();
                    self.count(&(from..from + n), at);
                    self.flows[index].seq += n as u64;
                    self.sent_ever += n as u64;
                    self.failures.sent();
                    from += n;
                    continue;
                }
                Err(error) => error,
            };
            if try_later(&error) {
                self.queue_full += 1;
                return Burst::Blocked(from);
            }
            if error.kind() == io::ErrorKind::ConnectionRefused {
                self.failures.refused += 1;
                refusals += 1;
                if refusals < REFUSALS {
                    continue;
                }
                return Burst::Blocked(from);
            }
            if self.segments > 1 && refuses_gso(&error) {
                self.stop_segmenting(&error);
                continue;
            }
            self.tally.counts.send_errors += 1;
            if self.failures.refuse(&error, at) {
                self.shared.cut.store(true, Ordering::Relaxed);
                return Burst::Hopeless;
            }
            if self.schedule.is_none() {
                return Burst::Blocked(from);
            }
            from += 1;
        }
        Burst::Done
    }

    /// Writes up to `n` datagrams as messages; how many messages.
    fn write(&mut self, index: usize, n: usize) -> usize {
        let Flow { number, seq, .. } = self.flows[index];
        let size = self.plan.size;
        let n = n.min(self.tx.count() * self.segments);
        for datagram in 0..n {
            let (message, place) = (datagram / self.segments, datagram % self.segments);
            let bytes = &mut self.tx.buffer(message)[place * size..][..size];
            self.template.write(number, seq + datagram as u64, bytes);
            self.tx.set_len(message, (place + 1) * size);
        }
        n.div_ceil(self.segments)
    }

    fn count(&mut self, burst: &std::ops::Range<usize>, at: u64) {
        if self.schedule.is_none() {
            return self.tally.sent_unplanned(burst.len() as u64);
        }
        for &intended in &self.due[burst.clone()] {
            self.tally.sent(intended, at);
        }
    }

    fn wait_for_room(&self, index: usize) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: ROOM };
        // Errors show at the next send; a wait that ends early costs one more.
        let _ = poll(&mut [PollFd::new(&self.flows[index].socket, PollFlags::OUT)], Some(&timeout));
    }

    fn unsent(&mut self, ended: u64) -> u64 {
        left_over(self.schedule.as_mut(), self.plan, self.clock.window(), ended)
    }
}

/// Errors that sending several datagrams at once can have and sending one cannot.
fn refuses_gso(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP))
}
