//! Interrupts: their device, where they were handled, and where they may go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// Counts by CPU number. A CPU that is not listed has a count of 0, or does not exist.
///
/// The kernel counts in 32 bits, which wrap; [`since`] handles this.
pub type PerCpu = BTreeMap<u32, u32>;

/// The increase per CPU since an earlier snapshot of the same boot; CPUs without an increase are left out.
#[must_use]
pub fn since(now: &PerCpu, earlier: &PerCpu) -> PerCpu {
    let grown =
        |(cpu, count): (&u32, &u32)| (*cpu, count.wrapping_sub(earlier.get(cpu).copied().unwrap_or(0)));
    now.iter().map(grown).filter(|(_, count)| *count > 0).collect()
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Its number. It may change when the driver is reloaded or its queues are reconfigured.
    pub number: u32,
    /// The driver's name for it: `ens1f0-TxRx-3`, `virtio3-input.0`, ... Several names if it is shared.
    pub name: String,
    /// Its controller: `PCI-MSIX-0000:3b:00.0`, `IO-APIC`, `GICv3`, ...
    pub chip: String,
    /// Number of interrupts since boot, by CPU.
    pub counts: PerCpu,
    /// CPUs it may be sent to, as configured (`smp_affinity`).
    pub affinity: Option<CpuSet>,
    /// The CPUs it is sent to. After a change, keeps the old value until the next interrupt arrives.
    pub effective: Option<CpuSet>,
    /// The CPUs its driver hints at; `None` without a hint.
    pub hint: Option<CpuSet>,
    /// The NUMA node of its device; `None` if no node is closer than another.
    pub node: Option<u32>,
}

/// An interrupt of the processor itself: timer, rescheduling, function call, ...
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorInterrupt {
    /// Its short name: `CAL`, `RES`, `LOC`, `IPI0`.
    pub name: String,
    /// The kernel's description.
    pub what: String,
    /// Number of interrupts by CPU; empty for a machine-wide count.
    pub counts: PerCpu,
}

/// Softirqs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirq {
    /// `NET_RX`, `NET_TX`, `TIMER`, ...
    pub name: String,
    /// Number of runs by CPU.
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
