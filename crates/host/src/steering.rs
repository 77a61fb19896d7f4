//! Steering settings of the network namespace: RFS, RPS defaults, flow limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{cpu_mask, one, optional};
use crate::{Missing, Source};

/// Steering settings of the network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Steering {
    /// Total number of RFS flows (`net.core.rps_sock_flow_entries`); 0: RFS is off.
    pub rps_sock_flow_entries: Option<u32>,
    /// Default for new queues (`net.core.rps_default_mask`).
    pub rps_default_mask: Option<CpuSet>,
    /// Prevents one flow from filling a CPU's backlog.
    pub flow_limit: FlowLimit,
}

/// Flow limits: `net.core.flow_limit_*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct FlowLimit {
    /// CPUs whose backlog has a flow limit.
    pub cpus: Option<CpuSet>,
    /// Size of a CPU's flow table, in entries.
    pub table_len: Option<u32>,
}

/// Reads the steering settings. A kernel without the feature has none of these files, nor does an old kernel in a
/// non-initial namespace.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Steering {
    let path = |name: &str| format!("/proc/sys/net/core/{name}");
    let mut number = |name: &str| optional(source, missing, name, &path(name), one);
    let rps_sock_flow_entries = number("rps_sock_flow_entries");
    let table_len = number("flow_limit_table_len");
    let mut mask = |name: &str| optional(source, missing, name, &path(name), cpu_mask);
    Steering {
        rps_sock_flow_entries,
        rps_default_mask: mask("rps_default_mask"),
        flow_limit: FlowLimit { cpus: mask("flow_limit_cpu_bitmap"), table_len },
    }
}
