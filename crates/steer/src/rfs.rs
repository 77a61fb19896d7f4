//! RFS: a flow's packets follow the CPU on which the application reads it.
//!
//! ```text
//! reader of a socket                        owner of a receive queue
//!   record(hash, cpu)                         steer(hash)
//!        |                                        |
//!        v                                        v
//!  SockFlowTable, one for all:  wanted CPU -> FlowTable, one per queue: current CPU, tail at its last packet
//! ```
//!
//! The rule that preserves order: a flow moves from its current CPU to the wanted one only when the current one is
//! unset, offline, or has taken the flow's last queued packet off its backlog (head >= recorded tail). Until then
//! packets keep going to the old CPU, behind those already queued there (`Documentation/networking/scaling.rst`,
//! `get_rps_cpu` of `net/core/dev.c`).
//!
//! Ownership: a [`FlowTable`] belongs to the one thread that polls its queue (`&mut`). The [`SockFlowTable`] is
//! written by all readers and read by all pollers, through plain `AtomicU32` with relaxed order: an entry is one word
//! and only a hint, and publishes nothing else.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::backlog::Backlogs;
use crate::hash::fold;

/// No CPU (`RPS_NO_CPU` of `include/net/rps.h`).
const NO_CPU: u16 = u16::MAX;

/// Which CPU reads which flow: `net.core.rps_sock_flow_entries`.
///
/// An entry is one word: the upper bits of the flow's hash, and a CPU in the lower ones. So most flows that share an
/// entry are distinguished, and an entry can be written without a lock.
#[derive(Debug)]
pub struct SockFlowTable {
    entries: Box<[AtomicU32]>,
    /// The bits of an entry that hold a CPU: one less than the power of two at or above the number of CPUs.
    cpu_mask: u32,
}

impl SockFlowTable {
    /// The maximum length, as in the kernel (`rps_sock_flow_sysctl` of `net/core/sysctl_net_core.c`).
    pub const MAX_LEN: u32 = 1 << 29;

    /// A table of `entries`, rounded up to a power of two and to at most [`Self::MAX_LEN`], for `cpus` possible CPUs.
    ///
    /// The kernel's documentation suggests 32,768 entries for a moderately loaded server. Too few: flows evict each
    /// other and fall back to RPS. Too many: the table leaves the cache.
    #[must_use]
    pub fn new(entries: u32, cpus: u16) -> Self {
        let len = entries.clamp(1, Self::MAX_LEN).next_power_of_two();
        let entries = (0..len).map(|_| AtomicU32::new(NO_CPU.into())).collect();
        Self { entries, cpu_mask: u32::from(cpus.max(1)).next_power_of_two() - 1 }
    }

    /// Records that the application reads the flow on this CPU. Call it where the application receives. A hash of 0
    /// means no hash, and a CPU beyond those the table was created for cannot be recorded; both are ignored.
    #[inline]
    pub fn record(&self, hash: u32, cpu: u16) {
        let cpu = u32::from(cpu);
        if hash == 0 || cpu > self.cpu_mask {
            return;
        }
        let word = hash & !self.cpu_mask | cpu;
        let entry = &self.entries[self.index(hash)];
        // Written only when it changes, so that the line stays shared between readers.
        if entry.load(Ordering::Relaxed) != word {
            entry.store(word, Ordering::Relaxed);
        }
    }

    /// The CPU recorded for the flow, unless another flow has taken the entry since.
    #[must_use]
    #[inline]
    pub fn wanted(&self, hash: u32) -> Option<u16> {
        let word = self.entries[self.index(hash)].load(Ordering::Relaxed);
        // The mask has at most 16 bits.
        ((word ^ hash) & !self.cpu_mask == 0).then_some((word & self.cpu_mask) as u16)
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn index(&self, hash: u32) -> usize {
        hash as usize & (self.entries.len() - 1)
    }
}

/// An entry of a [`FlowTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

/// The current CPUs of a queue's flows: `rps_flow_cnt` of one queue.
#[derive(Debug)]
pub struct FlowTable {
    flows: Box<[Present]>,
    bits: u32,
}

/// Where a flow's packets went last.
#[derive(Debug, Clone, Copy)]
struct Present {
    cpu: u16,
    /// The CPU's backlog tail just after the flow's last packet was queued.
    last_tail: u32,
}

impl FlowTable {
    /// The maximum length; 8 MiB of memory. The kernel allows more, up to its memory.
    pub const MAX_LEN: u32 = 1 << 20;

    /// A table of `entries`, rounded up to a power of two and to at most [`Self::MAX_LEN`].
    ///
    /// The kernel's documentation recommends the global table's entries divided by the number of queues. Too few:
    /// flows that share an entry wait for each other's packets before they move.
    #[must_use]
    pub fn new(entries: u32) -> Self {
        let len = entries.clamp(1, Self::MAX_LEN).next_power_of_two();
        Self {
            flows: vec![Present { cpu: NO_CPU, last_tail: 0 }; len as usize].into(),
            bits: len.trailing_zeros(),
        }
    }

