//! Reads [`Steering`].

use super::text::{cpu_mask, one, optional};
use crate::snapshot::{FlowLimit, Steering};
use crate::{Missing, Source};

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
