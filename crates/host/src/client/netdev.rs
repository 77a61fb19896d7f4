//! The netdev family: queues, NAPI instances, counters of queues, XDP features.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::{Error, Generic, netdev};

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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

/// Reads all queues.
pub(super) fn queues(generic: &mut Generic) -> Result<Vec<NetdevQueue>, Error> {
    Ok(netdev::queues(generic)?.into_iter().map(queue).collect())
}

/// Reads all NAPI instances.
pub(super) fn napis(generic: &mut Generic) -> Result<Vec<Napi>, Error> {
    Ok(netdev::napis(generic)?.into_iter().map(napi).collect())
}

/// Reads the counters of all queues, where drivers report them.
pub(super) fn queue_counters(generic: &mut Generic) -> Result<Vec<QueueCounters>, Error> {
    Ok(netdev::queue_counters(generic)?.into_iter().map(counters).collect())
}

/// Reads the XDP features of all devices.
pub(super) fn xdp_features(generic: &mut Generic) -> Result<Vec<XdpFeatures>, Error> {
    Ok(netdev::devices(generic)?.into_iter().map(features).collect())
}

const fn direction(is: netdev::Direction) -> Direction {
    match is {
        netdev::Direction::Rx => Direction::Rx,
        netdev::Direction::Tx => Direction::Tx,
    }
}

fn queue(is: netdev::Queue) -> NetdevQueue {
    NetdevQueue {
        interface: is.interface,
        direction: direction(is.direction),
        id: is.id,
        napi: is.napi,
        xsk: is.xsk,
    }
}

fn napi(is: netdev::Napi) -> Napi {
    Napi {
        interface: is.interface,
        id: is.id,
        irq: is.irq,
        thread: is.thread,
        defer_hard_irqs: is.defer_hard_irqs,
        gro_flush_timeout: is.gro_flush_timeout,
        irq_suspend_timeout: is.irq_suspend_timeout,
        threaded: is.threaded,
    }
}

fn counters(is: netdev::QueueCounters) -> QueueCounters {
    QueueCounters {
        interface: is.interface,
        direction: direction(is.direction),
        id: is.id,
        counters: is.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}

fn features(is: netdev::Device) -> XdpFeatures {
    XdpFeatures {
        interface: is.index,
        features: is.xdp_features,
        zero_copy_segments: is.zero_copy_segments,
        rx_metadata: is.rx_metadata.unwrap_or(0),
    }
}
