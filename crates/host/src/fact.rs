//! A value and its source; or the reason there is none.
//!
//! A missing value is normal: a veth has no rings, an unprivileged reader sees no socket owners, a capture may lack
//! what its kernel did not have. No reader fails because of it; the snapshot lists it as text.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Fact_of_{T}")]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub from: Provenance,
}

impl<T> Fact<T> {
    /// `value`, read from `from`.
    pub const fn new(value: T, from: Provenance) -> Self {
        Self { value, from }
    }
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// A file of procfs or sysfs, by its path.
    File(String),
    /// A message of the ethtool netlink family, by its name in Documentation/netlink/specs/ethtool.yaml.
    Ethtool(String),
    /// An ethtool ioctl, by its name in linux/ethtool.h.
    EthtoolIoctl(String),
    /// An ioctl of a network device, by its name in linux/sockios.h.
    DeviceIoctl(String),
    /// A message of the netdev netlink family, by its name in Documentation/netlink/specs/netdev.yaml.
    Netdev(String),
    /// A message of rtnetlink, such as `RTM_GETLINK`.
    Route(String),
    /// `sock_diag`(7).
    SockDiag,
    /// A message of nftables, by its name in linux/netfilter/nf_tables.h.
    Nftables(String),
    /// A message of the audit system, by its name in linux/audit.h.
    Audit(String),
    /// A BPF iterator, by what it walks: `udp`.
    Iterator(String),
    /// An option of a socket, by its name, read through a duplicate of its descriptor.
    SocketOption(String),
    /// Concluded from other values, by the rule named.
    Derived(String),
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Ethtool(message) => write!(f, "ethtool netlink {message}"),
            Self::EthtoolIoctl(command) => write!(f, "ethtool ioctl {command}"),
            Self::DeviceIoctl(name) => write!(f, "ioctl {name}"),
            Self::Netdev(message) => write!(f, "netdev netlink {message}"),
            Self::Route(message) => write!(f, "rtnetlink {message}"),
            Self::SockDiag => f.write_str("sock_diag"),
            Self::Nftables(message) => write!(f, "nftables {message}"),
            Self::Audit(message) => write!(f, "audit {message}"),
            Self::Iterator(over) => write!(f, "BPF iterator {over}"),
            Self::SocketOption(option) => write!(f, "socket option {option}"),
            Self::Derived(rule) => write!(f, "derived: {rule}"),
        }
    }
}

/// Reason for a missing value.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Absence {
    /// It does not exist here: no such file, no such device.
    #[error("not there")]
    NotThere,
    /// The kernel or the driver does not support it.
    #[error("not supported by this kernel or driver")]
    NotSupported,
    /// The reader lacks permission.
    #[error("not permitted; {needs} would show it")]
    NotPermitted {
        /// What suffices: `root`, `CAP_NET_ADMIN`, ...
        needs: String,
    },
    /// The capture does not contain it.
    #[error("not in the capture")]
    NotCaptured,
    /// It disappeared, or changed shape, while it was read.
    #[error("changed while it was read: {0}")]
    Changed(String),
    /// It exists but cannot be parsed. Never fatal: the rest of the snapshot remains valid.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// The read failed for another reason.
    #[error("{0}")]
    Failed(String),
}

/// One item that the snapshot lacks, as text.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Missing {
    /// The missing item: `owners of the UDP sockets`, `RSS table of eth0`.
    pub what: String,
    /// The source that was tried.
    pub from: Provenance,
    /// The reason it is missing.
    pub why: Absence,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.what, self.from, self.why)
    }
}
