//! RPS and RFS together: the CPU that processes a received packet.
//!
//! ```text
//! hash --> RFS: does the global table have a CPU for this flow?
//!           |yes: the queue's table has the flow's current CPU; it moves only when none of its packets is queued there
//!           |no
//!           v
//!          RPS: the map's entry for the hash; without a map the packet stays where it is
//! ```
//! This is `get_rps_cpu` of `net/core/dev.c`, for predicting the kernel and for our own datapath: [`steer`] is called
//! for each packet, does not allocate and does not block.

use crate::CpuSet;
pub use crate::backlog::Backlogs;
use crate::hash::reciprocal_scale;
use crate::rfs::{FlowTable, Slot, SockFlowTable};

/// The CPUs that packets of one receive queue are spread over: `rps_cpus` as the kernel stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpsMap {
    /// Ascending, never empty.
    cpus: Box<[u16]>,
}

impl RpsMap {
    /// The map that results from writing `cpus` to `rps_cpus`: those that are online at that moment, in ascending
    /// order (`store_rps_map` of `net/core/net-sysfs.c`). If none is online, or the set is empty, there is no map,
    /// which turns RPS off.
    #[must_use]
    pub fn new(cpus: &CpuSet, online: Option<&CpuSet>) -> Option<Self> {
        let usable = cpus.iter().filter(|&cpu| online.is_none_or(|online| online.contains(cpu)));
        // CPU numbers end at 65,535.
        let cpus: Box<[u16]> = usable.filter_map(|cpu| u16::try_from(cpu).ok()).collect();
        (!cpus.is_empty()).then_some(Self { cpus })
    }

    /// The CPU of a hash.
    #[must_use]
    #[inline]
    pub fn cpu(&self, hash: u32) -> u16 {
        self.cpus[reciprocal_scale(hash, self.cpus.len() as u32) as usize]
    }

    /// Its CPUs, ascending.
    #[must_use]
    pub const fn cpus(&self) -> &[u16] {
        &self.cpus
    }
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteerDecision {
    /// It is processed where it was received.
    Stay,
    /// Selected by the RPS map.
    Rps {
        /// The CPU.
        cpu: u16,
    },
    /// The CPU of the flow's reader, or the one where its queued packets are.
    Rfs {
        /// The CPU.
        cpu: u16,
        /// To be passed to [`FlowTable::queued`] once the packet is on that CPU's backlog.
        slot: Slot,
    },
}

impl SteerDecision {
    /// The CPU to hand the packet to, if any.
    #[must_use]
    pub const fn cpu(self) -> Option<u16> {
        match self {
            Self::Stay => None,
            Self::Rps { cpu } | Self::Rfs { cpu, .. } => Some(cpu),
        }
    }
}

/// Decides for one packet of a queue. `rfs` is the queue's own table and the global one, if RFS is on.
///
/// A hash of 0 means "no hash", as in the kernel: the packet stays.
#[inline]
pub fn steer(
    hash: u32,
    rfs: Option<(&mut FlowTable, &SockFlowTable)>,
    map: Option<&RpsMap>,
    backlogs: &impl Backlogs,
) -> SteerDecision {
    if hash == 0 {
        return SteerDecision::Stay;
    }
    if let Some((flows, wanted)) = rfs
        && let Some((cpu, slot)) = flows.steer(hash, wanted, backlogs)
    {
        return SteerDecision::Rfs { cpu, slot };
    }
    match map.map(|map| map.cpu(hash)) {
        Some(cpu) if backlogs.is_online(cpu) => SteerDecision::Rps { cpu },
        _ => SteerDecision::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Online(CpuSet);

    impl Backlogs for Online {
        fn head(&self, _: u16) -> u32 {
            0
        }

        fn is_online(&self, cpu: u16) -> bool {
            self.0.contains(cpu.into())
        }
    }

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn the_map_has_the_online_cpus_in_order() {
        let map = RpsMap::new(&set("8,0-3"), Some(&set("1-8"))).unwrap();
        assert_eq!(map.cpus(), [1, 2, 3, 8]);
        assert_eq!(map.cpu(0), 1);
        assert_eq!(map.cpu(u32::MAX), 8);
        assert_eq!(map.cpu(0x8000_0000), 3);
        assert_eq!(RpsMap::new(&set(""), None), None);
        assert_eq!(RpsMap::new(&set("0"), Some(&set("1"))), None);
    }

    #[test]
    fn without_map_hash_or_online_cpu_a_packet_stays() {
        let map = RpsMap::new(&set("0-1"), None);
        let all = Online(set("0-1"));
        assert_eq!(steer(u32::MAX, None, map.as_ref(), &all), SteerDecision::Rps { cpu: 1 });
        assert_eq!(steer(1, None, None, &all), SteerDecision::Stay);
        assert_eq!(steer(0, None, map.as_ref(), &all), SteerDecision::Stay);
        assert_eq!(steer(u32::MAX, None, map.as_ref(), &Online(set("0"))), SteerDecision::Stay);
    }
}
