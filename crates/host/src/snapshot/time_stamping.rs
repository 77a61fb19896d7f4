//! Timestamps that a device makes of packets, in ethtool's terms: what it supports and what is configured.
//!
//! The kernel's own stamps are separate: sockets request those ([`super::sockets::SocketOptions::timestamps`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What a device supports: `ethtool -T`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStampingOffer {
    /// Timestamping modes: `software-receive`, `hardware-transmit`, `hardware-raw-clock`, ... (`SOF_TIMESTAMPING_*`).
    #[serde(default)]
    pub kinds: BTreeSet<String>,
    /// Which packets it can stamp on transmit: `off`, `on`, `onestep-sync`. Empty: none, as for the next one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tx: BTreeSet<String>,
    /// Which packets it can stamp on receive: `none`, `all`, `ptpv2-event`, ...
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rx: BTreeSet<String>,
    /// Its clock: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

/// What a device is configured to stamp (`struct hwtstamp_config` of linux/net_tstamp.h).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStamping {
    /// On transmit: `off`; `on`, for sockets that request it; `onestep-sync`, `onestep-p2p`.
    pub tx: String,
    /// On receive: `none`; `all`; `some`, more than was requested; `ptpv2-event` and similar, `ntp-all`.
    pub rx: String,
    /// The clock selected for it, if there are several: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

impl TimeStamping {
    /// Whether every received packet is stamped.
    #[must_use]
    pub fn of_every_packet(&self) -> bool {
        self.rx == "all"
    }
}
