//! The links of a datagram's way, and how busy each was: 0 to 1, with what was seen.
//!
//! ```text
//! wire ─▸ softirq CPU ─▸ backlog ─▸ connection table ─▸ UDP memory ─▸ receive queue ─▸ reader ─▸ CPU limit ─▸ transmit queue
//!                                                                                              └ the hypervisor's share
//! ```
//! A queue that lost something was full. A stage that works (a CPU, a thread) is as busy as it does not idle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::Map;
use udpath_host::map::{CpuMap, InterfaceMap, ProcessMap, SocketMap, ThreadMap};

use crate::rule::{number, percent};

/// Share from which on a link is saturated. Lower: a queue that was nearly full once is called saturated. Higher: a
/// thread that ran all the time but for its start passes for free.
const SATURATED: f64 = 0.95;
/// The same of softirqs on a CPU: the rest goes to entering and leaving them.
const SATURATED_SOFTIRQ: f64 = 0.9;
/// How busy a link that works is from which on capacity is short: what costs CPU time then costs rate. Lower: a machine
/// with time left has findings about costs that do not limit it. Higher: a service shortly before its limit has none.
const SHORT: f64 = 0.8;
/// Share of time taken by the hypervisor from which on it is what limits. Lower: every shared machine is limited by it.
const SATURATED_STEAL: f64 = 0.2;
/// Share of periods in which a control group is throttled from which on its limit is what limits. A single burst may be
/// throttled in one of twenty.
const THROTTLED: f64 = 0.05;
/// Share of a CPU that a thread must run for the CPU's softirqs to be counted with it. Lower: a thread that wakes up
/// now and then on a CPU full of softirqs is called busy.
const OWN: f64 = 0.25;

/// A link's kind, in the order of a datagram's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The wire and the device's receive rings.
    Wire,
    /// The CPU that runs interrupts and softirqs.
    Softirq,
    /// A CPU's backlog.
    Backlog,
    /// The table of connection tracking.
    Netfilter,
    /// The memory of all UDP sockets.
    UdpMemory,
    /// A socket's receive queue.
    SocketQueue,
    /// A thread that reads.
    Reader,
    /// The CPU time limit of a control group.
    CpuLimit,
    /// The way out: queueing discipline, transmit queue, wire.
    Transmit,
    /// The hypervisor.
    Hypervisor,
}

impl Stage {
    /// In text.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Wire => "wire and receive ring",
            Self::Softirq => "softirq",
            Self::Backlog => "backlog",
            Self::Netfilter => "connection table",
            Self::UdpMemory => "memory of UDP sockets",
            Self::SocketQueue => "receive queue",
            Self::Reader => "reader thread",
            Self::CpuLimit => "CPU limit of",
            Self::Transmit => "transmit queue",
            Self::Hypervisor => "hypervisor",
        }
    }

    /// Does it only hold datagrams? It is full because of what comes after it.
    #[must_use]
    pub const fn is_queue(self) -> bool {
        matches!(self, Self::Wire | Self::Backlog | Self::UdpMemory | Self::SocketQueue)
    }
}

/// A link of the way.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Link {
    /// Its kind.
    pub stage: Stage,
    /// Where: the busiest of its kind. Empty where there is only one.
    pub place: String,
    /// How busy, 0 to 1.
    pub busy: f64,
    /// Can it take no more?
    pub saturated: bool,
    /// What was seen: a part of a sentence.
    pub evidence: String,
}

impl Link {
    fn new(stage: Stage, place: impl Into<String>, busy: f64, evidence: impl Into<String>) -> Self {
        let busy = if busy.is_finite() { busy.clamp(0.0, 1.0) } else { 0.0 };
        Self { stage, place: place.into(), busy, saturated: busy >= SATURATED, evidence: evidence.into() }
    }

    /// Is capacity short? A queue that is nearly full for a moment, and loses nothing, says nothing about that.
    pub(super) fn is_short(&self) -> bool {
        self.saturated || (!self.stage.is_queue() && self.busy >= SHORT)
    }

    fn saturated_from(mut self, share: f64) -> Self {
        self.saturated = self.busy >= share;
        self
    }
}

