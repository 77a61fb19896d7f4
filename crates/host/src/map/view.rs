//! The snapshots a map is built from.

use crate::Snapshot;
use crate::interfaces::Interface;

/// Two snapshots of one machine, or one.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) now: &'a Snapshot,
    pub(super) earlier: Option<&'a Snapshot>,
}

impl<'a> View<'a> {
    /// The interface in the earlier snapshot. The index survives a rename.
    pub(super) fn earlier(self, interface: &Interface) -> Option<&'a Interface> {
        self.earlier?.interfaces.iter().find(|then| then.index == interface.index)
    }

    /// The NUMA node of a CPU.
    pub(super) fn node(self, cpu: u32) -> Option<u32> {
        self.now.cpus.cpu(cpu).and_then(|cpu| cpu.node)
    }
}

/// The increase of a count since the earlier value, or the count if that is unknown or larger.
pub(super) fn since(now: u64, earlier: Option<u64>) -> u64 {
    now.checked_sub(earlier.unwrap_or(0)).unwrap_or(now)
}
