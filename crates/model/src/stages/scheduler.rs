//! Fair turns of a CPU's threads: the one that ran least is next; ksoftirqd is one of them.
//!
//! ```text
//!   ran, virtual time ─▸ the least is next ─▸ it runs until it sleeps, or another is behind by a lead, or after a slice
//! ```
//! A thread that wakes has at most a lead over the others, however long it slept. [`super::balance`] moves waiting
//! threads.

use super::Op;
use crate::path::Path;
use crate::state::Mode;

impl Path<'_> {
    /// Lets another thread run, if it is its turn.
    pub(super) fn take_turns(&mut self, cpu: usize) {
        let state = &self.cpus[cpu];
        if state.runnable.is_empty() && !state.ksoftirqd {
            return;
        }
        let Some(current) = state.current else { return };
        let now = self.agenda.now();
        let ran = self.threads[current].ran + (now - state.since) as f64;
        let Some((_, least)) = self.next(cpu) else { return };
        let ahead = ran - least;
        let turn = now - state.started >= self.slice && ahead > 0.0;
        if turn || ahead > self.wake_lead as f64 {
            self.settle(cpu);
            let state = &mut self.cpus[cpu];
            state.current = None;
            state.runnable.push(current);
            self.threads[current].switched = true;
            self.schedule(cpu);
        }
    }

    /// The thread that ran least (`None`: ksoftirqd), and how much.
    fn next(&self, cpu: usize) -> Option<(Option<usize>, f64)> {
        let state = &self.cpus[cpu];
        let threads = state.runnable.iter().map(|thread| (Some(*thread), self.threads[*thread].ran));
        let ksoftirqd = state.ksoftirqd.then_some((None, state.ksoftirqd_ran));
        threads.chain(ksoftirqd).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Runs the thread that ran least.
    pub(crate) fn schedule(&mut self, cpu: usize) {
        let next = self.next(cpu);
        self.cpus[cpu].current = None;
        match next {
            None => self.enter(cpu, Mode::Idle),
            Some((None, ran)) => {
                self.cpus[cpu].ran = self.cpus[cpu].ran.max(ran);
                self.begin_softirq(cpu, Mode::Ksoftirqd);
            }
            Some((Some(thread), ran)) => {
                self.enter(cpu, Mode::Thread);
                let state = &mut self.cpus[cpu];
                state.runnable.retain(|other| *other != thread);
                (state.current, state.started) = (Some(thread), self.agenda.now());
                state.ran = state.ran.max(ran);
                if std::mem::take(&mut self.threads[thread].switched) {
                    self.threads[thread].program.push(Op::Work(self.times.switch));
                }
            }
        }
    }

    /// Makes a thread runnable on a CPU.
    pub(crate) fn enqueue(&mut self, thread: usize, cpu: usize) {
        // It neither saves up time while it sleeps nor takes a lead from another CPU along.
        let least = self.cpus[cpu].ran - self.wake_lead as f64;
        let state = &mut self.threads[thread];
        state.ran = if state.cpu == cpu { state.ran.max(least) } else { self.cpus[cpu].ran };
        state.cpu = cpu;
        self.cpus[cpu].runnable.push(thread);
    }
}
