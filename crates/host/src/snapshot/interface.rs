//! An interface with everything that determines which CPU handles its packets.

use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use super::{
    Channels, Coalescing, Counters, Driver, Features, FlowRule, HashFields, Napi, Qdisc, Rings, Rss,
    TimeStamping, TimeStampingOffer, Xdp, XdpFeatures,
};
use crate::Fact;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index (`ifindex`).
    pub index: u32,
    /// `veth`, `bond`, `vlan`, `bridge`, ... as rtnetlink names it; `loopback`; `device` for real and emulated
    /// hardware.
    pub kind: String,
    /// Link-layer address.
    pub address: Option<String>,
    /// The hardware's permanent address.
    pub permanent_address: Option<String>,
    /// Up, carrier, speed.
    pub link: LinkState,
    /// MTU in bytes.
    pub mtu: u32,
    /// Related interfaces on the same path.
    pub relations: Vec<Relation>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// Bonding settings.
    pub bond: Option<Bond>,
    /// Driver, version, bus.
    pub driver: Option<Fact<Driver>>,
    /// NUMA node of the device. -1: not reported by the firmware, all CPUs are equally near. `None`: no device.
    pub node: Option<i32>,
    /// CPUs near the device.
    pub local_cpus: Option<CpuSet>,
    /// Channels.
    pub channels: Option<Fact<Channels>>,
    /// Descriptor rings.
    pub rings: Option<Fact<Rings>>,
    /// Interrupt coalescing.
    pub coalescing: Option<Fact<Coalescing>>,
    /// Offloads.
    pub features: Option<Fact<Features>>,
    /// Table, key, function, contexts.
    pub rss: Option<Fact<Rss>>,
    /// UDP hash fields.
    pub hash_fields: Option<Fact<HashFields>>,
    /// Flow rules.
    pub flow_rules: Option<Fact<Vec<FlowRule>>>,
    /// Timestamping capabilities of the device.
    pub time_stamping_offer: Option<Fact<TimeStampingOffer>>,
    /// Which packets it is configured to stamp.
    pub time_stamping: Option<Fact<TimeStamping>>,
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// NAPI instances with their own settings.
    pub napis: Option<Fact<Vec<Napi>>>,
    /// Interface-wide NAPI settings.
    pub napi_defaults: NapiDefaults,
    /// Queueing disciplines.
    pub qdiscs: Option<Fact<Vec<Qdisc>>>,
    /// XDP programs.
    pub xdp: Option<Xdp>,
    /// Its XDP features.
    pub xdp_features: Option<Fact<XdpFeatures>>,
    /// The kernel's counters of the interface: `rx_packets`, `rx_dropped`, `rx_missed_errors`, ...
    pub statistics: Counters,
    /// The driver's own counters.
    pub driver_counters: Option<Fact<Counters>>,
}

/// Up, carrier, speed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier. `None` while it is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `lowerlayerdown`, `unknown`, ...
    pub state: Option<String>,
    /// Mbit/s. `None`: unknown, as for most virtual devices.
    pub speed: Option<u32>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// Number of carrier changes.
    pub carrier_changes: Option<u32>,
    /// Transmit queue length in packets.
    pub tx_queue_len: u32,
}

/// A related interface on the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Carries this one's packets: member of this bond, port of this bridge, device of this VLAN, virtual function of
    /// this synthetic device.
    Lower(String),
    /// Sends its packets through this one.
    Upper(String),
    /// The peer of this veth, in this namespace.
    Peer(String),
    /// The peer of this veth, or the device below, in another namespace: its index there, and this namespace's ID for
    /// the other (`ip netns list-id`).
    Elsewhere {
        /// Its index there.
        index: u32,
        /// The namespace's ID here; -1: it has none.
        namespace: i32,
    },
}

/// Bonding settings: /sys/class/net/BOND/bonding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// `802.3ad`, `active-backup`, ...
    pub mode: Option<String>,
    /// `layer2`, `layer3+4`, ...: determines which member a flow leaves through. `layer2` and `layer2+3` keep all flows
    /// between two hosts on one.
    pub xmit_hash_policy: Option<String>,
    /// The active member, in modes that have one.
    pub active: Option<String>,
}

/// A receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxQueue {
    /// Its index, from 0.
    pub id: u32,
    /// The NAPI instance that serves it.
    pub napi: Option<u32>,
    /// Its interrupt. `None` for software devices, and for those whose interrupts the kernel does not manage (Hyper-V).
    pub irq: Option<Fact<u32>>,
    /// CPUs that process its packets after the interrupt's CPU; empty: the interrupt's CPU.
    pub rps_cpus: Option<CpuSet>,
    /// Number of RFS flows for it.
    pub rps_flow_cnt: Option<u32>,
    /// Whether it is bound to an AF_XDP socket, or exists for one alone. From Linux 5.3 to 6.0 mlx5 reported a second
    /// half of receive queues for that: no packet ever arrives on those without one.
    pub xsk: bool,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

/// A transmit queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxQueue {
    /// Its index, from 0.
    pub id: u32,
    /// The NAPI instance that cleans it.
    pub napi: Option<u32>,
    /// Its interrupt.
    pub irq: Option<Fact<u32>>,
    /// CPUs that send on it. `None` on an interface with one queue.
    pub xps_cpus: Option<CpuSet>,
    /// Receive queues whose flows are sent on it, as a set of their indexes.
    pub xps_rxqs: Option<CpuSet>,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

/// Interface-wide NAPI settings: /sys/class/net/DEV. Instances may have their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiDefaults {
    /// Number of empty polls before interrupts are re-enabled.
    pub defer_hard_irqs: Option<u32>,
    /// How long they then stay off, in nanoseconds.
    pub gro_flush_timeout: Option<u64>,
    /// 0: in softirq; 1: in threads.
    pub threaded: Option<u32>,
}

/// Steering settings of the network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Total number of RFS flows (`net.core.rps_sock_flow_entries`); 0: RFS is off.
    pub rps_sock_flow_entries: Option<u32>,
    /// Default for new queues (`net.core.rps_default_mask`).
    pub rps_default_mask: Option<CpuSet>,
    /// Prevents one flow from filling a CPU's backlog.
    pub flow_limit: FlowLimit,
}

/// Flow limits: `net.core.flow_limit_*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLimit {
    /// CPUs whose backlog has a flow limit.
    pub cpus: Option<CpuSet>,
    /// Size of a CPU's flow table, in entries.
    pub table_len: Option<u32>,
}
