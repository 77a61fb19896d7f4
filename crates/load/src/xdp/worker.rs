//! One thread's loop: requests into lanes, replies out of them.
//!
//! ```text
//!   ┌▶ write what is due ──▶ flush all lanes ──▶ wait until the next is due, or replies come ──▶ judge, refill ─┐
//!   └───────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Nothing is allocated once the loop runs, no lock is taken, and the kernel is called per burst: to send, and to wait.
//! As in the socket engine every inner loop is bounded, so that neither sending nor receiving keeps the other waiting.

mod flow;
mod live;
mod replies;

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use udpath_stack::frame::{BURST, Burst};
use udpath_stack::port::Port;
use udpath_stack::wire;

use super::Sums;
use super::hand_over::{Links, Verdict};
use super::lane::{Lane, Staged};
use super::live::Live;
use super::table::Table;
use crate::plan::{Arrivals, Intended, Plan, Schedule};
use crate::record::{Pending, Tally, ThreadTime};
use crate::template::Template;
use crate::threads::{Clock, Course, Credits, Failures, LONGEST, Report, Shared, left_over};
use flow::Flow;

/// Requests written in one turn before replies are looked at.
const TURN: usize = 256;
/// Time after which a request that found no room is tried again, nanoseconds. Longer: the transmit ring, 2,048 packets or
/// a millisecond's worth, runs dry. Shorter: CPU time for asking.
const RETRY: u64 = 50_000;
/// Time between two looks whether sending works at all, nanoseconds: a system call per port each. Longer: a link that
/// went away is noticed later.
const LOOK: u64 = 100_000_000;
/// A thread whose ports have sent nothing for this long although they tried gives up, nanoseconds. Shorter: a link that
/// flaps ends the run. Longer: a run over a removed interface burns its whole window.
const HOPELESS: u64 = 1_000_000_000;

/// What one thread is given.
pub(super) struct Task<'a> {
    pub(super) plan: &'a Plan,
    pub(super) thread: usize,
    pub(super) clock: Clock,
    pub(super) shared: &'a Shared<'a>,
    pub(super) sums: &'a Sums,
    pub(super) table: &'a Table,
    pub(super) template: Box<dyn Template>,
    pub(super) lanes: Vec<Lane>,
    /// None: everything is sent by lanes.
    pub(super) live: Option<Live>,
    /// Its flows: number in the plan, lane, headers.
    pub(super) flows: Vec<(u32, usize, wire::Template)>,
    pub(super) links: Links,
}

struct Worker<'a> {
    plan: &'a Plan,
    clock: Clock,
    shared: &'a Shared<'a>,
    sums: &'a Sums,
    table: &'a Table,
    thread: usize,
    template: Box<dyn Template>,
    lanes: Vec<Lane>,
    live: Option<Live>,
    /// What is staged now goes into live frames.
    live_now: bool,
    links: Links,
    flows: Vec<Flow>,
    schedule: Option<Peekable<Schedule>>,
    /// Open loop: taken out of the schedule, due, and not staged yet.
    due: VecDeque<Intended>,
    rx: Burst,
    verdicts: ArrayVec<Verdict, BURST>,
    credits: Credits,
    sending: bool,
    tally: Tally,
    failures: Failures,
    stuck_since: Option<u64>,
    received: u64,
    strangers: u64,
    damaged: u64,
    sent_ever: u64,
    last_sent: u64,
    ring_full: u64,
    held_back: u64,
    live_sent: u64,
    live_calls: u64,
    live_dropped: u64,
    /// Requests of the window that were staged and given up again.
    left: u64,
}

/// Carries out a task.
pub(super) fn work(task: Task<'_>) -> Report {
    Worker::new(task).run()
}

