//! Interfaces and their queues: where packets go after the wire, and how many.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use super::view::{View, since};
use crate::client::netdev::Counters;
use crate::interfaces::{Interface, Qdisc, Relation};
use crate::irqs::Irq;
use crate::queues::{RxQueue, TxQueue};
use udpath_netlink::ethtool::time_stamping::TimeStamping;

/// An interface on the path.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct InterfaceMap {
    /// Its name.
    pub name: String,
    /// `device`, `veth`, `bond`, `loopback`, ...
    pub kind: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Mbit/s.
    pub speed: Option<u32>,
    /// Whether it has a carrier.
    pub carrier: Option<bool>,
    /// NUMA node of the device, if one is closer than others.
    pub node: Option<u32>,
    /// Interfaces below it.
    pub lower: Vec<String>,
    /// Receive queues that traffic can reach.
    pub rx_queues: usize,
    /// Transmit queues.
    pub tx_queues: usize,
    /// How packets are distributed over the queues; `None` if the device does not report it.
    pub rss: Option<RssSummary>,
    /// Whether an XDP program is attached.
    pub xdp: bool,
    /// Which packets the device timestamps; `None` if it does not report that, or has no clock.
    #[serde(default)]
    pub time_stamping: Option<TimeStamping>,
    /// Packets received.
    pub packets: Option<u64>,
    /// Bytes received.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Packets that the device or driver lost before the stack saw them.
    pub missed: u64,
    /// Packets the stack dropped for this interface.
    pub dropped: u64,
    /// Its receive queues.
    pub queues: Vec<QueueMap>,
    /// What it sends, and what of that is lost.
    #[serde(default)]
    pub out: OutMap,
    /// Pause frames received: the peer asked this interface to stop sending. `None`: its driver does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses_received: Option<u64>,
    /// Pause frames sent: this interface asked its peer to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses_sent: Option<u64>,
}

/// The way out of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct OutMap {
    /// Packets sent.
    pub packets: Option<u64>,
    /// Bytes sent.
    pub bytes: Option<u64>,
    /// Packets that the device or the stack dropped on the way out.
    pub dropped: u64,
    /// Its root queueing discipline, such as `mq` or `tbf`.
    pub qdisc: Option<String>,
    /// Packets that the queueing discipline dropped.
    pub qdisc_drops: u64,
    /// Packets waiting in it now.
    pub qdisc_queued: u32,
    /// Packets that the driver did not take at once.
    pub requeues: u64,
    /// How often a full ring, or a limit of bytes in it (BQL), stopped a transmit queue. `None`: its driver does not
    /// count that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops: Option<u64>,
}

/// How packets are distributed over the queues.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct RssSummary {
    /// Entries of the indirection table.
    pub entries: usize,
    /// Queues in it.
    pub queues: usize,
    /// Hash fields of UDP over IPv4, in ethtool's letters.
    pub udp4: Option<String>,
    /// Hash fields of UDP over IPv6.
    pub udp6: Option<String>,
}

/// A receive queue on the path.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct QueueMap {
    /// Its index, from 0.
    pub queue: u32,
    /// Its share of the RSS table, 0 to 1.
    pub share: Option<f64>,
    /// Packets it received.
    pub packets: Option<u64>,
    /// Bytes it received.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Packets it lost.
    pub drops: Option<u64>,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// How its interrupt was found.
    pub irq_from: Option<String>,
    /// Number of interrupts.
    pub interrupts: Option<u64>,
    /// CPUs that the interrupt may go to.
    pub affinity: Option<CpuSet>,
    /// The CPUs that receive the interrupt, as reported by the kernel, else those it may go to.
    pub cpus: CpuSet,
    /// The CPUs its driver hints at.
    pub hint: Option<CpuSet>,
    /// NUMA nodes of those CPUs.
    pub nodes: Vec<u32>,
    /// CPUs that process its packets after that, by RPS.
    pub rps: CpuSet,
    /// CPUs that send on the transmit queue with the same index.
    pub xps: CpuSet,
    /// Whether an AF_XDP socket is bound to it, or it exists for one alone.
    pub xsk: bool,
}

