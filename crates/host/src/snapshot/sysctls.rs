//! Settings of the kernel that bear on UDP.

use serde::{Deserialize, Serialize};

/// One setting below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// `net.core.rmem_max`; an interface's name is a part of it: `net.ipv4.conf.eth0.rp_filter`.
    pub name: String,
    /// Its text. Several numbers are parted by single blanks.
    pub value: String,
    /// Whose setting it is.
    pub scope: SysctlScope,
}

/// Whose setting it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SysctlScope {
    /// The machine's, and seen in the initial network namespace alone: a container can neither read nor set it.
    Host,
    /// The network namespace's own.
    Namespace,
    /// The machine's; other namespaces can read it, and some kernels show it only in the initial one.
    HostReadable,
}