impl<'a> Worker<'a> {
    fn new(task: Task<'a>) -> Self {
        let Task { plan, thread, clock, shared, sums, table, template, lanes, live, flows, links } = task;
        let closed = match plan.arrivals {
            Arrivals::Closed { inflight } => inflight,
            _ => 0,
        };
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|(number, lane, headers)| Flow {
                number,
                lane,
                headers,
                pending: Pending::new(plan),
                staged: 0,
            })
            .collect();
        Self {
            schedule: Schedule::new(plan, thread, plan.threads, flows.len() as u32).map(Iterator::peekable),
            credits: Credits::new(flows.len(), closed, RETRY),
            plan,
            clock,
            shared,
            sums,
            table,
            thread,
            template,
            lanes,
            live,
            live_now: false,
            links,
            flows,
            due: VecDeque::with_capacity(TURN),
            rx: Burst::new(),
            verdicts: ArrayVec::new(),
            sending: true,
            tally: Tally::new(),
            failures: Failures::default(),
            stuck_since: None,
            received: 0,
            strangers: 0,
            damaged: 0,
            sent_ever: 0,
            last_sent: 0,
            ring_full: 0,
            held_back: 0,
            live_sent: 0,
            live_calls: 0,
            live_dropped: 0,
            left: 0,
        }
    }

    fn run(mut self) -> Report {
        let mut course = Course::start(self.plan, self.clock, self.shared);
        let mut look_at = LOOK;
        let mut now = self.clock.now();
        while course.goes_on(now) {
            let pause = match self.schedule {
                Some(_) => self.send_due(now),
                None => self.refill(now),
            };
            let pause = pause.min(self.clock.end() - now);
            self.flush();
            self.shared.tell(self.thread, self.sent_ever, self.tally.ok_ever);
            self.wait(pause);
            self.receive();
            now = self.clock.now();
            if self.schedule.is_none() && course.gives_up(now) {
                self.give_up(now);
            }
            if now >= look_at {
                self.look(now);
                look_at = now + LOOK;
            }
        }
        let ended = now.min(self.clock.end());
        if self.schedule.is_some() && !self.shared.stopped() {
            // What fell due during the last sleep.
            self.send_due(ended);
        }
        self.flush();
        self.sending = false;
        let window = self.clock.window();
        let due = self.due.iter().filter(|due| (window..ended).contains(&due.at)).count() as u64;
        let unsent = due + left_over(self.schedule.as_mut(), self.plan, window, ended);
        let time = course.end();
        self.drain();
        self.report(ended, unsent, time)
    }

    fn report(mut self, ended: u64, unsent: u64, time: ThreadTime) -> Report {
        let waiting = self.live.as_ref().map_or(0, |live| live.staged.len() as u64);
        let unsent = unsent + self.left + waiting + self.lanes.iter_mut().map(Lane::close).sum::<u64>();
        let missed: u64 = self.lanes.iter().map(|lane| lane.port.counts().missed).sum();
        let dropped: u64 = self.lanes.iter().map(|lane| lane.port.statistics().dropped_sending).sum();
        for (sum, count) in [
            (&self.sums.handed_over, self.links.handed_over),
            (&self.sums.strangers, self.strangers),
            (&self.sums.damaged, self.damaged),
            (&self.sums.dropped, dropped + self.live_dropped),
            (&self.sums.live, self.live_sent),
            (&self.sums.live_calls, self.live_calls),
            (&self.sums.ring_full, self.ring_full),
        ] {
            sum.fetch_add(count, Ordering::Relaxed);
        }
        self.tally.counts.received = self.received - self.tally.ignored;
        Report {
            own_drops: missed + self.links.lost,
            tally: self.tally,
            time,
            ended,
            unsent,
            queue_full: self.ring_full,
            held_back: self.held_back,
            failures: self.failures,
            warnings: Vec::new(),
        }
    }

    /// Looks whether requests get away, and ends the run if none has for long.
    fn look(&mut self, now: u64) {
        let stuck = self.lanes.iter_mut().fold(0, |stuck, lane| stuck + usize::from(lane.is_stuck()));
        if stuck == 0 {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert(now);
        if now - since > HOPELESS {
            let name = self.lanes.first().map_or("", |lane| lane.port.properties().name.as_str());
            let name = name.split(' ').next().unwrap_or_default();
            self.failures.give_up(format!(
                "for {:.1} s nothing could be sent by {name}: its link is down, or the interface was removed",
                (now - since) as f64 / 1e9
            ));
            self.shared.cut.store(true, Ordering::Relaxed);
        }
    }

    // ---- sending, open loop ----

    /// Writes what is due; how long to wait then.
    fn send_due(&mut self, now: u64) -> u64 {
        let pause = self.gather(now);
        self.live_now = self.goes_live();
        while let Some(&Intended { at, flow }) = self.due.front() {
            if !self.stage(flow as usize, at, now) {
                return RETRY;
            }
            self.due.pop_front();
        }
        pause
    }

    /// Takes what is due out of the schedule, as much as a turn holds; how long until the next is.
    fn gather(&mut self, now: u64) -> u64 {
        let Some(schedule) = &mut self.schedule else { return LONGEST };
        while self.due.len() < TURN {
            match schedule.peek() {
                None => return LONGEST,
                Some(next) if next.at > now => return self.clock.pause(now, next.at),
                Some(_) => self.due.extend(schedule.next()),
            }
        }
        0
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

    /// Writes as many requests as flow `index` has credit for, intended `now`.
    fn spend(&mut self, index: usize, now: u64) {
        while self.sending && self.credits.of(index) > 0 {
            if !self.stage(index, now, now) {
                return self.credits.wait(index, now);
            }
            self.credits.spend(index, 1);
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

    /// Writes the next request of flow `index` into its lane, or a live frame. False: there is no room for it now.
    #[inline]
    fn stage(&mut self, index: usize, intended: u64, now: u64) -> bool {
        if self.live_now {
            return self.stage_live(index, intended, now);
        }
        let lane = self.flows[index].lane;
        if self.lanes[lane].is_full() {
            self.send(lane);
        }
        let flow = &mut self.flows[index];
        if !flow.pending.room(flow.staged + 1, now) {
            self.held_back += 1;
            return false;
        }
        let lane = &mut self.lanes[lane];
        let frame = if lane.is_full() { None } else { lane.frame() };
        let Some(mut frame) = frame else {
            self.ring_full += 1;
            return false;
        };
        let size = self.plan.size;
        // It fits: the size was held to the MTU, and the frame to the size, before the start. If not, the reply to what
        // goes out will never come, and is counted as lost.
        let fits = frame.set_len(flow.headers.payload_offset() + size);
        debug_assert!(fits, "a frame has room for the plan's size");
        flow.write(&mut *self.template, size, frame.bytes_mut());
        lane.stage(frame, Staged { index: index as u32, intended });
        true
    }

    /// Hands one lane's burst to the kernel and enters its requests as sent.
    #[inline]
    fn send(&mut self, lane: usize) {
        let Self { lanes, flows, tally, clock, .. } = self;
        let lane = &mut lanes[lane];
        if lane.waiting() > 0 {
            let (at, mut count) = (clock.now(), 0);
            for Staged { index, intended } in lane.hand_over() {
                flows[index as usize].enter(tally, clock, intended, at);
                count += 1;
            }
            self.sent_ever += count;
            self.last_sent = at;
        }
        lane.flush();
    }

    /// Sends what all lanes and live frames have, and lets the kernel know of the frames that came back.
    fn flush(&mut self) {
        self.send_live();
        for lane in 0..self.lanes.len() {
            self.send(lane);
        }
    }

    /// Waits at most `pause` nanoseconds for replies or verdicts.
    fn wait(&mut self, pause: u64) {
        if pause > 0 {
            self.links.sleep(&self.lanes, pause);
        }
    }
}