/// Counters of packets lost before the stack, by the kernel's names (`struct rtnl_link_stats64`).
const MISSED: [&str; 3] = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
/// Loss counters of one queue, as the netdev family names them.
const QUEUE_DROPS: [&str; 4] = ["hw-drop-overruns", "hw-drops", "alloc-fail", "drops"];

pub(super) fn map(view: View<'_>, interface: &Interface) -> InterfaceMap {
    let then = view.earlier(interface);
    let counted = |name: &str| {
        let now = *interface.statistics.get(name)?;
        Some(since(now, then.and_then(|then| then.statistics.get(name).copied())))
    };
    let lower = |relation: &Relation| match relation {
        Relation::Lower(name) => Some(name.clone()),
        _ => None,
    };
    InterfaceMap {
        name: interface.name.clone(),
        kind: interface.kind.clone(),
        driver: interface.driver.as_ref().map(|fact| fact.value.name.clone()),
        speed: interface.link.speed,
        carrier: interface.link.carrier,
        node: interface.node.and_then(|node| u32::try_from(node).ok()),
        lower: interface.relations.iter().filter_map(lower).collect(),
        rx_queues: interface.rx.len(),
        tx_queues: interface.tx.len(),
        rss: rss(interface),
        xdp: interface.xdp.is_some(),
        time_stamping: time_stamping(interface),
        packets: counted("rx_packets"),
        bytes: counted("rx_bytes"),
        // Drivers count one loss in several of them: the largest is the best estimate.
        missed: MISSED.iter().filter_map(|name| counted(name)).max().unwrap_or(0),
        dropped: counted("rx_dropped").unwrap_or(0),
        queues: interface.rx.iter().map(|queue| queue_map(view, interface, queue)).collect(),
        out: out(interface, then, &counted),
        pauses_received: pauses(interface, then, &PAUSES_RECEIVED),
        pauses_sent: pauses(interface, then, &PAUSES_SENT),
    }
}

/// Pause frames as drivers name them in `ethtool -S`: ixgbe and igb, i40e and ice, mlx5, bnxt_en, tg3.
const PAUSES_RECEIVED: [&str; 6] = [
    "rx_flow_control_xon",
    "port.link_xon_rx",
    "rx_pause_ctrl_phy",
    "rx_pause_frames",
    "rx_pause",
    "rx_xon_received",
];
/// The same, sent.
const PAUSES_SENT: [&str; 6] = [
    "tx_flow_control_xoff",
    "port.link_xoff_tx",
    "tx_pause_ctrl_phy",
    "tx_pause_frames",
    "tx_pause",
    "tx_xoff_sent",
];

fn pauses(interface: &Interface, then: Option<&Interface>, names: &[&str]) -> Option<u64> {
    let now = first(&interface.driver_counters.as_ref()?.value, names)?;
    let was = then.and_then(|then| first(&then.driver_counters.as_ref()?.value, names));
    Some(since(now, was))
}

fn out(interface: &Interface, then: Option<&Interface>, counted: &dyn Fn(&str) -> Option<u64>) -> OutMap {
    let root = |interface: &Interface| {
        let qdiscs = interface.qdiscs.as_ref()?.value.iter();
        qdiscs.filter(|qdisc| qdisc.parent == "root").max_by_key(|qdisc| qdisc.packets).cloned()
    };
    let (now, was) = (root(interface), then.and_then(root));
    let was =
        was.filter(|was| now.as_ref().is_some_and(|now| now.handle == was.handle && now.kind == was.kind));
    // 32 bits wide in the kernel: the increase wraps.
    let grown = |of: fn(&Qdisc) -> u32| {
        let was = was.as_ref().map_or(0, of);
        now.as_ref().map_or(0, |now| u64::from(of(now).wrapping_sub(was)))
    };
    OutMap {
        packets: counted("tx_packets"),
        bytes: counted("tx_bytes"),
        dropped: counted("tx_dropped").unwrap_or(0),
        qdisc_drops: grown(|qdisc| qdisc.drops),
        requeues: grown(|qdisc| qdisc.requeues),
        stops: stops(interface, then),
        qdisc_queued: now.as_ref().map_or(0, |qdisc| qdisc.queued),
        qdisc: now.map(|qdisc| qdisc.kind),
    }
}

