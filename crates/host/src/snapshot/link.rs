//! Network devices as rtnetlink and the netdev family list them: the raw lists that interfaces are put together from.
//! Interfaces are named by their numbers here (`ifindex`), as the kernel does it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An interface as `RTM_GETLINK` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `bond`, `vlan`, `bridge`, ...; none for hardware and the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Is it the loopback?
    #[serde(default)]
    pub loopback: bool,
    /// Was it set up?
    #[serde(default)]
    pub up: bool,
    /// Is there a carrier? None: not told (it is down).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// Largest IP packet, bytes.
    #[serde(default)]
    pub mtu: u32,
    /// Packets that its queueing discipline is made for (`txqueuelen`).
    #[serde(default)]
    pub tx_queue_len: u32,
    /// Link-layer address: `02:00:00:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The address that the hardware came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_address: Option<String>,
    /// The interface this one is a part of: of a bond's member the bond, of a bridge's port the bridge, of a virtual
    /// function the synthetic device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// The interface below (of a VLAN), or the other end (of a veth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// The number by which this namespace knows the one that `link` is in; none: this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_namespace: Option<i32>,
    /// VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// XDP programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<Xdp>,
    /// The kernel's counters, by the names of their files in sysfs. Empty: not told here.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub statistics: Counters,
}

/// XDP programs of an interface, by where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xdp {
    /// Program in the driver, before there is a socket buffer.
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
    /// The interface's number.
    pub interface: u32,
    /// `mq`, `fq_codel`, `noqueue`, ...
    pub kind: String,
    /// Its handle as tc writes it: `8001:`, `0:`.
    pub handle: String,
    /// What it hangs at: `root`, `ingress`, `8001:1`.
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
    /// Packets dropped. Of 32 bits: wraps.
    #[serde(default)]
    pub drops: u32,
    /// Times its limit was reached. Of 32 bits: wraps.
    #[serde(default)]
    pub overlimits: u32,
    /// Packets that the device gave back. Of 32 bits: wraps.
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
    /// The interface's number.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// Its number, from 0.
    pub id: u32,
    /// The NAPI instance that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<u32>,
    /// Is an AF_XDP socket bound to it?
    #[serde(default)]
    pub xsk: bool,
}

/// A NAPI instance as the netdev family shows it (`napi-get`, since Linux 6.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Napi {
    /// The interface's number.
    pub interface: u32,
    /// Its number, unique in the machine; sockets know it as `SO_INCOMING_NAPI_ID`.
    pub id: u32,
    /// Its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// The thread that polls it, where it is threaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// How many empty polls in a row before interrupts are switched on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_hard_irqs: Option<u32>,
    /// How long interrupts stay off then, and GRO holds packets back, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_flush_timeout: Option<u64>,
    /// How long interrupts stay off while an application polls, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_suspend_timeout: Option<u64>,
    /// 0: in softirq; 1: in a thread; 2: in a thread that polls all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<u32>,
}

/// Counters of a queue: `packets`, `bytes`, `drops`, and what else the driver counts, by the names of
/// Documentation/netlink/specs/netdev.yaml without their direction: `alloc-fail`, `hw-drops`, `hw-drop-overruns`, ...
pub type Counters = BTreeMap<String, u64>;

/// A queue's counters as the netdev family shows them (`qstats-get`, since Linux 6.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueCounters {
    /// The interface's number.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// The queue's number.
    pub id: u32,
    /// The counters.
    pub counters: Counters,
}

/// What a device offers to XDP, as the netdev family shows it (`dev-get`, since Linux 6.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XdpFeatures {
    /// The interface's number.
    pub interface: u32,
    /// Bits of `NETDEV_XDP_ACT_*`: 1 basic, 2 redirect, 4 takes redirected frames, 8 zero copy, 16 hardware, 32
    /// several buffers received, 64 several buffers sent.
    pub features: u64,
    /// How many buffers a frame of zero-copy AF_XDP may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy_segments: Option<u32>,
    /// Bits of what it tells programs of a received frame: 1 time stamp, 2 hash, 4 VLAN tag.
    #[serde(default)]
    pub rx_metadata: u64,
}
