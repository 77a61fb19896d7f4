//! XPS, the transmit mapping: which CPUs send on which queue.
//!
//! ```text
//! 2 CPUs, 2 queues      4 CPUs, 2 queues       2 CPUs, 3 queues
//! cpu 0 -> tx-0         cpu 0, 2 -> tx-0       cpu 0 -> tx-0
//! cpu 1 -> tx-1         cpu 1, 3 -> tx-1       cpu 1 -> tx-1
//!                                              none  -> tx-2
//! ```
//!
//! A CPU with a queue of its own never waits for another CPU's queue lock. On veth the receiver's queue follows the
//! sender's, so this mapping also decides on which receive queue, and so on which CPU, the peer works.
//!
//! [`spread`] computes a mapping; [`Xps`] models how the kernel stores and uses one.

use crate::CpuSet;
use crate::hash::reciprocal_scale;

/// One entry per queue: the CPUs that should send on it.
///
/// CPUs are assigned to queues in ascending order, round robin. With as many queues as CPUs each CPU has a queue of
/// its own; with fewer queues their CPU counts differ by at most one; with more queues the rest stay empty. Every CPU
/// is in exactly one set, unless there is no queue.
///
/// ```
/// use udpath_steer::{CpuSet, xps};
/// let cpus: CpuSet = "0-3".parse().unwrap();
/// let map: Vec<String> = xps::spread(&cpus, 2).iter().map(CpuSet::to_string).collect();
/// assert_eq!(map, ["0,2", "1,3"]);
/// ```
#[must_use]
pub fn spread(cpus: &CpuSet, queues: u32) -> Vec<CpuSet> {
    let mut map = vec![CpuSet::new(); queues as usize];
    if map.is_empty() {
        return map;
    }
    for (turn, cpu) in cpus.iter().enumerate() {
        let queue = turn % map.len();
        map[queue].insert(cpu);
    }
    map
}

/// From a CPU (or receive queue) to its transmit queues: what the kernel stores for the files `xps_cpus` or
/// `xps_rxqs` of all queues (`struct xps_dev_maps`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    queues: Vec<Vec<u32>>,
}

impl Map {
    /// Inverts one set per transmit queue. The sets hold CPUs, or receive queues for `xps_rxqs`. The order within an
    /// entry is that of the queues, as if the files were written one after the other.
    #[must_use]
    pub fn new(per_queue: &[CpuSet]) -> Self {
        let len = per_queue.iter().filter_map(CpuSet::last).max().map_or(0, |last| last as usize + 1);
        let mut queues = vec![Vec::new(); len];
        for (queue, set) in (0_u32..).zip(per_queue) {
            set.iter().for_each(|number| queues[number as usize].push(queue));
        }
        Self { queues }
    }

    /// The transmit queues of a CPU (or receive queue); several if it is in several files.
    #[must_use]
    pub fn queues(&self, number: u32) -> &[u32] {
        self.queues.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// One of them, by hash (`__get_xps_queue_idx`). `None` if there is none, or it is not below `real_queues`.
    #[must_use]
    #[inline]
    fn choose(&self, number: u32, hash: u32, real_queues: u32) -> Option<u32> {
        let queue = match self.queues(number) {
            [] => return None,
            [only] => *only,
            several => several[reciprocal_scale(hash, several.len() as u32) as usize],
        };
        (queue < real_queues).then_some(queue)
    }
}

/// The transmit queues of a device and its mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xps {
    /// Transmit queues in use, 1 or more.
    pub real_queues: u32,
    /// From `xps_rxqs`; takes precedence.
    pub rxqs: Option<Map>,
    /// From `xps_cpus`.
    pub cpus: Option<Map>,
}

/// A transmit queue, and what selected it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The map of receive queues.
    Rxqs(u32),
    /// The map of CPUs.
    Cpus(u32),
    /// No map applied: by hash over all queues.
    Hash(u32),
}

impl Choice {
    /// The queue.
    #[must_use]
    pub const fn queue(self) -> u32 {
        match self {
            Self::Rxqs(queue) | Self::Cpus(queue) | Self::Hash(queue) => queue,
        }
    }
}

impl Xps {
    /// The queue for a packet sent from `cpu`, with the hash of its flow. `rx_queue` is the queue on which its socket
    /// last received, which the kernel knows for connected sockets only.
    ///
    /// Source: `get_xps_queue` and `skb_tx_hash` of `net/core/dev.c`. Drivers with a rule of their own
    /// (`ndo_select_queue`) may differ.
    #[must_use]
    pub fn choose(&self, cpu: u32, rx_queue: Option<u32>, hash: u32) -> Choice {
        let by = |map: &Option<Map>, number: u32| {
            map.as_ref().and_then(|map| map.choose(number, hash, self.real_queues))
        };
        if let Some(queue) = rx_queue.and_then(|rx_queue| by(&self.rxqs, rx_queue)) {
            return Choice::Rxqs(queue);
        }
        if let Some(queue) = by(&self.cpus, cpu) {
            return Choice::Cpus(queue);
        }
        Choice::Hash(reciprocal_scale(hash, self.real_queues))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(lists: &[&str]) -> Vec<CpuSet> {
        lists.iter().map(|list| list.parse().unwrap()).collect()
    }

    fn lists(cpus: &str, queues: u32) -> Vec<String> {
        spread(&cpus.parse().unwrap(), queues).iter().map(CpuSet::to_string).collect()
    }

    #[test]
    fn a_queue_for_every_cpu_when_there_are_enough() {
        assert_eq!(lists("0-1", 2), ["0", "1"]);
        assert_eq!(lists("3,8", 2), ["3", "8"]);
    }

    #[test]
    fn cpus_share_queues_round_robin() {
        assert_eq!(lists("0-4", 2), ["0,2,4", "1,3"]);
        assert_eq!(lists("0-3", 1), ["0-3"]);
    }

    #[test]
    fn queues_without_a_cpu_stay_empty() {
        assert_eq!(lists("0-1", 4), ["0", "1", "", ""]);
        assert_eq!(lists("", 2), ["", ""]);
        assert!(lists("0-1", 0).is_empty());
    }

    #[test]
    fn a_cpu_in_several_files_chooses_by_hash() {
        let map = Map::new(&sets(&["0", "0,2", ""]));
        assert_eq!((map.queues(0), map.queues(1), map.queues(2)), (&[0, 1][..], &[][..], &[1][..]));
        let xps = Xps { real_queues: 3, rxqs: None, cpus: Some(map) };
        assert_eq!([0, u32::MAX].map(|hash| xps.choose(0, None, hash)), [Choice::Cpus(0), Choice::Cpus(1)]);
        assert_eq!(xps.choose(1, None, u32::MAX), Choice::Hash(2));
        assert_eq!(xps.choose(99, None, 0).queue(), 0);
    }

    #[test]
    fn receive_queues_come_first_and_queues_that_are_gone_do_not_count() {
        let rxqs = Some(Map::new(&sets(&["1", "0"])));
        let cpus = Some(Map::new(&sets(&["0", "1", "2"])));
        let xps = Xps { real_queues: 2, rxqs, cpus };
        assert_eq!(xps.choose(0, Some(0), 7), Choice::Rxqs(1));
        assert_eq!(xps.choose(0, Some(5), 7), Choice::Cpus(0));
        assert_eq!(xps.choose(1, None, 7), Choice::Cpus(1));
        assert_eq!(xps.choose(2, None, u32::MAX), Choice::Hash(1), "tx-2 is not in use any more");
    }
}
