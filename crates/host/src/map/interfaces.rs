//! Interfaces and their queues: where packets go from the wire, and how many.

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use super::view::{View, since};
use crate::snapshot::irqs::Irq;
use crate::snapshot::{Counters, Interface, Relation, RxQueue, TimeStamping};

/// An interface on the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceMap {
    /// Its name.
    pub name: String,
    /// `device`, `veth`, `bond`, `loopback`, ...
    pub kind: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Mbit/s.
    pub speed: Option<u32>,
    /// Is there a carrier?
    pub carrier: Option<bool>,
    /// Memory node of the device, where one is nearer than others.
    pub node: Option<u32>,
    /// Interfaces below it.
    pub lower: Vec<String>,
    /// Receive queues that traffic can reach.
    pub rx_queues: usize,
    /// Transmit queues.
    pub tx_queues: usize,
    /// How packets are spread over the queues; none where the device does not report it.
    pub rss: Option<RssSummary>,
    /// An XDP program is attached.
    pub xdp: bool,
    /// Which packets the device itself stamps with the time; none where it does not report that, or has no clock.
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
}

/// How packets are spread over the queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RssSummary {
    /// Entries of the indirection table.
    pub entries: usize,
    /// Queues in it.
    pub queues: usize,
    /// What UDP over IPv4 is hashed by, in ethtool's letters.
    pub udp4: Option<String>,
    /// And over IPv6.
    pub udp6: Option<String>,
}

/// A receive queue on the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueMap {
    /// Its number, from 0.
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
    /// Where its interrupt was found.
    pub irq_from: Option<String>,
    /// How often that came.
    pub interrupts: Option<u64>,
    /// CPUs that the interrupt may go to.
    pub affinity: Option<CpuSet>,
    /// The CPUs that it goes to, as the kernel reports it, else those that it may go to.
    pub cpus: CpuSet,
    /// The CPUs that its driver asks for.
    pub hint: Option<CpuSet>,
    /// Memory nodes of the CPUs it goes to.
    pub nodes: Vec<u32>,
    /// CPUs that handle its packets after that.
    pub rps: CpuSet,
    /// CPUs that send on the transmit queue of the same number.
    pub xps: CpuSet,
    /// An AF_XDP socket is bound to it, or it exists for one alone.
    pub xsk: bool,
}

/// Counters of losses before the stack, by the kernel's names (`struct rtnl_link_stats64`).
const MISSED: [&str; 3] = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
/// Counters of losses of one queue, as the netdev family names them.
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
        // Drivers count one loss in several of them: the largest is the best guess.
        missed: MISSED.iter().filter_map(|name| counted(name)).max().unwrap_or(0),
        dropped: counted("rx_dropped").unwrap_or(0),
        queues: interface.rx.iter().map(|queue| queue_map(view, interface, queue)).collect(),
    }
}

/// What is set, with the device's clock where it has but one.
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
    let letters = |fields: Option<crate::snapshot::Fields>| fields.map(|fields| fields.to_string());
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
        Some(was) => {
            crate::snapshot::irqs::since(&line.counts, &was.counts).values().copied().map(u64::from).sum()
        }
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

/// The first of these counters that is there.
fn first(counters: &Counters, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| counters.get(*name).copied())
}

/// The part of the hash values that the RSS table gives to `queue`.
fn share(interface: &Interface, queue: u32) -> Option<f64> {
    let table = &interface.rss.as_ref()?.value.main.table;
    let own = table.iter().filter(|entry| **entry == queue).count();
    (!table.is_empty()).then(|| own as f64 / table.len() as f64)
}
