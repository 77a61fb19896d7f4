//! The arrays that the programs and this process share: the state of every slot, and the counters.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use aya::Ebpf;

use super::owners::Owners;
use super::prebuilt::Order;
use super::{BUCKETS, Counters, Layout, Requests, Samples, Slot, address_words, samples};
use crate::shared_array::SharedArray;
use crate::{Error, sys};

/// Lost requests per slot whose late replies are still distinguished from duplicates.
const REMEMBERED: usize = 4;
/// The first word of a slot that has their numbers: `given_up` in closed_loop.h.
const GIVEN_UP: usize = 4;
/// Further replies that share one clock reading. Fewer: an eighth more CPU per transaction. More: latencies off by that
/// many replies' processing time, a tenth of a microsecond each, for a gain that halves each time.
const READERS: u64 = 1;
/// Words of a CPU's counters before its latency buckets.
const COUNTERS: usize = 16;

/// Words of a flow, and of the first other sender.
const FLOW_WORDS: usize = 8;
const STRANGER_WORDS: usize = 8;
/// The other sender is complete: its state in closed_loop.h.
const COMPLETE: u64 = 2;

/// Bits of the program's state, as in its source.
const RUNNING: u64 = 1;
const CONTESTED: u64 = 2;

/// The arrays shared by the program and this process: the state of every slot, and the counters.
#[derive(Debug)]
pub struct Memory {
    pub(super) slots: SharedArray,
    pub(super) counts: SharedArray,
    pub(super) control: SharedArray,
    pub(super) ports: SharedArray,
    pub(super) flows: SharedArray,
    pub(super) stranger: SharedArray,
    /// Prebuilt requests: their order, and copies of replies.
    pub(super) prebuilt: Option<(Order, SharedArray)>,
    /// The server's family.
    pub(super) ipv6: bool,
    /// See [`Layout::homes`].
    pub(super) homes: Vec<usize>,
    pub(super) slots_len: usize,
    /// Of several loops: whose port each is, and which loop this is.
    pub(super) mixed: Option<Owners>,
    pub(super) cpus: usize,
}

impl Memory {
    pub(super) fn map(object: &Ebpf, layout: &Layout<'_>, cpus: usize) -> Result<Self, Error> {
        let program = layout.requests.program();
        let map = |name, len, words| SharedArray::map(object, program, name, len, words);
        let prebuilt = match layout.requests {
            Requests::Echo(_) => None,
            Requests::Prebuilt(table) => {
                table.fill(object, program)?;
                Some((table.order(), map("samples", cpus * samples::PER_CPU, samples::WORDS)?))
            }
        };
        let memory = Self {
            slots: map("slots", layout.slots as usize, 8)?,
            counts: map("counts", cpus, COUNTERS + BUCKETS)?,
            control: map("control", 1, 2)?,
            ports: map("ports", 65_536, 1)?,
            flows: map("flows", layout.flows as usize, FLOW_WORDS)?,
            stranger: map("stranger", 1, STRANGER_WORDS)?,
            prebuilt,
            ipv6: layout.server.is_ipv6(),
            homes: layout.homes.to_vec(),
            slots_len: layout.slots as usize,
            mixed: None,
            cpus,
        };
        if !sys::can_outwait_programs() {
            // The program then pays for the atomic exchange from the start.
            memory.control.element(0)[0].fetch_or(CONTESTED, AcqRel);
        }
        Ok(memory)
    }
}

impl Memory {
    /// Number of possible CPUs: the range of the per-CPU counters.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Turns replies into requests, or (false) only counts them.
    pub fn set_running(&self, running: bool) {
        let state = &self.control.element(0)[0];
        if running {
            state.fetch_or(RUNNING, AcqRel);
        } else {
            state.fetch_and(!RUNNING, AcqRel);
        }
    }

    /// Lets replies of one poll share a clock reading. Only while the program sees the end of polls.
    pub(super) fn share_clock(&self, share: bool) {
        self.control.element(0)[1].store(if share { READERS } else { 0 }, Release);
    }

    /// Assigns `slot` to `flow`, whose socket is bound to `local`. Before the slot's first launch.
    pub fn assign(&self, slot: usize, flow: u32, local: SocketAddr) {
        let port = local.port();
        let [a, b, c, d] = address_words(local.ip()).map(u64::from);
        let its = self.flows.element(flow as usize);
        its[1].store(a | b << 32, Release);
        its[2].store(c | d << 32, Release);
        let home = self.homes.get(flow as usize % self.homes.len().max(1)).map_or(0, |cpu| *cpu as u64 + 1);
        let packed = u64::from(flow) | u64::from(port.to_be()) << 32 | home << 48;
        let words = self.slots.element(slot);
        words[2].store(packed, Release);
        if let Some((order, _)) = &self.prebuilt {
            words[3].store(order.first(slot), Release);
        }
        self.ports.element(usize::from(port))[0].store(u64::from(flow) + 1, Release);
        if let Some(owners) = &self.mixed {
            owners.claim(port);
        }
    }