/// Stops of all transmit queues.
fn stops(interface: &Interface, then: Option<&Interface>) -> Option<u64> {
    let of = |queue: &TxQueue| first(&queue.counters.as_ref()?.value, &["stop"]);
    let was = |id| then.and_then(|then| then.tx.iter().find(|queue| queue.id == id)).and_then(of);
    interface
        .tx
        .iter()
        .filter_map(|queue| Some(since(of(queue)?, was(queue.id))))
        .reduce(|sum, one| sum + one)
}

/// The current configuration, with the device's clock if it has only one.
fn time_stamping(interface: &Interface) -> Option<TimeStamping> {
    let set = interface.time_stamping.as_ref()?.value.clone();
    let only = interface.time_stamping_offer.as_ref().and_then(|offer| offer.value.clock);
    Some(TimeStamping { clock: set.clock.or(only), ..set })
}

fn rss(interface: &Interface) -> Option<RssSummary> {
    let table = &interface.rss.as_ref()?.value.main.table;
    if table.is_empty() {
        return None;
    }
    let fields = interface.hash_fields.as_ref().map(|fact| fact.value);
    let letters =
        |fields: Option<udpath_netlink::ethtool::rss::Fields>| fields.map(|fields| fields.to_string());
    Some(RssSummary {
        entries: table.len(),
        queues: table.iter().collect::<std::collections::BTreeSet<_>>().len(),
        udp4: letters(fields.and_then(|fields| fields.udp4)),
        udp6: letters(fields.and_then(|fields| fields.udp6)),
    })
}

fn queue_map(view: View<'_>, interface: &Interface, queue: &RxQueue) -> QueueMap {
    let irq = queue.irq.as_ref();
    let by_number = |irqs: &'_ [Irq], number: u32| irqs.iter().position(|irq| irq.number == number);
    let line = irq.and_then(|irq| Some(&view.now.irqs[by_number(&view.now.irqs, irq.value)?]));
    let was = irq.and_then(|irq| {
        let irqs = &view.earlier?.irqs;
        Some(&irqs[by_number(irqs, irq.value)?])
    });
    let interrupts = line.map(|line| match was {
        Some(was) => crate::irqs::since(&line.counts, &was.counts).values().copied().map(u64::from).sum(),
        None => line.counts.values().copied().map(u64::from).sum(),
    });
    let affinity = line.and_then(|line| line.affinity.clone());
    let cpus = line.and_then(|line| line.effective.clone()).or_else(|| affinity.clone()).unwrap_or_default();
    let mut nodes: Vec<u32> = cpus.iter().filter_map(|cpu| view.node(cpu)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let earlier = view.earlier(interface).and_then(|then| then.rx.iter().find(|was| was.id == queue.id));
    let count = |names: &[&str]| {
        let now = first(&queue.counters.as_ref()?.value, names)?;
        let was = earlier.and_then(|was| first(&was.counters.as_ref()?.value, names));
        Some(since(now, was))
    };
    let same_tx = interface.tx.iter().find(|tx| tx.id == queue.id);
    QueueMap {
        queue: queue.id,
        share: share(interface, queue.id),
        packets: count(&["packets"]),
        bytes: count(&["bytes"]),
        drops: count(&QUEUE_DROPS),
        irq: irq.map(|irq| irq.value),
        irq_from: irq.map(|irq| irq.from.to_string()),
        interrupts,
        affinity,
        cpus,
        hint: line.and_then(|line| line.hint.clone()),
        nodes,
        rps: queue.rps_cpus.clone().unwrap_or_default(),
        xps: same_tx.and_then(|tx| tx.xps_cpus.clone()).unwrap_or_default(),
        xsk: queue.xsk,
    }
}

/// The first of these counters that exists.
fn first(counters: &Counters, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| counters.get(*name).copied())
}

/// The fraction of hash values that the RSS table maps to `queue`.
fn share(interface: &Interface, queue: u32) -> Option<f64> {
    let table = &interface.rss.as_ref()?.value.main.table;
    let own = table.iter().filter(|entry| **entry == queue).count();
    (!table.is_empty()).then(|| own as f64 / table.len() as f64)
}
