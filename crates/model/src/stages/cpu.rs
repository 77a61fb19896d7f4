//! Which program a CPU runs: softirqs above threads, ksoftirqd beside them, and threads in fair turns.
//!
//! ```text
//!   interrupt ─▸ softirq at once ── 2 ms or 10 rounds ─▸ ksoftirqd, a thread among the others
//!                     │ before 4.9: any interrupt, tick or release of a _bh lock starts it at once again
//!                     │ since 4.9: nothing does while ksoftirqd is runnable
//!   thread, the one that ran least ─▸ another, when it is that far ahead or sleeps
//! ```
//! A thread that holds a lock is not interrupted; what it missed follows the release.

use super::Op;
use crate::agenda::Time;
use crate::kernel::{BUDGET, MAX_RESTARTS, MAX_SOFTIRQ_TIME};
use crate::path::{Event, Path};
use crate::state::Mode;

impl Path<'_> {
    /// Runs a CPU's programs until one has to wait.
    pub(crate) fn advance(&mut self, cpu: usize) {
        loop {
            let state = &mut self.cpus[cpu];
            let program = match (state.mode, state.current) {
                (Mode::Idle, _) => return,
                (Mode::Softirq | Mode::Ksoftirqd, _) => &mut state.program,
                (Mode::Thread, Some(thread)) => &mut self.threads[thread].program,
                (Mode::Thread, None) => return,
            };
            let Some(op) = program.pop() else {
                self.refill(cpu);
                continue;
            };
            let now = self.agenda.now();
            self.cpus[cpu].slowed = false;
            let wait = match op {
                Op::Work(time) => self.beside_sibling(cpu, time),
                Op::Read(line) => self.sharing.read(line, cpu, now),
                Op::Write(line) => self.sharing.write(line, cpu, now),
                Op::Take(lock) => {
                    self.cpus[cpu].atomic += 1;
                    match self.sharing.take(lock, cpu, now) {
                        Some(time) => time,
                        None => {
                            self.cpus[cpu].spinning_since = Some(now);
                            return;
                        }
                    }
                }
                Op::Give(lock) => {
                    self.add(cpu, &[Op::Given(lock)]);
                    let line = self.sharing.line_of(lock);
                    self.sharing.write(line, cpu, now)
                }
                Op::Given(lock) => {
                    self.give(cpu, lock);
                    0
                }
                Op::Enable => {
                    self.run_pending(cpu);
                    0
                }
                Op::Do(act) => {
                    self.act(cpu, act);
                    0
                }
            };
            if wait > 0 {
                return self.wait(cpu, wait);
            }
        }
    }

    /// Adds to the program that a CPU runs.
    pub(crate) fn add(&mut self, cpu: usize, ops: &[Op]) {
        let state = &mut self.cpus[cpu];
        let program = match (state.mode, state.current) {
            (Mode::Thread, Some(thread)) => &mut self.threads[thread].program,
            _ => &mut state.program,
        };
        program.extend(ops.iter().rev());
    }

    /// A program is over: what comes next.
    fn refill(&mut self, cpu: usize) {
        match self.cpus[cpu].mode {
            Mode::Softirq | Mode::Ksoftirqd => self.poll(cpu),
            Mode::Thread => self.next_call(cpu),
            Mode::Idle => {}
        }
    }

    /// Work takes longer beside a busy sibling.
    fn beside_sibling(&mut self, cpu: usize, time: Time) -> Time {
        let slowed = self.siblings(cpu).any(|other| self.cpus[other].mode != Mode::Idle);
        self.cpus[cpu].slowed = slowed;
        if slowed { (time as f64 * 2.0 / self.siblings_ratio) as Time } else { time }
    }

    fn wait(&mut self, cpu: usize, time: Time) {
        let state = &mut self.cpus[cpu];
        state.until = self.agenda.now() + time;
        self.agenda.after(time, Event::Ready(cpu as u16, state.epoch));
    }

    /// The work of a CPU ends, or it has the lock that it spun for.
    pub(crate) fn ready(&mut self, cpu: usize, epoch: u32) {
        let now = self.agenda.now();
        let state = &mut self.cpus[cpu];
        if state.epoch != epoch {
            return;
        }
        state.until = 0;
        if let Some(since) = state.spinning_since.take() {
            state.spent.spinning += now - since;
        }
        if state.mode == Mode::Thread && !state.is_atomic() {
            self.take_turns(cpu);
        }
        self.advance(cpu);
    }

    fn give(&mut self, cpu: usize, lock: usize) {
        let now = self.agenda.now();
        if let Some(next) = self.sharing.give(lock, cpu, now) {
            let epoch = self.cpus[next.cpu].epoch;
            self.agenda.after(next.after, Event::Ready(next.cpu as u16, epoch));
        }
        let state = &mut self.cpus[cpu];
        state.atomic -= 1;
        if state.atomic == 0 && (std::mem::take(&mut state.missed) || self.sharing.is_bh(lock)) {
            self.run_pending(cpu);
        }
    }

    /// An interrupt at a CPU that has something to poll, or a thread to run.
    pub(crate) fn interrupt(&mut self, cpu: usize) {
        self.cpus[cpu].interrupts += 1;
        self.restart(cpu);
    }

    /// Starts pending softirqs, or an idle CPU's threads, from outside of its program.
    pub(crate) fn restart(&mut self, cpu: usize) {
        let now = self.agenda.now();
        let may = self.may_interrupt(cpu);
        let state = &mut self.cpus[cpu];
        match state.mode {
            Mode::Thread if state.is_atomic() => {
                state.missed = true;
                return;
            }
            Mode::Softirq | Mode::Ksoftirqd => return,
            Mode::Thread if state.poll.is_empty() || !may => return,
            Mode::Thread => {
                // What is left of the interrupted work, as if alone.
                let mut rest = state.until.saturating_sub(now);
                if state.slowed {
                    rest = (rest as f64 * self.siblings_ratio / 2.0) as Time;
                }
                let thread = state.current;
                state.epoch = state.epoch.wrapping_add(1);
                if let Some(thread) = thread {
                    self.threads[thread].program.push(Op::Work(rest));
                }
                self.begin_softirq(cpu, Mode::Softirq);
            }
            Mode::Idle if state.poll.is_empty() => self.schedule(cpu),
            Mode::Idle => self.begin_softirq(cpu, Mode::Softirq),
        }
        self.advance(cpu);
    }

    /// From within a thread's program: softirqs that are pending, if they may run.
    pub(crate) fn run_pending(&mut self, cpu: usize) {
        let state = &self.cpus[cpu];
        let may = state.mode == Mode::Thread && !state.is_atomic() && !state.poll.is_empty();
        if may && self.may_interrupt(cpu) {
            self.begin_softirq(cpu, Mode::Softirq);
        }
    }

    fn may_interrupt(&self, cpu: usize) -> bool {
        !(self.kernel.defers_softirqs() && self.cpus[cpu].ksoftirqd)
    }

    /// A timer interrupt.
    pub(crate) fn tick(&mut self, cpu: usize) {
        if self.cpus[cpu].mode == Mode::Thread && !self.cpus[cpu].poll.is_empty() {
            self.restart(cpu);
        }
    }

    pub(super) fn begin_softirq(&mut self, cpu: usize, mode: Mode) {
        self.enter(cpu, mode);
        let limit = (MAX_SOFTIRQ_TIME / self.jiffy).max(1);
        let jiffy = self.agenda.now() / self.jiffy;
        let state = &mut self.cpus[cpu];
        (state.budget, state.restarts, state.end_jiffy) = (BUDGET, 0, jiffy + limit);
    }

    /// A round of the softirq is over, with more to poll: another one, or ksoftirqd's.
    pub(crate) fn next_round(&mut self, cpu: usize) {
        let jiffy = self.agenda.now() / self.jiffy;
        let state = &mut self.cpus[cpu];
        state.restarts += 1;
        state.budget = BUDGET;
        if state.restarts < MAX_RESTARTS && jiffy < state.end_jiffy {
            return;
        }
        if !state.ksoftirqd {
            state.ksoftirqd = true;
            let least = state.ran - self.wake_lead as f64;
            state.ksoftirqd_ran = state.ksoftirqd_ran.max(least);
        }
        self.leave_softirq(cpu);
    }

    /// Nothing is left to poll.
    pub(crate) fn end_softirq(&mut self, cpu: usize) {
        self.cpus[cpu].ksoftirqd = false;
        self.leave_softirq(cpu);
    }

    /// Back to threads.
    fn leave_softirq(&mut self, cpu: usize) {
        let state = &self.cpus[cpu];
        if state.mode == Mode::Softirq && state.current.is_some() {
            self.enter(cpu, Mode::Thread);
            self.take_turns(cpu);
        } else {
            self.schedule(cpu);
        }
    }

    /// Changes the mode, and charges the time since the last change.
    pub(super) fn enter(&mut self, cpu: usize, mode: Mode) {
        let now = self.agenda.now();
        let state = &mut self.cpus[cpu];
        let time = now - state.since;
        state.since = now;
        match state.mode {
            Mode::Idle => {}
            Mode::Softirq => state.spent.softirq += time,
            Mode::Ksoftirqd => {
                state.spent.softirq += time;
                state.ksoftirqd_ran += time as f64;
            }
            Mode::Thread => {
                state.spent.thread += time;
                if let Some(thread) = state.current {
                    self.threads[thread].ran += time as f64;
                }
            }
        }
        state.mode = mode;
    }

    /// Brings the account of a CPU's time up to now.
    pub(crate) fn settle(&mut self, cpu: usize) {
        let mode = self.cpus[cpu].mode;
        self.enter(cpu, mode);
    }

    fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> + use<> {
        let (cores, cpus) = (self.description.cores, self.cpus.len());
        (cpu % cores..cpus).step_by(cores).filter(move |other| *other != cpu)
    }
}
