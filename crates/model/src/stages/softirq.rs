//! Polls: what a softirq does with packets, on the CPU of the interrupt or, by RPS, on another.
//!
//! ```text
//!   poll list ─▸ queue, 64 packets in turn ─▸ driver, NAPI ─▸ RPS? ──▸ backlog of a CPU, its interrupt at the round's end
//!             └▸ backlog, 64 in turn ──────────────────────────┴─▸ IP, UDP ─▸ socket
//! ```

use super::reader::CONNECTION_LINES;
use super::{Act, Item, Loss, Op};
use crate::agenda::Time;
use crate::description::Transport;
use crate::kernel::{MAX_BACKLOG, NAPI_WEIGHT};
use crate::path::{Event, Path};
use crate::state::Source;

/// Lines of a sent packet's skb that its completion reads, if another CPU sent it: the skb, and its data's reference
/// count.
const SENT_LINES: Time = 2;
/// Lines of a packet that RPS's target reads, and the interrupted CPU has written: the skb's head and the headers.
const STEERED_LINES: Time = 3;

impl Path<'_> {
    /// The next packet of a CPU's poll list.
    pub(crate) fn poll(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        if state.interrupts > 0 {
            let cost = Time::from(state.interrupts) * self.times.interrupt;
            state.interrupts = 0;
            return self.add(cpu, &[Op::Work(cost)]);
        }
        let Some(source) = state.poll.front().copied() else {
            if !self.interrupt_others(cpu) {
                self.end_softirq(cpu);
            }
            return;
        };
        if state.budget == 0 {
            if !self.interrupt_others(cpu) {
                self.next_round(cpu);
            }
            return;
        }
        if state.left == 0 {
            state.left = NAPI_WEIGHT;
            state.poll.rotate_left(1);
            return;
        }
        match source {
            Source::Queue(queue) => self.poll_queue(cpu, queue),
            Source::Backlog => self.poll_backlog(cpu),
        }
    }

    fn poll_queue(&mut self, cpu: usize, queue: usize) {
        let [here, elsewhere] = std::mem::take(&mut self.queues[queue].sent).map(Time::from);
        if here + elsewhere > 0 {
            let moves = SENT_LINES * self.sharing.distances.line;
            let cost = (here + elsewhere) * self.times.sent + elsewhere * moves;
            // Each returns its memory to its socket. Sockets of one worker are theirs alone, or nearly.
            let returns = if self.sockets.len() == 1 { here + elsewhere } else { 0 };
            let sending = Op::Write(self.sockets[0].sending);
            self.cpus[cpu].program.extend((0..returns).map(|_| sending));
            return self.add(cpu, &[Op::Work(cost)]);
        }
        let Some(item) = self.queues[queue].ring.pop_front() else {
            self.queues[queue].polled = false;
            return self.polled(cpu, self.times.poll);
        };
        self.counted(cpu);
        let item = Item { cpu: cpu as u16, ..item };
        match self.steered(queue, item.flow) {
            None => self.protocol(cpu, item, Op::Work(0), self.times.device_receive),
            Some(target) => {
                let line = self.backlog_lines[target];
                let to = Act::Backlog(target as u16, item);
                let device = Op::Work(self.times.device_receive);
                self.add(cpu, &[device, Op::Work(self.times.steer), Op::Write(line), Op::Do(to)]);
            }
        }
    }

    /// RPS: into the backlog of a CPU. This one polls its own in the same round; others are interrupted before that, or
    /// at the round's end.
    pub(crate) fn append_to_backlog(&mut self, cpu: usize, target: usize, item: Item) {
        let state = &mut self.cpus[target];
        if state.backlog.len() >= MAX_BACKLOG {
            self.lose(item, Loss::Backlog);
            return;
        }
        state.backlog.push_back(item);
        if !state.backlog_polled {
            state.backlog_polled = true;
            match target == cpu {
                true => {
                    state.poll.push_back(Source::Backlog);
                    state.backlog_in_round = true;
                }
                false => self.cpus[cpu].to_interrupt.push(target),
            }
        }
    }

    fn poll_backlog(&mut self, cpu: usize) {
        // Before its own packets, not after them (`process_backlog`).
        if self.interrupt_others(cpu) {
            return;
        }
        let Some(item) = self.cpus[cpu].backlog.pop_front() else {
            self.cpus[cpu].backlog_polled = false;
            // No interrupt and no softirq was started for it: the round had begun for the queue.
            let cost = if std::mem::take(&mut self.cpus[cpu].backlog_in_round) { 0 } else { self.times.poll };
            return self.polled(cpu, cost);
        };
        self.counted(cpu);
        let moved = self.sharing.distances.of(self.sharing.distances.line, item.cpu.into(), cpu);
        let lock = Op::Read(self.backlog_lines[cpu]);
        self.protocol(cpu, Item { cpu: cpu as u16, ..item }, lock, STEERED_LINES * moved);
    }

    /// The first of the poll list is empty; what the poll cost.
    fn polled(&mut self, cpu: usize, cost: Time) {
        let state = &mut self.cpus[cpu];
        state.left = NAPI_WEIGHT;
        state.poll.pop_front();
        self.add(cpu, &[Op::Work(cost)]);
    }

    /// One packet of the round's budget and of the poll's weight.
    fn counted(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.budget -= 1;
        state.left -= 1;
    }

    /// IP, UDP and the lookup, after some work; then the socket.
    fn protocol(&mut self, cpu: usize, item: Item, first: Op, before: Time) {
        let socket = self.socket_of(item.flow, cpu);
        let it = &self.sockets[socket];
        let (account, admit) = (Op::Read(it.account), Op::Do(Act::Admit(socket as u32, item)));
        // A connection's lines come from the CPU of its thread.
        let connection = match self.description.transport {
            Transport::Tcp => {
                let moved =
                    self.sharing.distances.of(self.sharing.distances.line, self.threads[socket].cpu, cpu);
                CONNECTION_LINES * moved
            }
            Transport::Udp => 0,
        };
        let work = Op::Work(before + self.times.protocol_receive + connection);
        match it.references.map(Op::Write) {
            Some(count) => self.add(cpu, &[first, work, count, account, admit, count]),
            None => self.add(cpu, &[first, work, account, admit]),
        }
    }

    /// Interrupts the CPUs whose backlogs were filled; whether there were any.
    fn interrupt_others(&mut self, cpu: usize) -> bool {
        if self.cpus[cpu].to_interrupt.is_empty() {
            return false;
        }
        let targets = std::mem::take(&mut self.cpus[cpu].to_interrupt);
        for (sent, target) in (1..).zip(&targets) {
            let delay = self.interrupt_delay(cpu, *target);
            self.agenda.after(sent * self.times.ipi + delay, Event::BacklogInterrupt(*target as u16));
        }
        let cost = targets.len() as Time * self.times.ipi;
        self.add(cpu, &[Op::Work(cost)]);
        true
    }
}