/// The busiest link of each kind, outermost first. Kinds that this machine lacks are left out, and without an interval
/// all that only an interval shows.
pub(super) fn all(map: &Map) -> Vec<Link> {
    let busiest = |links: Vec<Link>| {
        links.into_iter().reduce(|most, next| if next.busy > most.busy { next } else { most })
    };
    let mut found = Vec::new();
    if let Some(seconds) = map.seconds.filter(|seconds| *seconds > 0.0) {
        // Of equally busy interfaces, the one with the most packets.
        let mut interfaces: Vec<&InterfaceMap> = map.interfaces.iter().collect();
        interfaces.sort_by_key(|interface| std::cmp::Reverse(interface.packets.unwrap_or(0)));
        found.extend(busiest(interfaces.iter().map(|interface| wire(interface, seconds)).collect()));
        found.extend(busiest(map.cpus.iter().filter_map(softirq).collect()));
        found.extend(busiest(
            map.cpus.iter().filter_map(|cpu| backlog(cpu, map.flow_limited(), seconds)).collect(),
        ));
        found.extend(conntrack(map));
        found.extend(memory(map, seconds));
        found.extend(busiest(map.sockets.iter().map(|socket| queue(map, socket, seconds)).collect()));
        let threads = map
            .processes
            .iter()
            .flat_map(|process| process.busiest.iter().map(move |thread| (process, thread)));
        found.extend(busiest(threads.map(|(process, thread)| reader(map, process, thread)).collect()));
        found.extend(busiest(map.processes.iter().flat_map(limits).collect()));
        found.extend(busiest(interfaces.iter().map(|interface| transmit(interface, seconds)).collect()));
        found.extend(hypervisor(map));
    } else {
        found.extend(conntrack(map));
        found.extend(busiest(map.sockets.iter().map(|socket| queue(map, socket, 0.0)).collect()));
    }
    found
}

