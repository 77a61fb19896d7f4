//! Interrupts: whose they are, where they went, and where they may go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// A count of each CPU, by its number. A CPU that is not named counted nothing, or is not there.
///
/// The kernel counts in 32 bits, which wrap; [`since`] knows.
pub type PerCpu = BTreeMap<u32, u32>;

/// How much each CPU counted since an earlier snapshot of the same boot; CPUs that counted nothing are left out.
#[must_use]
pub fn since(now: &PerCpu, earlier: &PerCpu) -> PerCpu {
    let grown =
        |(cpu, count): (&u32, &u32)| (*cpu, count.wrapping_sub(earlier.get(cpu).copied().unwrap_or(0)));
    now.iter().map(grown).filter(|(_, count)| *count > 0).collect()
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Its number. It may change when the driver is loaded again or its queues are set up anew.
    pub number: u32,
    /// What the driver calls it: `ens1f0-TxRx-3`, `virtio3-input.0`, ... Several names where it is shared.
    pub name: String,
    /// Its controller: `PCI-MSIX-0000:3b:00.0`, `IO-APIC`, `GICv3`, ...
    pub chip: String,
    /// How often it arrived, by CPU, since boot.
    pub counts: PerCpu,
    /// CPUs it may be sent to, as it was set (`smp_affinity`).
    pub affinity: Option<CpuSet>,
    /// The CPUs it is sent to. Stays the old one after a change until the next interrupt arrives.
    pub effective: Option<CpuSet>,
    /// The CPUs its driver asks for; none where it asks for none.
    pub hint: Option<CpuSet>,
    /// The node its device sits at; none where no node is nearer than another.
    pub node: Option<u32>,
}

/// An interrupt of the processor itself: timer, rescheduling, function call, ...
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorInterrupt {
    /// Its short name: `CAL`, `RES`, `LOC`, `IPI0`.
    pub name: String,
    /// What it is, in the kernel's words.
    pub what: String,
    /// How often it came, by CPU; empty for one that is counted for the machine as a whole.
    pub counts: PerCpu,
}

/// Softirqs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirq {
    /// `NET_RX`, `NET_TX`, `TIMER`, ...
    pub name: String,
    /// How often it ran, by CPU.
    pub counts: PerCpu,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap_and_cpus_come_and_go() {
        let then = PerCpu::from([(0, u32::MAX - 1), (1, 7), (2, 100)]);
        let now = PerCpu::from([(0, 3), (1, 7), (3, 5)]);
        assert_eq!(since(&now, &then), PerCpu::from([(0, 5), (3, 5)]));
    }
}