    /// The CPU for a packet of the flow, and the entry to pass to [`Self::queued`]. `None` if the global table has no
    /// CPU for this flow, or one that is offline.
    #[inline]
    pub fn steer(
        &mut self,
        hash: u32,
        wanted: &SockFlowTable,
        backlogs: &impl Backlogs,
    ) -> Option<(u16, Slot)> {
        let wanted = wanted.wanted(hash)?;
        let slot = Slot(fold(hash, self.bits));
        let present = &mut self.flows[slot.0 as usize];
        if present.cpu != wanted && present.may_leave(backlogs) {
            let last_tail =
                if backlogs.is_online(wanted) { backlogs.head(wanted) } else { present.last_tail };
            *present = Present { cpu: wanted, last_tail };
        }
        let cpu = present.cpu;
        (cpu != NO_CPU && backlogs.is_online(cpu)).then_some((cpu, slot))
    }

    /// Records that the packet was queued on the backlog of the CPU that [`Self::steer`] returned; `tail` is the
    /// number of packets queued there so far, this one included, wrapping.
    #[inline]
    pub fn queued(&mut self, slot: Slot, tail: u32) {
        self.flows[slot.0 as usize].last_tail = tail;
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.flows.len()
    }

    /// Never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

impl Present {
    /// Whether no packet of the flow is queued where it is.
    #[inline]
    fn may_leave(self, backlogs: &impl Backlogs) -> bool {
        self.cpu == NO_CPU
            || !backlogs.is_online(self.cpu)
            // Signed, so that it holds across wrap-around.
            || backlogs.head(self.cpu).wrapping_sub(self.last_tail) as i32 >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rps::{RpsMap, SteerDecision, steer};

    /// Two CPUs whose backlogs are counters.
    #[derive(Default)]
    struct Two {
        heads: [u32; 2],
        tails: [u32; 2],
        offline: Option<u16>,
    }

    impl Two {
        fn queue(&mut self, flows: &mut FlowTable, (cpu, slot): (u16, Slot)) {
            let tail = &mut self.tails[usize::from(cpu)];
            *tail = tail.wrapping_add(1);
            flows.queued(slot, *tail);
        }
    }

    impl Backlogs for Two {
        fn head(&self, cpu: u16) -> u32 {
            self.heads[usize::from(cpu)]
        }

        fn is_online(&self, cpu: u16) -> bool {
            cpu < 2 && self.offline != Some(cpu)
        }
    }

    const HASH: u32 = 0xdead_0001;

    #[test]
    fn a_flow_moves_only_when_its_packets_are_gone() {
        let (wanted, mut flows, mut cpus) = (SockFlowTable::new(16, 2), FlowTable::new(4), Two::default());
        // Near the wrap of the counters.
        (cpus.heads, cpus.tails) = ([u32::MAX - 1; 2], [u32::MAX - 1; 2]);
        assert_eq!(flows.steer(HASH, &wanted, &cpus), None, "not read yet");
        wanted.record(HASH, 0);
        for _ in 0..3 {
            let target = flows.steer(HASH, &wanted, &cpus).unwrap();
            assert_eq!(target.0, 0);
            cpus.queue(&mut flows, target);
        }
        wanted.record(HASH, 1);
        cpus.heads[0] = cpus.heads[0].wrapping_add(2);
        let target = flows.steer(HASH, &wanted, &cpus).unwrap();
        assert_eq!(target.0, 0, "its last packet is still there");
        cpus.heads[0] = cpus.heads[0].wrapping_add(1);
        let target = flows.steer(HASH, &wanted, &cpus).unwrap();
        assert_eq!(target.0, 1);
        cpus.queue(&mut flows, target);
        cpus.offline = Some(1);
        assert_eq!(flows.steer(HASH, &wanted, &cpus), None, "the wanted CPU is gone");
        wanted.record(HASH, 0);
        assert_eq!(
            flows.steer(HASH, &wanted, &cpus).unwrap().0,
            0,
            "what is on an offline CPU is not waited for"
        );
    }

    #[test]
    fn another_flow_in_the_entry_is_distinguished() {
        let wanted = SockFlowTable::new(16, 2);
        wanted.record(HASH, 1);
        assert_eq!(wanted.wanted(HASH), Some(1));
        assert_eq!(wanted.wanted(HASH ^ 0x100), None);
        wanted.record(HASH ^ 0x100, 0);
        assert_eq!(wanted.wanted(HASH), None);
        // What cannot be written down is not.
        wanted.record(0, 1);
        wanted.record(HASH, 2);
        assert_eq!((wanted.wanted(HASH), wanted.len()), (None, 16));
    }

    #[test]
    fn rps_applies_to_flows_without_a_reader() {
        let (wanted, mut flows, cpus) = (SockFlowTable::new(16, 2), FlowTable::new(4), Two::default());
        let map = RpsMap::new(&"1".parse().unwrap(), None);
        let mut decide = |hash| steer(hash, Some((&mut flows, &wanted)), map.as_ref(), &cpus);
        assert_eq!(decide(HASH), SteerDecision::Rps { cpu: 1 });
        wanted.record(HASH, 0);
        assert_eq!(decide(HASH).cpu(), Some(0));
        assert!(matches!(decide(HASH), SteerDecision::Rfs { .. }));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!((FlowTable::new(0).len(), FlowTable::new(5).len()), (1, 8));
        assert_eq!((SockFlowTable::new(0, 0).len(), SockFlowTable::new(33, 3).len()), (1, 64));
        assert_eq!(FlowTable::new(u32::MAX).len(), FlowTable::MAX_LEN as usize);
        let one = SockFlowTable::new(1, 1);
        one.record(7, 0);
        assert_eq!(one.wanted(7), Some(0));
        assert!(!one.is_empty() && !FlowTable::new(1).is_empty());
    }
}
