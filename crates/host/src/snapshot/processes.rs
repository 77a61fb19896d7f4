//! Processes that have UDP sockets, and their threads.

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use super::limits::Limits;

/// A process that has UDP sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its PID, as the reader sees it.
    pub pid: u32,
    /// Its name: 15 characters at most.
    pub name: String,
    /// The program it runs; `None` without permission to read it.
    pub executable: Option<String>,
    /// Its arguments, separated by spaces; truncated if long.
    pub command: Option<String>,
    /// The user it runs as.
    pub uid: Option<u32>,
    /// Its control group.
    pub group: Option<String>,
    /// Its systemd unit, from the control group's name.
    pub unit: Option<String>,
    /// Its container, from the control group's name.
    pub container: Option<Container>,
    /// Its CPU and memory limits.
    pub limits: Limits,
    /// Its threads, the main thread first.
    pub threads: Vec<Thread>,
}

/// A container, as far as a control group's name identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its runtime: `docker`, `containerd`, `cri-o`, `podman`, `lxc`, `systemd-nspawn`.
    pub runtime: String,
    /// Its identifier or name.
    pub id: String,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its ID.
    pub tid: u32,
    /// Its name: 15 characters at most.
    pub name: String,
    /// CPUs it may run on.
    pub cpus: Option<CpuSet>,
    /// The CPU it last ran on.
    pub last_cpu: Option<u32>,
}