/// Share of the CPU time used, of all online CPUs; what the hypervisor took is neither used nor idle.
pub(super) fn used(map: &Map) -> Option<f64> {
    let _ = map.seconds?;
    let shares: Vec<f64> = map
        .cpus
        .iter()
        .filter(|cpu| cpu.online)
        .filter_map(|cpu| cpu.time.map(|time| (1.0 - time.idle - time.steal).clamp(0.0, 1.0)))
        .collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// `1,234 packets/s`.
fn per_second(count: u64, what: &str, seconds: f64) -> String {
    let rate = if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let rate = if count == 0 || rate >= 10.0 { number(rate.round() as u64) } else { format!("{rate:.1}") };
    format!("{rate} {what}/s")
}

/// Only a real device has a speed that limits; the one that veth reports does not.
fn of_speed(interface: &InterfaceMap, bytes: Option<u64>, seconds: f64) -> Option<f64> {
    let speed = interface.speed.filter(|speed| *speed > 0 && interface.kind == "device")?;
    Some(bytes? as f64 * 8.0 / seconds / (f64::from(speed) * 1e6))
}

fn wire(interface: &InterfaceMap, seconds: f64) -> Link {
    let rate = per_second(interface.packets.unwrap_or(0), "packets", seconds);
    if interface.missed > 0 {
        let lost = per_second(interface.missed, "packets", seconds);
        return Link::new(
            Stage::Wire,
            &interface.name,
            1.0,
            format!("{lost} lost before the kernel, {rate} received"),
        );
    }
    match of_speed(interface, interface.bytes, seconds) {
        Some(busy) => {
            let evidence = format!("{rate}, {} of its speed, none lost", percent(busy));
            Link::new(Stage::Wire, &interface.name, busy, evidence)
        }
        None => Link::new(Stage::Wire, &interface.name, 0.0, format!("{rate}, none lost")),
    }
}

fn softirq(cpu: &CpuMap) -> Option<Link> {
    let time = cpu.time.filter(|_| cpu.online)?;
    let busy = time.soft + time.irq;
    let evidence = format!("{} in softirqs and interrupts, {} idle", percent(busy), percent(time.idle));
    Some(
        Link::new(Stage::Softirq, format!("CPU {}", cpu.cpu), busy, evidence)
            .saturated_from(SATURATED_SOFTIRQ),
    )
}

/// `limited`: packets that flow limits dropped, on whichever CPU.
fn backlog(cpu: &CpuMap, limited: u64, seconds: f64) -> Option<Link> {
    let softnet = cpu.softnet.filter(|_| cpu.online)?;
    let place = format!("CPU {}", cpu.cpu);
    Some(if softnet.dropped > 0 {
        let lost = per_second(softnet.dropped.into(), "packets", seconds);
        let why = if limited < softnet.dropped.into() { "because it was full" } else { "by a flow limit" };
        Link::new(Stage::Backlog, place, 1.0, format!("{lost} dropped {why}"))
    } else {
        let now =
            softnet.backlog.map_or_else(String::new, |n| format!("{} packets waiting, ", number(n.into())));
        Link::new(Stage::Backlog, place, 0.0, format!("{now}none dropped"))
    })
}

fn conntrack(map: &Map) -> Option<Link> {
    let table = map.conntrack?;
    let max = table.max.filter(|max| *max > 0)?;
    let busy = if map.seconds.is_some() && table.drops > 0 { 1.0 } else { table.count as f64 / max as f64 };
    let evidence = format!("{} of {} connections", number(table.count), number(max));
    Some(Link::new(Stage::Netfilter, "", busy, evidence))
}

fn memory(map: &Map, seconds: f64) -> Option<Link> {
    let memory = map.udp.memory?;
    let limits = memory.limits?;
    let lost: u64 = [map.udp.v4, map.udp.v6].into_iter().flatten().filter_map(|udp| udp.mem_errors).sum();
    let evidence = format!("{} of {} pages", number(memory.used), number(limits.max));
    Some(if lost > 0 {
        let evidence =
            format!("{evidence}, {} dropped for lack of it", per_second(lost, "datagrams", seconds));
        Link::new(Stage::UdpMemory, "", 1.0, evidence)
    } else {
        Link::new(Stage::UdpMemory, "", memory.used as f64 / limits.max.max(1) as f64, evidence)
    })
}

fn queue(map: &Map, socket: &SocketMap, seconds: f64) -> Link {
    let owner = socket.pids.first().and_then(|pid| map.processes.iter().find(|process| process.pid == *pid));
    let owner = owner.map_or_else(String::new, |process| format!(" ({}, pid {})", process.name, process.pid));
    let place = format!("{}{owner}", socket.local);
    // The fuller of both ends of the interval: nothing shows it in between but drops.
    let queued = socket.queued.max(socket.queued_before.unwrap_or(0));
    let fill = socket.buffer.filter(|size| *size > 0).map_or(0.0, |size| f64::from(queued) / f64::from(size));
    if socket.drops > 0 && seconds > 0.0 {
        let lost = per_second(socket.drops, "datagrams", seconds);
        return Link::new(Stage::SocketQueue, place, 1.0, format!("{lost} dropped because it was full"));
    }
    let evidence = format!("{} full at an end of the interval, none dropped", percent(fill.min(1.0)));
    Link::new(Stage::SocketQueue, place, fill, evidence)
}

/// A thread is as busy as it does not sleep. Softirqs on its CPU take its time as well; where the kernel charges them
/// to the thread they are counted twice, but never beyond what the CPU did.
pub(crate) fn busy_of(map: &Map, thread: &ThreadMap) -> f64 {
    let cpu = thread.cpu.and_then(|cpu| map.cpus.iter().find(|known| known.cpu == cpu));
    let time = cpu.and_then(|cpu| cpu.time).filter(|_| thread.ran >= OWN);
    let with_softirqs = time.map_or(0.0, |time| (thread.busy() + time.soft + time.irq).min(1.0 - time.idle));
    thread.busy().max(with_softirqs)
}

fn reader(map: &Map, process: &ProcessMap, thread: &ThreadMap) -> Link {
    let name = if thread.name == process.name { String::new() } else { format!("{} ", thread.name) };
    let place = format!("{name}{} of {} (pid {})", thread.tid, process.name, process.pid);
    let cpu = thread.cpu.and_then(|cpu| map.cpus.iter().find(|known| known.cpu == cpu));
    let cpu = cpu.and_then(|cpu| Some((cpu.cpu, cpu.time?)));
    let cpu =
        cpu.map_or_else(String::new, |(cpu, time)| format!("; CPU {cpu} was {} idle", percent(time.idle)));
    let evidence = format!("ran {}, waited for a CPU {}{cpu}", percent(thread.ran), percent(thread.waited));
    Link::new(Stage::Reader, place, busy_of(map, thread), evidence)
}

fn limits(process: &ProcessMap) -> Vec<Link> {
    let ran: f64 = process.busiest.iter().map(|thread| thread.ran).sum();
    let link = |quota: &udpath_host::map::QuotaMap| {
        let throttled = quota.throttled as f64 / quota.periods.max(1) as f64;
        let busy = throttled.max(ran / quota.cpus.max(1e-6)).min(1.0);
        let evidence = format!(
            "throttled in {} of {} periods, limit {:.2} CPUs",
            quota.throttled, quota.periods, quota.cpus
        );
        let mut link = Link::new(Stage::CpuLimit, &quota.group, busy, evidence);
        link.saturated = throttled >= THROTTLED;
        link
    };
    process.quotas.iter().map(link).collect()
}

fn transmit(interface: &InterfaceMap, seconds: f64) -> Link {
    let out = &interface.out;
    let sent = per_second(out.packets.unwrap_or(0), "packets", seconds);
    let lost = out.qdisc_drops.max(out.dropped);
    let kind = out.qdisc.as_ref().map_or_else(String::new, |kind| format!(" ({kind})"));
    let place = format!("{}{kind}", interface.name);
    if lost > 0 {
        let lost = per_second(lost, "packets", seconds);
        return Link::new(Stage::Transmit, place, 1.0, format!("{lost} dropped, {sent} sent"));
    }
    let busy = of_speed(interface, out.bytes, seconds).unwrap_or(0.0);
    Link::new(Stage::Transmit, place, busy, format!("{sent} sent, none dropped"))
}

fn hypervisor(map: &Map) -> Option<Link> {
    let shares: Vec<f64> =
        map.cpus.iter().filter(|cpu| cpu.online).filter_map(|cpu| Some(cpu.time?.steal)).collect();
    if shares.is_empty() || map.hypervisor.is_none() {
        return None;
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let evidence = format!("took {} of the CPU time", percent(mean));
    Some(Link::new(Stage::Hypervisor, "", mean, evidence).saturated_from(SATURATED_STEAL))
}
