//! What is to be run.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::SelectionRule as Rule;
use udpath_steer::CpuSet;
use udpath_tune::services::Probe;

/// A server and its instances.
#[derive(Debug, Clone)]
pub struct Config {
    /// Names the running instances, and their folder and cgroup: letters, digits and `-_.@`, at most 64.
    pub name: String,
    /// Whether `name` is that of a unit of systemd, whose instances are then units as well; else they are children of
    /// the supervisor.
    pub unit: bool,
    /// The server: program and arguments. In each, `{n}` is the instance's number from 1, `{cpu}` its CPU, and
    /// `{folder}` a folder of its own.
    pub command: Vec<String>,
    /// How many instances; 1 to the number of `cpus`.
    pub count: usize,
    /// The UDP port that each must bind; `None`: that of a known server, or any.
    pub port: Option<u16>,
    /// Which instance gets a datagram.
    pub choose: Choose,
    /// The query that each must answer; `None`: that of a known server, or none.
    pub probe: Option<Probe>,
    /// CPUs for the instances, one each, in this order.
    pub cpus: CpuSet,
    /// How long an instance may take until it serves.
    pub start: Duration,
    /// How long an instance may take to read what is queued, and again to end.
    pub drain: Duration,
    /// The journal of the policy.
    pub journal: PathBuf,
    /// The command that takes back what a killed supervisor leaves, once its input ends.
    pub guard: Vec<String>,
}

/// Which instance gets a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// By the hash of its flow: a flow stays with one instance.
    Hash,
    /// By the CPU that received it.
    Cpu,
}

impl Choose {
    pub(crate) const fn rule(self) -> Rule {
        match self {
            Self::Hash => Rule::Hash,
            Self::Cpu => Rule::Cpu,
        }
    }
}
