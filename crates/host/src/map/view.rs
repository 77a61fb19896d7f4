//! The snapshots that a map is made of.

use crate::Snapshot;
use crate::snapshot::Interface;

/// Two snapshots of one machine, or one.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) now: &'a Snapshot,
    pub(super) earlier: Option<&'a Snapshot>,
}

impl<'a> View<'a> {
    /// The interface as it was earlier. Numbers stay with an interface through a change of its name.
    pub(super) fn earlier(self, interface: &Interface) -> Option<&'a Interface> {
        self.earlier?.interfaces.iter().find(|then| then.index == interface.index)
    }

    /// The memory node of a CPU.
    pub(super) fn node(self, cpu: u32) -> Option<u32> {
        self.now.cpus.cpu(cpu).and_then(|cpu| cpu.node)
    }
}

/// A count and what it was earlier, if that is known and not more.
pub(super) fn since(now: u64, earlier: Option<u64>) -> u64 {
    now.checked_sub(earlier.unwrap_or(0)).unwrap_or(now)
}
