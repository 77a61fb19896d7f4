//! The loop that every engine in user space runs on each of its threads.
//!
//! ```text
//!   ┌▶ send what is due, or has room again ──▶ wait for the next due time, or for replies ──▶ receive, judge, refill ─┐
//!   └─────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//!
//!   due.rs         open loop: requests due by the schedule, in runs to one flow
//!   credits.rs     closed loop: how many requests each flow may send
//!   ledger.rs      requests in flight, outcomes of the others, and the contents of the result
//!   run_window.rs  when the measured window begins and ends, and when lost requests are given up
//! ```
//! An engine implements [`Transmit`]: how a run of requests to one flow is sent, and how replies are received.
//! Everything else (intended times, requests in flight, loss and lateness, counts, progress) is here, once.
//!
//! Work is done in bursts, and the clock is read once per burst. Nothing is allocated once the loop runs. Every inner
//! loop is bounded, so neither sending nor receiving starves the other.

mod credits;
mod due;
mod ledger;
mod run_window;

pub(crate) use ledger::Ledger;

use due::Due;
use run_window::RunWindow;

use crate::clock::MAX_PAUSE;
use crate::plan::Mode;
use crate::threads::Report;

/// Turns that may follow the end of the window, for requests that fell due during the last wait.
const LAST_TURNS: usize = 2;
/// Once all requests are answered, duplicates are awaited for this long, nanoseconds.
const QUIET: u64 = 20_000_000;

/// How one engine sends requests and receives replies, for one thread.
pub(crate) trait Transmit: Sized {
    /// Pause before the next attempt when a request could not be sent, nanoseconds.
    const RETRY: u64;
    /// How long after its own deadline a thread still serves replies to other threads, nanoseconds.
    const GRACE: u64 = 0;

    /// Most requests of one [`Transmit::send`]; at most [`due::TURN`] in an open loop.
    fn batch(&self) -> usize;

