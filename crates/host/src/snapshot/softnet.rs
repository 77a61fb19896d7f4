//! What each CPU's receive path did: packets, drops, exhausted budgets, steering.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rows of `/proc/net/softnet_stat`, by CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softnet {
    /// A row for each CPU that was online.
    pub cpus: BTreeMap<u32, SoftnetCpu>,
}

/// One CPU's counters, 32 bits wide as in the kernel: they wrap. The same for all network namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftnetCpu {
    /// Packets taken up the stack here; with RPS, also those handed on by this CPU.
    pub processed: u32,
    /// Packets dropped because this CPU's backlog was full (`net.core.netdev_max_backlog`), or by a flow limit.
    pub dropped: u32,
    /// How often the softirq gave up with work left (`net.core.netdev_budget`, `netdev_budget_usecs`).
    pub time_squeeze: u32,
    /// Interrupts from other CPUs that steered packets here. From 2.6.35 on.
    pub received_rps: Option<u32>,
    /// Packets dropped by a flow limit. From 3.11 on.
    pub flow_limit: Option<u32>,
    /// Packets in the backlog at this moment. From 5.10 on.
    pub backlog: Option<u32>,
    /// Of those, how many still wait to be taken over by the CPU. From 6.4 on.
    pub waiting: Option<u32>,
}

impl SoftnetCpu {
    /// What was counted since an earlier snapshot of the same boot, wraps included. The backlog is that of now.
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
    /// What each CPU counted since an earlier snapshot of the same boot. A CPU that was not there then is left out: how
    /// much of its count is new is not known.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both = |(cpu, now): (&u32, &SoftnetCpu)| Some((*cpu, now.since(earlier.cpus.get(cpu)?)));
        Self { cpus: self.cpus.iter().filter_map(both).collect() }
    }
}
