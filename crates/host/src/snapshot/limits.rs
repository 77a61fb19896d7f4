//! Limits of a process: CPUs, NUMA nodes, and CPU time.

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// Limits of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPUs it may run on: its own mask within that of its cpuset.
    pub cpus: Option<CpuSet>,
    /// NUMA nodes it may allocate memory on.
    pub nodes: Option<CpuSet>,
    /// The CPUs of its cpuset, which bound its own mask.
    pub cpuset: Option<CpuSet>,
    /// CPU time limits, of its own control group first, then of the ancestors. All of them apply.
    pub quotas: Vec<Quota>,
}

/// A CPU time limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Its control group, as a path below the mount point.
    pub group: String,
    /// CPU time that all its threads together may use per period, in microseconds.
    pub quota_us: u64,
    /// Length of the period in microseconds.
    pub period_us: u64,
    /// Number of periods in which it was throttled, since the group was created.
    pub throttled: u64,
    /// Total time its threads were throttled, in microseconds, summed over the CPUs.
    pub throttled_us: u64,
}

impl Quota {
    /// The limit as a number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}
