//! Time stamps that a device makes of packets, by ethtool's words: what it offers, and what it is told to do.
//!
//! The kernel's own stamps are another matter: sockets ask for those ([`super::sockets::SocketOptions::timestamps`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What a device offers: `ethtool -T`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStampingOffer {
    /// Who stamps what: `software-receive`, `hardware-transmit`, `hardware-raw-clock`, ... (`SOF_TIMESTAMPING_*`).
    #[serde(default)]
    pub kinds: BTreeSet<String>,
    /// Which packets it can stamp when it sends them: `off`, `on`, `onestep-sync`. Empty: none, as the next one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tx: BTreeSet<String>,
    /// Which packets it can stamp when it receives them: `none`, `all`, `ptpv2-event`, ...
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rx: BTreeSet<String>,
    /// Its clock: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

/// What a device is told to stamp (`struct hwtstamp_config` of linux/net_tstamp.h).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStamping {
    /// Of packets that it sends: `off`; `on`, those whose sockets ask for it; `onestep-sync`, `onestep-p2p`.
    pub tx: String,
    /// Of packets that it receives: `none`; `all`; `some`, more than was asked for; `ptpv2-event` and its like, `ntp-all`.
    pub rx: String,
    /// The clock that was chosen for it, where there are several: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

impl TimeStamping {
    /// Is every packet stamped that it receives?
    #[must_use]
    pub fn of_every_packet(&self) -> bool {
        self.rx == "all"
    }
}