    /// Prebuilt requests: the one that the slot has in flight, or sends next.
    #[must_use]
    pub fn request(&self, slot: usize) -> u32 {
        self.slots.element(slot)[3].load(Acquire) as u32
    }

    /// Prebuilt requests: the copies of replies. None of an echo loop.
    #[must_use]
    pub fn samples(&self) -> Option<Samples<'_>> {
        self.prebuilt.as_ref().map(|(_, samples)| Samples::new(samples, self.cpus))
    }

    /// Records that `slot` is about to send a request at `now`, and returns the request's sequence number. Only for a
    /// slot with nothing in flight.
    #[must_use]
    pub fn launch(&self, slot: usize, now: u64) -> u64 {
        let words = self.slots.element(slot);
        words[1].store(now, Release);
        words[0].load(Acquire)
    }

    /// Requests so far by the CPU that is their flow's home; empty if flows have no homes.
    #[must_use]
    pub fn by_home(&self) -> BTreeMap<usize, u64> {
        let mut sent = BTreeMap::new();
        for slot in 0..self.slots_len {
            let words = self.slots.element(slot);
            if let Some(cpu) = ((words[2].load(Acquire) >> 48) as usize).checked_sub(1) {
                *sent.entry(cpu).or_default() += words[0].load(Acquire);
            }
        }
        sent
    }

    /// The state of the slot's transaction.
    #[must_use]
    pub fn slot(&self, slot: usize) -> Slot {
        let words = self.slots.element(slot);
        let seq = words[0].load(Acquire);
        Slot { seq, sent: words[1].load(Acquire) }
    }

    /// Records that the request about to be launched was not sent.
    pub fn idle(&self, slot: usize) {
        self.slots.element(slot)[1].store(0, Release);
    }

    /// Gives up the request `seq` of `slot` as lost. False if its reply came first; then nothing has changed.
    ///
    /// The first call takes some tens of milliseconds: from then on the program exchanges numbers atomically, and every
    /// run that began before must have ended.
    #[must_use]
    pub fn give_up(&self, slot: usize, seq: u64) -> bool {
        self.contest();
        let words = self.slots.element(slot);
        if words[0].load(Acquire) != seq {
            return false;
        }
        // Recorded first: a reply that arrives right after the exchange must be found late, not a duplicate.
        // It replaces one that has been answered since (0), otherwise the oldest.
        let place = (GIVEN_UP..GIVEN_UP + REMEMBERED).min_by_key(|place| words[*place].load(Acquire));
        let remembered = &words[place.unwrap_or(GIVEN_UP)];
        let before = remembered.swap(seq + 1, AcqRel);
        let won = words[0].compare_exchange(seq, seq + 1, AcqRel, Acquire).is_ok();
        if won {
            if let Some((order, _)) = &self.prebuilt {
                words[3].store(order.next(words[3].load(Acquire), slot, seq + 1), Release);
            }
            words[1].store(0, Release);
        } else {
            remembered.store(before, Release);
        }
        won
    }

    /// From now on the program and this process compete for slots.
    pub(super) fn contest(&self) {
        if self.control.element(0)[0].fetch_or(CONTESTED, AcqRel) & CONTESTED == 0 {
            sys::outwait_programs();
        }
    }

    /// One CPU's counters.
    #[must_use]
    pub fn counters(&self, cpu: usize) -> Counters {
        let words = self.counts.element(cpu);
        let word = |i: usize| words[i].load(Relaxed);
        Counters {
            ok: word(0),
            late: word(1),
            duplicate: word(2),
            reordered: word(3),
            corrupt: word(4),
            wrong_flow: word(5),
            received: word(6),
            sent: (word(0) + word(8) + word(11)).saturating_sub(word(7)),
            overdue: word(8),
            refused: word(11),
            refused_late: word(12),
            unsent: word(13),
            elsewhere: word(15),
        }
    }

    /// Who sent the first of the datagrams that are [`Counters::elsewhere`].
    #[must_use]
    pub fn stranger(&self) -> Option<SocketAddr> {
        let words = self.stranger.element(0);
        if words[0].load(Acquire) != COMPLETE {
            return None;
        }
        let bytes: Vec<u8> = words[1..3].iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let address = if self.ipv6 {
            IpAddr::from(*bytes.first_chunk::<16>()?)
        } else {
            IpAddr::from(*bytes.first_chunk::<4>()?)
        };
        Some(SocketAddr::new(address, words[3].load(Relaxed) as u16))
    }

    /// Adds the latency buckets of all CPUs to `sum`, which has [`BUCKETS`] elements.
    pub fn add_latency(&self, sum: &mut [u64]) {
        for cpu in 0..self.cpus {
            for (sum, count) in sum.iter_mut().zip(&self.counts.element(cpu)[COUNTERS..]) {
                *sum += count.load(Relaxed);
            }
        }
    }
}
