//! Load balancing: waiting threads move to CPUs that leave them more time, as the kernel moves them every few ticks.
//!
//! A CPU's capacity is what softirqs leave of it (`scale_rt_capacity`), so threads gather where few packets arrive.

use crate::path::Path;
use crate::state::{Cpu, Mode};

/// Least capacity that softirqs leave: the scheduler counts no CPU as none, but as 1 of 1024.
const LEAST_CAPACITY: f64 = 1.0 / 1024.0;

impl Cpu {
    /// Threads for each part of capacity, with so many more.
    fn pressure(&self, more: usize) -> f64 {
        (self.load() + more) as f64 / (1.0 - self.softirq_load).max(LEAST_CAPACITY)
    }
}

impl Path<'_> {
    /// Balances once.
    pub(crate) fn balance(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.settle(cpu);
            let state = &mut self.cpus[cpu];
            let share = (state.spent.softirq - state.softirq_seen) as f64 / self.balance_every as f64;
            state.softirq_seen = state.spent.softirq;
            state.softirq_load = f64::midpoint(state.softirq_load, share.min(1.0));
        }
        // About one move per CPU, as there.
        for _ in 0..self.cpus.len() {
            if self.description.pin || !self.move_one() {
                break;
            }
        }
    }

    /// Moves a waiting thread from where most wait to where least do; whether that helps.
    fn move_one(&mut self) -> bool {
        let allowed = &self.description.worker_cpus;
        let may = |cpu: &usize| allowed.is_empty() || allowed.contains(*cpu as u32);
        let cpus = || (0..self.cpus.len()).filter(may);
        let waiting = cpus().filter(|cpu| !self.cpus[*cpu].runnable.is_empty());
        let from = waiting.map(|cpu| (self.cpus[cpu].pressure(0), cpu)).max_by(|a, b| a.0.total_cmp(&b.0));
        let to = cpus().map(|cpu| (self.cpus[cpu].pressure(1), cpu)).min_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((high, from)), Some((low, to))) = (from, to) else { return false };
        if from == to || low >= high {
            return false;
        }
        let Some(thread) = self.cpus[from].runnable.pop() else { return false };
        self.threads[thread].switched = true;
        self.enqueue(thread, to);
        if self.cpus[to].mode == Mode::Idle {
            self.restart(to);
        }
        true
    }
}
