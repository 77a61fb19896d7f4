//! When and where a result was measured: enough to judge whether two results differ for another reason than the
//! service.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When and where a result was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Origin {
    /// When the measurement ended, seconds since 1970-01-01 UTC.
    pub at: u64,
    /// Version of the program that measured.
    pub version: String,
    /// Identity of the machine: a keyed hash of its machine-id(5), 16 hexadecimal digits, from which that id cannot be
    /// computed; empty if it has none.
    pub machine: String,
    /// CPU model as in /proc/cpuinfo; empty if unknown.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// `uname -r`.
    pub kernel: String,
    /// Settings of the machine that affect UDP, by name. Of the machine that measured: a server elsewhere has its own.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}
