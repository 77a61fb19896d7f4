//! What a process may use of the machine: CPUs, nodes, and CPU time.

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// What a process may use of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPUs it may run on: its own mask within that of its cpuset.
    pub cpus: Option<CpuSet>,
    /// Nodes it may have memory of.
    pub nodes: Option<CpuSet>,
    /// The CPUs of its cpuset: its own mask cannot leave them.
    pub cpuset: Option<CpuSet>,
    /// Limits of CPU time, of its own control group first, then of those around it. All of them bind.
    pub quotas: Vec<Quota>,
}

/// A limit of CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The control group that has it, as a path below the mount point.
    pub group: String,
    /// CPU time all its threads may use in a period, microseconds.
    pub quota_us: u64,
    /// Length of the period, microseconds.
    pub period_us: u64,
    /// Periods in which it had used up its time and waited, since the group was made.
    pub throttled: u64,
    /// How long its threads waited for that, microseconds, added up over the CPUs.
    pub throttled_us: u64,
}

impl Quota {
    /// How many CPUs' worth of time it is.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}
