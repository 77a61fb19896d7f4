//! Queues in rules: which ones count, their names, where their interrupts go.

use udpath_host::map::{InterfaceMap, QueueMap};
use udpath_steer::CpuSet;

use crate::finding::Location;
use crate::rule::{Found, Observed};

/// Queues of an interface that packets of the wire can reach.
pub(super) fn reachable(interface: &InterfaceMap) -> Vec<&QueueMap> {
    interface.queues.iter().filter(|queue| !queue.xsk).collect()
}

/// These queues as locations.
pub(super) fn located<'a>(
    interface: &InterfaceMap,
    queues: impl IntoIterator<Item = &'a QueueMap>,
) -> Vec<Location> {
    queues.into_iter().map(|queue| Location::Queue(interface.name.clone(), queue.queue)).collect()
}

/// `rx-3`, `rx-16-19`.
pub(super) fn names<'a>(queues: impl IntoIterator<Item = &'a QueueMap>) -> String {
    let numbers: CpuSet = queues.into_iter().map(|queue| queue.queue).collect();
    format!("rx-{numbers}")
}

/// The queues whose interrupt goes to one known CPU: the one it was sent to, even if it has not moved yet; else the one
/// that the kernel chose.
pub(super) fn placed(interface: &InterfaceMap) -> Vec<(&QueueMap, u32)> {
    let one = |cpus: &CpuSet| cpus.first().filter(|_| cpus.len() == 1);
    let cpu = |queue: &QueueMap| queue.affinity.as_ref().and_then(one).or_else(|| one(&queue.cpus));
    reachable(interface).into_iter().filter_map(|queue| Some((queue, cpu(queue)?))).collect()
}

/// Applies `find` to each interface.
pub(super) fn each(on: Observed<'_>, find: impl Fn(&InterfaceMap) -> Option<Found>) -> Vec<Found> {
    on.map.interfaces.iter().filter_map(find).collect()
}
