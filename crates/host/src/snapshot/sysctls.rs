//! Kernel settings that affect UDP.

use serde::{Deserialize, Serialize};

/// One setting below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// `net.core.rmem_max`; an interface's name is part of it: `net.ipv4.conf.eth0.rp_filter`.
    pub name: String,
    /// Its text. Several numbers are separated by single spaces.
    pub value: String,
    /// Scope of the setting.
    pub scope: SysctlScope,
}

/// Scope of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SysctlScope {
    /// Machine-wide, and visible only in the initial network namespace: a container can neither read nor set it.
    Host,
    /// Per network namespace.
    Namespace,
    /// Machine-wide; other namespaces can read it, and some kernels show it only in the initial one.
    HostReadable,
}
