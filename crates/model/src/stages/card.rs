//! The card, or the veth: rings, RSS, and when a queue interrupts.
//!
//! ```text
//!   arrival ─▸ RSS: hash of the flow ─▸ ring ──(full: lost)
//!                                        └─▸ interrupt, not before moderation allows, and none while it is polled
//! ```
//! A queue that is polled is on the poll list of exactly one CPU. Completions of sent packets are polled with it.

use super::{Item, Loss};
use crate::agenda::{MICROSECOND, Time};
use crate::description::Link;
use crate::path::{Event, Path, hash};
use crate::state::Source;

/// Salt of the hash that RSS and RPS use.
const RSS: u64 = 1;

impl Path<'_> {
    /// A request of a flow arrives at the card.
    pub(crate) fn arrive(&mut self, flow: u32) {
        self.counts.offered += 1;
        let queue = hash(flow, RSS) as usize % self.queues.len();
        let item = Item { born: self.agenda.now(), flow, cpu: 0 };
        self.receive(queue, item);
        match self.description.link {
            Link::Card => self.arm(queue),
            Link::Veth => {
                let cpu = self.irq_cpus[queue];
                self.poll_here(queue, cpu);
                self.restart(cpu);
            }
        }
    }

    /// Puts a queue on the poll list of a CPU, unless it is on one.
    pub(crate) fn poll_here(&mut self, queue: usize, cpu: usize) {
        if !std::mem::replace(&mut self.queues[queue].polled, true) {
            self.cpus[cpu].poll.push_back(Source::Queue(queue));
        }
    }

    /// Into the ring of a queue.
    pub(crate) fn receive(&mut self, queue: usize, item: Item) {
        if self.queues[queue].ring.len() >= self.description.ring {
            self.lose(item, Loss::Ring);
        } else {
            self.queues[queue].ring.push_back(item);
        }
    }

    /// The CPU of RPS for a packet, which may be the one that asks: its packets go through its backlog as well
    /// (`netif_receive_skb_internal`).
    pub(crate) fn steered(&self, queue: usize, flow: u32) -> Option<usize> {
        let list = self.description.rps_of(queue)?;
        // As the kernel: the hash scaled to the length of the list.
        let at = ((u64::from(hash(flow, RSS) as u32) * list.len() as u64) >> 32) as usize;
        list.iter().nth(at).map(|cpu| cpu as usize)
    }

    /// Lets a queue interrupt, if it has work and nobody polls it.
    pub(crate) fn arm(&mut self, queue: usize) {
        let now = self.agenda.now();
        let state = &mut self.queues[queue];
        if state.polled || state.armed || !state.has_work() {
            return;
        }
        state.armed = true;
        let wait = state.next_interrupt.saturating_sub(now);
        self.agenda.after(wait, Event::Interrupt(queue as u16));
    }

    /// The interrupt of a queue.
    pub(crate) fn interrupted(&mut self, queue: usize) {
        let moderation = (self.description.moderation_us * MICROSECOND as f64) as Time;
        let state = &mut self.queues[queue];
        state.armed = false;
        state.next_interrupt = self.agenda.now() + moderation;
        let cpu = self.irq_cpus[queue];
        self.poll_here(queue, cpu);
        self.interrupt(cpu);
    }
}
