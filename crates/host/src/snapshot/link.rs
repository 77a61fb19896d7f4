//! Network devices as rtnetlink and the netdev family list them: the raw lists that interfaces are built from.
//! Interfaces are identified by index here (`ifindex`), as in the kernel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An interface as `RTM_GETLINK` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `bond`, `vlan`, `bridge`, ...; `None` for hardware and the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is the loopback interface.
    #[serde(default)]
    pub loopback: bool,
    /// Whether it is administratively up.
    #[serde(default)]
    pub up: bool,
    /// Whether it has a carrier. `None`: not reported (it is down).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// MTU in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// Transmit queue length in packets (`txqueuelen`).
    #[serde(default)]
    pub tx_queue_len: u32,
    /// Link-layer address: `02:00:00:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The hardware's permanent address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_address: Option<String>,
    /// The interface it is enslaved to: for a bond member the bond, for a bridge port the bridge, for a virtual
    /// function the synthetic device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// The interface below (for a VLAN), or the peer (for a veth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// This namespace's ID for the namespace of `link`; `None`: the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_namespace: Option<i32>,
    /// VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// XDP programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<Xdp>,
    /// The kernel's counters, by their sysfs file names. Empty: not reported here.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub statistics: Counters,
}

/// XDP programs of an interface, by attach mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xdp {
    /// Program in the driver, before a socket buffer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<u32>,
    /// Program on socket buffers (generic mode, slow).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generic: Option<u32>,
    /// Program in the hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<u32>,
}

/// A queueing discipline as `RTM_GETQDISC` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qdisc {
    /// The interface's index.
    pub interface: u32,
    /// `mq`, `fq_codel`, `noqueue`, ...
    pub kind: String,
    /// Its handle as tc writes it: `8001:`, `0:`.
    pub handle: String,
    /// Its parent: `root`, `ingress`, `8001:1`.
    pub parent: String,
    /// Bytes sent.
    #[serde(default)]
    pub bytes: u64,
    /// Packets sent.
    #[serde(default)]
    pub packets: u64,
    /// Packets waiting.
    #[serde(default)]
    pub queued: u32,
    /// Bytes waiting.
    #[serde(default)]
    pub backlog: u32,
    /// Packets dropped. 32 bits wide: wraps.
    #[serde(default)]
    pub drops: u32,
    /// Times its limit was reached. 32 bits wide: wraps.
    #[serde(default)]
    pub overlimits: u32,
    /// Packets requeued because the device did not accept them. 32 bits wide: wraps.
    #[serde(default)]
    pub requeues: u32,
}

/// Receive or transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// A queue as the netdev family shows it (`queue-get`, since Linux 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetdevQueue {
    /// The interface's index.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// Its index, from 0.
    pub id: u32,
    /// The NAPI instance that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<u32>,
    /// Whether an AF_XDP socket is bound to it.
    #[serde(default)]
    pub xsk: bool,
}

/// A NAPI instance as the netdev family shows it (`napi-get`, since Linux 6.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Napi {
    /// The interface's index.
    pub interface: u32,
    /// Its ID, unique on the machine; sockets report it as `SO_INCOMING_NAPI_ID`.
    pub id: u32,
    /// Its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// The PID of its polling thread, if threaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Number of consecutive empty polls before interrupts are re-enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_hard_irqs: Option<u32>,
    /// How long interrupts then stay off, and GRO holds packets, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_flush_timeout: Option<u64>,
    /// How long interrupts stay off while an application polls, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_suspend_timeout: Option<u64>,
    /// 0: in softirq; 1: in a thread; 2: in a thread that polls continuously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<u32>,
}

/// Counters of a queue: `packets`, `bytes`, `drops`, and any others the driver counts, by the names of
/// Documentation/netlink/specs/netdev.yaml without their direction: `alloc-fail`, `hw-drops`, `hw-drop-overruns`, ...
pub type Counters = BTreeMap<String, u64>;

/// A queue's counters as the netdev family shows them (`qstats-get`, since Linux 6.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueCounters {
    /// The interface's index.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// The queue's index.
    pub id: u32,
    /// The counters.
    pub counters: Counters,
}

/// The XDP features of a device, as the netdev family shows them (`dev-get`, since Linux 6.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XdpFeatures {
    /// The interface's index.
    pub interface: u32,
    /// Bits of `NETDEV_XDP_ACT_*`: 1 basic, 2 redirect, 4 accepts redirected frames, 8 zero copy, 16 hardware, 32
    /// receives multi-buffer frames, 64 sends multi-buffer frames.
    pub features: u64,
    /// Maximum number of buffers of a zero-copy AF_XDP frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy_segments: Option<u32>,
    /// Bits of the metadata that programs can read for a received frame: 1 timestamp, 2 hash, 4 VLAN tag.
    #[serde(default)]
    pub rx_metadata: u64,
}
