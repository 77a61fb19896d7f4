//! An interface with everything that decides which CPU its packets are handled on.

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
    /// Its number (`ifindex`).
    pub index: u32,
    /// `veth`, `bond`, `vlan`, `bridge`, ... as rtnetlink names it; `loopback`; `device` for hardware and what poses as
    /// it.
    pub kind: String,
    /// Link-layer address.
    pub address: Option<String>,
    /// The address that the hardware came with.
    pub permanent_address: Option<String>,
    /// Up, carrier, speed.
    pub link: LinkState,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Other interfaces of the same way.
    pub relations: Vec<Relation>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// How a bond spreads traffic.
    pub bond: Option<Bond>,
    /// Driver, version, bus.
    pub driver: Option<Fact<Driver>>,
    /// NUMA node of the device. -1: the firmware does not say, and all CPUs are equally near. None: no device.
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
    /// What UDP is hashed by.
    pub hash_fields: Option<Fact<HashFields>>,
    /// Flow rules.
    pub flow_rules: Option<Fact<Vec<FlowRule>>>,
    /// Which time stamps the device offers.
    pub time_stamping_offer: Option<Fact<TimeStampingOffer>>,
    /// Which packets it is told to stamp.
    pub time_stamping: Option<Fact<TimeStamping>>,
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// NAPI instances with their own settings.
    pub napis: Option<Fact<Vec<Napi>>>,
    /// NAPI settings of the whole interface.
    pub napi_defaults: NapiDefaults,
    /// Queueing disciplines.
    pub qdiscs: Option<Fact<Vec<Qdisc>>>,
    /// XDP programs.
    pub xdp: Option<Xdp>,
    /// What it offers to XDP.
    pub xdp_features: Option<Fact<XdpFeatures>>,
    /// The kernel's counters of the interface: `rx_packets`, `rx_dropped`, `rx_missed_errors`, ...
    pub statistics: Counters,
    /// The driver's own counters.
    pub driver_counters: Option<Fact<Counters>>,
}

/// Up, carrier, speed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Was it set up?
    pub up: bool,
    /// Is there a carrier? None while it is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `lowerlayerdown`, `unknown`, ...
    pub state: Option<String>,
    /// Mbit/s. None: not known, as of most virtual devices.
    pub speed: Option<u32>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// How often the carrier came or went.
    pub carrier_changes: Option<u32>,
    /// Packets that its queueing discipline is made for.
    pub tx_queue_len: u32,
}

/// Another interface of the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Carries this one's packets: member of this bond, port of this bridge, device of this VLAN, virtual function of
    /// this synthetic device.
    Lower(String),
    /// Sends its packets through this one.
    Upper(String),
    /// The other end of this veth, here.
    Peer(String),
    /// The other end of this veth, or the device below, in another namespace: its number there, and the number by which
    /// this namespace knows that one (`ip netns list-id`).
    Elsewhere {
        /// Its number there.
        index: u32,
        /// The namespace's number here; -1: it has none.
        namespace: i32,
    },
}

/// How a bond spreads traffic: /sys/class/net/BOND/bonding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// `802.3ad`, `active-backup`, ...
    pub mode: Option<String>,
    /// `layer2`, `layer3+4`, ...: what decides which member a flow leaves by. `layer2` and `layer2+3` keep all flows
    /// between two hosts on one.
    pub xmit_hash_policy: Option<String>,
    /// The one in use, in modes that have one.
    pub active: Option<String>,
}

/// A receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxQueue {
    /// Its number, from 0.
    pub id: u32,
    /// The NAPI instance that serves it.
    pub napi: Option<u32>,
    /// Its interrupt. None of software devices, and of those whose interrupts are not the kernel's (Hyper-V).
    pub irq: Option<Fact<u32>>,
    /// CPUs that handle its packets after the interrupt's; none set: the interrupt's own.
    pub rps_cpus: Option<CpuSet>,
    /// Flows that RFS keeps for it.
    pub rps_flow_cnt: Option<u32>,
    /// Is it bound to an AF_XDP socket, or does it exist for one alone? mlx5 showed a second half of receive queues for
    /// that, from Linux 5.3 to 6.0: no packet ever arrives on those without one.
    pub xsk: bool,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

/// A transmit queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxQueue {
    /// Its number, from 0.
    pub id: u32,
    /// The NAPI instance that cleans it.
    pub napi: Option<u32>,
    /// Its interrupt.
    pub irq: Option<Fact<u32>>,
    /// CPUs that send on it. None on an interface with one queue.
    pub xps_cpus: Option<CpuSet>,
    /// Receive queues whose flows are sent on it, as a set of their numbers.
    pub xps_rxqs: Option<CpuSet>,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

/// NAPI settings of a whole interface: /sys/class/net/DEV. Instances may have their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiDefaults {
    /// Empty polls before interrupts are on again.
    pub defer_hard_irqs: Option<u32>,
    /// How long they stay off then, nanoseconds.
    pub gro_flush_timeout: Option<u64>,
    /// 0: in softirq; 1: in threads.
    pub threaded: Option<u32>,
}

/// Steering settings of the whole namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Flows that RFS knows in all (`net.core.rps_sock_flow_entries`); 0: RFS is off.
    pub rps_sock_flow_entries: Option<u32>,
    /// What new queues begin with (`net.core.rps_default_mask`).
    pub rps_default_mask: Option<CpuSet>,
    /// Keeps one flow from filling a CPU's backlog.
    pub flow_limit: FlowLimit,
}

/// Flow limits: `net.core.flow_limit_*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLimit {
    /// CPUs whose backlog has one.
    pub cpus: Option<CpuSet>,
    /// Entries of the table of flows of a CPU.
    pub table_len: Option<u32>,
}
