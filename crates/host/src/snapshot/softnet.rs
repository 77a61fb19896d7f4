//! Receive path counters per CPU: packets, drops, exhausted budgets, steering.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rows of `/proc/net/softnet_stat`, by CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softnet {
    /// A row for each CPU that was online.
    pub cpus: BTreeMap<u32, SoftnetCpu>,
}

/// One CPU's counters, 32 bits wide as in the kernel: they wrap. Shared by all network namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftnetCpu {
    /// Packets processed here; with RPS, also those that this CPU passed on.
    pub processed: u32,
    /// Packets dropped because this CPU's backlog was full (`net.core.netdev_max_backlog`), or by a flow limit.
    pub dropped: u32,
    /// Number of times the softirq stopped with work left (`net.core.netdev_budget`, `netdev_budget_usecs`).
    pub time_squeeze: u32,
    /// Inter-processor interrupts that steered packets here. From 2.6.35 on.
    pub received_rps: Option<u32>,
    /// Packets dropped by a flow limit. From 3.11 on.
    pub flow_limit: Option<u32>,
    /// Packets currently in the backlog. From 5.10 on.
    pub backlog: Option<u32>,
    /// The part of the backlog that the CPU has not taken over yet. From 6.4 on.
    pub waiting: Option<u32>,
}

impl SoftnetCpu {
    /// The increase since an earlier snapshot of the same boot, wraps included. The backlog is the current one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both =
            |now: Option<u32>, then: Option<u32>| now.zip(then).map(|(now, then)| now.wrapping_sub(then));
        Self {
            processed: self.processed.wrapping_sub(earlier.processed),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            received_rps: both(self.received_rps, earlier.received_rps),
            flow_limit: both(self.flow_limit, earlier.flow_limit),
            backlog: self.backlog,
            waiting: self.waiting,
        }
    }
}

impl Softnet {
    /// The increase per CPU since an earlier snapshot of the same boot. A CPU missing from the earlier snapshot is left
    /// out: its increase is unknown.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both = |(cpu, now): (&u32, &SoftnetCpu)| Some((*cpu, now.since(earlier.cpus.get(cpu)?)));
        Self { cpus: self.cpus.iter().filter_map(both).collect() }
    }
}