    /// Prepares to receive, before the plan starts.
    fn begin(&mut self, _ledger: &mut Ledger<'_>) {}

    /// Announces that `due` requests are due now, in an open loop.
    fn begin_turn(&mut self, _due: usize) {}

    /// Whether flow `index` can take requests now. Called where requests are unlimited.
    fn is_ready(&self, _index: usize) -> bool {
        true
    }

    /// Takes the requests with these intended times on flow `index`, in order, as many as possible; returns how many.
    /// Each is recorded in the ledger as sent or refused now, or as staged and sent later.
    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize;

    /// Sends the staged requests.
    fn flush(&mut self, _ledger: &mut Ledger<'_>) {}

    /// Waits at most `pause` nanoseconds for something to receive, or for room to send.
    fn wait(&mut self, pause: u64);

    /// Receives available replies, passes each to the ledger, and calls [`Ledger::refill`] after each burst; returns
    /// how many.
    fn receive(&mut self, ledger: &mut Ledger<'_>) -> usize;

    /// Checks that sending works at all; called once per turn.
    fn check(&mut self, _ledger: &mut Ledger<'_>, _now: u64) {}

    /// Whether this thread may end. Called while nothing is left to receive.
    fn may_end(&mut self) -> bool {
        true
    }

    /// Adds the remaining requests, and figures that only the engine knows, to the ledger.
    fn close(self, _ledger: &mut Ledger<'_>) {}
}

/// The source of requests.
enum Source {
    /// Open loop: a schedule.
    Schedule(Due),
    /// Closed loop: as many as were answered or given up.
    Credits,
    /// One way, without a rate: as many as the engine takes, flow by flow from this one on.
    Unlimited { next: usize },
}

struct Loop<'a, T> {
    transmit: T,
    ledger: Ledger<'a>,
    source: Source,
}

/// Runs one thread's part of a plan.
pub(crate) fn work<T: Transmit>(transmit: T, mut ledger: Ledger<'_>) -> Report {
    let source = match (Due::new(&ledger), ledger.plan.mode) {
        (Some(due), _) => Source::Schedule(due),
        (None, Mode::Rr) => Source::Credits,
        (None, Mode::Stream | Mode::Flood) => Source::Unlimited { next: 0 },
    };
    ledger.prepare(transmit.batch());
    Loop { transmit, ledger, source }.run()
}

impl<T: Transmit> Loop<'_, T> {
    fn run(mut self) -> Report {
        let clock = self.ledger.clock;
        self.transmit.begin(&mut self.ledger);
        let mut window = RunWindow::start(self.ledger.plan, clock, self.ledger.shared);
        let mut now = clock.now();
        while window.is_open(now) {
            let pause = self.send(now).min(clock.end() - now);
            self.transmit.flush(&mut self.ledger);
            self.ledger.publish();
            self.transmit.wait(pause);
            self.transmit.receive(&mut self.ledger);
            now = clock.now();
            if matches!(self.source, Source::Credits) && window.is_time_to_give_up(now) {
                self.ledger.give_up(&mut self.transmit, now);
            }
            self.transmit.check(&mut self.ledger, now);
        }
        let ended = now.min(clock.end());
        if matches!(self.source, Source::Schedule(_)) {
            self.send_last(ended);
        }
        self.transmit.flush(&mut self.ledger);
        self.ledger.stop_sending();
        if let Source::Schedule(due) = &mut self.source {
            self.ledger.unsent += due.unsent(self.ledger.plan, clock.window(), ended);
        }
        self.ledger.start_skew = window.start_skew;
        let time = window.end();
        if self.ledger.plan.mode == Mode::Rr {
            self.drain();
        }
        self.transmit.close(&mut self.ledger);
        self.ledger.into_report(time, ended)
    }

    /// Sends the requests that can be sent; returns how long to wait then, nanoseconds.
    fn send(&mut self, now: u64) -> u64 {
        let Self { transmit, ledger, source } = self;
        match source {
            Source::Schedule(due) => send_due(transmit, ledger, due, now),
            Source::Credits => ledger.send_waiting(transmit, now),
            Source::Unlimited { next } => send_unlimited(transmit, ledger, next, now),
        }
    }

    /// Sends requests that fell due during the last wait.
    fn send_last(&mut self, ended: u64) {
        for _ in 0..LAST_TURNS {
            if self.ledger.shared.stopped() || self.send(ended) > 0 {
                return;
            }
        }
    }

    /// Receives until every request is answered or lost.
    fn drain(&mut self) {
        let timeout = self.ledger.plan.timeout.as_nanos() as u64;
        let deadline = self.ledger.last_sent().saturating_add(timeout.saturating_mul(2));
        let clock = self.ledger.clock;
        let mut heard = clock.now();
        loop {
            let now = clock.now();
            let quiet = self.ledger.open() == 0 && now.saturating_sub(heard) >= QUIET;
            let done = (quiet || now >= deadline) && self.transmit.may_end();
            if done || now >= deadline.saturating_add(T::GRACE) || self.ledger.shared.is_cut() {
                return;
            }
            let until = if now < deadline { deadline - now } else { QUIET };
            self.transmit.wait(MAX_PAUSE.min(until));
            if self.transmit.receive(&mut self.ledger) > 0 {
                heard = clock.now();
            }
            self.transmit.flush(&mut self.ledger);
        }
    }
}

/// Open loop: sends due requests, at most a turn's worth; returns how long to wait then.
fn send_due<T: Transmit>(transmit: &mut T, ledger: &mut Ledger<'_>, due: &mut Due, now: u64) -> u64 {
    let pause = due.gather(&ledger.clock, now);
    transmit.begin_turn(due.len());
    while let Some((index, intended)) = due.run(transmit.batch()) {
        let count = intended.len();
        if !ledger.has_room(index, count, now) {
            return T::RETRY;
        }
        let taken = transmit.send(ledger, index, intended);
        due.take(taken);
        if taken < count {
            return T::RETRY;
        }
    }
    pause
}

/// Sends one batch on the next flow that can take it; returns how long to wait then.
fn send_unlimited<T: Transmit>(transmit: &mut T, ledger: &mut Ledger<'_>, next: &mut usize, now: u64) -> u64 {
    let flows = ledger.flows();
    let Some(index) = (0..flows).map(|step| (*next + step) % flows).find(|index| transmit.is_ready(*index))
    else {
        return MAX_PAUSE;
    };
    *next = (index + 1) % flows;
    let count = transmit.batch();
    if ledger.send_now(transmit, index, count, now) < count { T::RETRY } else { 0 }
}
