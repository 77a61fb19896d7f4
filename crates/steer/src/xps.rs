//! XPS, the transmit mapping: which CPUs send on which queue.
//!
//! ```text
//! 2 CPUs, 2 queues      4 CPUs, 2 queues       2 CPUs, 3 queues
//! cpu 0 -> tx-0         cpu 0, 2 -> tx-0       cpu 0 -> tx-0
//! cpu 1 -> tx-1         cpu 1, 3 -> tx-1       cpu 1 -> tx-1
//!                                              nobody -> tx-2
//! ```
//!
//! A CPU with a queue of its own never waits for another CPU's queue lock. On veth the receiver's queue follows the
//! sender's, so this mapping also decides on which receive queue, and so on which CPU, the peer works.

use crate::CpuSet;

/// One entry per queue: the CPUs that should send on it.
///
/// CPUs are dealt to queues in ascending order, round robin. With as many queues as CPUs each CPU has a queue of its
/// own; with fewer queues no queue has more than one CPU more than another; with more queues the rest stay empty.
/// Every CPU is in exactly one set, unless there is no queue at all.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
