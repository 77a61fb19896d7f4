//! Netfilter between device and socket: rules and connection tracking.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Fact;

/// Netfilter in this network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netfilter {
    /// Tables of iptables that are loaded: `filter`, `raw`, ... Every packet traverses each of them.
    pub iptables: Option<Fact<Vec<String>>>,
    /// Tables of ip6tables.
    pub ip6tables: Option<Fact<Vec<String>>>,
    /// Base chains of nftables; iptables' own are among them with iptables-nft.
    pub nftables: Option<Fact<Vec<NftChain>>>,
    /// Functions that every packet of a family passes, from any registrant, ordered by family, hook and priority. From
    /// Linux 5.14 on, where it is built with NETFILTER_NETLINK_HOOK.
    #[serde(default)]
    pub hooks: Option<Fact<Vec<Hook>>>,
    /// Packet filter modules that are loaded. Built-in ones are not listed.
    pub modules: Vec<String>,
    /// Connection tracking, if the kernel has it.
    pub conntrack: Option<Conntrack>,
}

/// A base chain of nftables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NftChain {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `filter`, `nat`, `route`.
    #[serde(default)]
    pub kind: String,
    /// Its hook: `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`.
    pub hook: String,
    /// Chains of a hook run in ascending order. -300 is before connection tracking, 0 is filtering.
    pub priority: i32,
    /// Number of rules in it, and of jumps to it.
    pub rules: u32,
}

/// A function that packets pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// `ip`, `ip6`, `bridge`, or `netdev` for a device's own.
    pub family: String,
    /// Its hook: `prerouting`, `input`, ..., `ingress`, `egress`.
    pub hook: String,
    /// The device it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Functions of a hook are called in ascending order.
    pub priority: i32,
    /// The kernel function, if it has a symbol name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The module it is in; `None` if built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The chain of nftables that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<HookChain>,
    /// The ID of the BPF program that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<u32>,
}

/// A chain's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookChain {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
}

/// Connection tracking.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conntrack {
    /// Connections currently tracked in this namespace. 0: no rule enables tracking, or there was no traffic.
    pub count: u64,
    /// At this count new ones are refused, and their packets dropped.
    pub max: Option<u64>,
    /// Hash buckets.
    pub buckets: Option<u64>,
    /// Counters of each possible CPU.
    pub cpus: BTreeMap<u32, ConntrackCpu>,
}

/// One CPU's counters, 32 bits wide: they wrap. A counter that the kernel lacks is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackCpu {
    /// Packets of a known connection (counted only by some kernels).
    pub found: u32,
    /// Packets that match no connection and may not start one.
    pub invalid: u32,
    /// Connections that lost an insertion race with one of the same addresses.
    pub insert_failed: u32,
    /// Packets dropped because no connection could be created for them.
    pub drop: u32,
    /// Connections ended early to make room.
    pub early_drop: u32,
    /// Bucket walks restarted because another CPU changed the bucket.
    pub search_restart: u32,
    /// Connections refused because their bucket's chain was too long. From 5.15 on.
    pub chain_too_long: u32,
}

impl ConntrackCpu {
    /// The increase since an earlier snapshot of the same boot, wraps included.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            found: self.found.wrapping_sub(earlier.found),
            invalid: self.invalid.wrapping_sub(earlier.invalid),
            insert_failed: self.insert_failed.wrapping_sub(earlier.insert_failed),
            drop: self.drop.wrapping_sub(earlier.drop),
            early_drop: self.early_drop.wrapping_sub(earlier.early_drop),
            search_restart: self.search_restart.wrapping_sub(earlier.search_restart),
            chain_too_long: self.chain_too_long.wrapping_sub(earlier.chain_too_long),
        }
    }
}
