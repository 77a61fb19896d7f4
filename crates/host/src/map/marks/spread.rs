//! What keeps packets from spreading over queues and CPUs.

use std::collections::BTreeMap;

use udpath_steer::CpuSet;

use super::{Found, Link, counted};
use crate::map::{InterfaceMap, Map, QueueMap, View};

/// Drivers of devices whose interrupts are not the kernel's own.
const NO_IRQS: [&str; 2] = ["hv_netvsc", "vif"];

/// Queues of an interface that packets of the wire can reach.
fn reachable(interface: &InterfaceMap) -> Vec<&QueueMap> {
    interface.queues.iter().filter(|queue| !queue.xsk).collect()
}

/// Links to these queues.
fn links<'a>(interface: &InterfaceMap, queues: impl IntoIterator<Item = &'a QueueMap>) -> Vec<Link> {
    queues.into_iter().map(|queue| Link::Queue(interface.name.clone(), queue.queue)).collect()
}

/// `rx-3`, `rx-16-19`.
fn named<'a>(queues: impl IntoIterator<Item = &'a QueueMap>) -> String {
    let numbers: CpuSet = queues.into_iter().map(|queue| queue.queue).collect();
    format!("rx-{numbers}")
}

/// Applies `find` to each interface.
fn each(map: &Map, find: impl Fn(&InterfaceMap) -> Option<(Vec<Link>, String)>) -> Found {
    map.interfaces.iter().filter_map(find).collect()
}

pub(super) fn table(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let rss = interface.rss.as_ref()?;
        let unreached: Vec<&QueueMap> =
            reachable(interface).into_iter().filter(|queue| queue.share == Some(0.0)).collect();
        let what = format!(
            "{}: the RSS table ({}) names {} only; nothing is spread to {}",
            interface.name,
            match rss.entries {
                1 => "1 entry".to_owned(),
                n => format!("{n} entries"),
            },
            counted(rss.queues, "queue"),
            named(unreached.iter().copied())
        );
        (!unreached.is_empty()).then(|| (links(interface, unreached), what))
    })
}

pub(super) fn fields(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let rss = interface.rss.as_ref().filter(|rss| rss.queues > 1)?;
        let families = [("IPv4", &rss.udp4), ("IPv6", &rss.udp6)];
        let without: Vec<&str> = families
            .iter()
            .filter(|(_, fields)| {
                fields.as_deref().is_some_and(|fields| !(fields.contains('f') && fields.contains('n')))
            })
            .map(|(family, _)| *family)
            .collect();
        let what = format!(
            "{}: UDP over {} is hashed without ports: all flows between two hosts share a queue",
            interface.name,
            without.join(" and ")
        );
        (!without.is_empty()).then(|| (vec![Link::Interface(interface.name.clone())], what))
    })
}

/// The queues whose interrupt goes to one known CPU: the one it was sent to, though it may still be on its way there; else
/// the one that the kernel chose.
fn placed(interface: &InterfaceMap) -> Vec<(&QueueMap, u32)> {
    let one = |cpus: &CpuSet| cpus.first().filter(|_| cpus.len() == 1);
    let cpu = |queue: &QueueMap| queue.affinity.as_ref().and_then(one).or_else(|| one(&queue.cpus));
    reachable(interface).into_iter().filter_map(|queue| Some((queue, cpu(queue)?))).collect()
}

/// All on one node, though there are more queues than CPUs they go to.
fn node_of_all(view: View<'_>, interface: &InterfaceMap) -> Option<(u32, CpuSet)> {
    let placed = placed(interface);
    let cpus: CpuSet = placed.iter().map(|(_, cpu)| *cpu).collect();
    let (_, first) = placed.first()?;
    let node = view.node(*first)?;
    let all = placed.iter().all(|(_, cpu)| view.node(*cpu) == Some(node));
    (all && cpus.len() < placed.len()).then_some((node, cpus))
}

pub(super) fn one_node(view: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let (node, cpus) = node_of_all(view, interface).filter(|_| map.nodes > 1)?;
        let elsewhere = view.now.cpus.list.iter().filter(|cpu| cpu.online && cpu.node != Some(node));
        let idle: CpuSet = elsewhere.map(|cpu| cpu.number).collect();
        let placed = placed(interface);
        let what = format!(
            "{}: the interrupts of {} go to node {node} alone, CPUs {cpus}; CPUs {idle} handle none",
            interface.name,
            counted(placed.len(), "queue")
        );
        Some((links(interface, placed.iter().map(|(queue, _)| *queue)), what))
    })
}

pub(super) fn shared_cpus(view: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let placed = placed(interface);
        if map.nodes > 1 && node_of_all(view, interface).is_some() {
            return None;
        }
        let mut of_cpu = BTreeMap::<u32, Vec<&QueueMap>>::new();
        for (queue, cpu) in &placed {
            of_cpu.entry(*cpu).or_default().push(queue);
        }
        // With fewer CPUs than queues some must share.
        if of_cpu.len() >= placed.len().min(map.cpus_online) {
            return None;
        }
        let sharing: Vec<&QueueMap> =
            of_cpu.values().filter(|queues| queues.len() > 1).flatten().copied().collect();
        let what = format!(
            "{}: the interrupts of {} go to {} of {}",
            interface.name,
            counted(placed.len(), "queue"),
            counted(of_cpu.len(), "CPU"),
            map.cpus_online
        );
        Some((links(interface, sharing), what))
    })
}

pub(super) fn hints(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let astray: Vec<&QueueMap> = reachable(interface)
            .into_iter()
            .filter(|queue| {
                let hint = queue.hint.as_ref().filter(|hint| !hint.is_empty());
                hint.zip(queue.affinity.as_ref()).is_some_and(|(hint, set)| set.intersection(hint).is_empty())
            })
            .collect();
        let what = format!(
            "{}: the interrupts of {} go elsewhere than their driver asks (affinity_hint)",
            interface.name,
            named(astray.iter().copied())
        );
        (!astray.is_empty()).then(|| (links(interface, astray), what))
    })
}

pub(super) fn one_queue(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let [queue] = reachable(interface)[..] else { return None };
        let alone = interface.kind == "device" && queue.rps.is_empty() && map.cpus_online > 1;
        let what = format!(
            "{} has one receive queue and RPS is off: one of {} CPUs handles all its packets",
            interface.name, map.cpus_online
        );
        alone.then(|| (links(interface, [queue]), what))
    })
}

pub(super) fn no_irq(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let queues = reachable(interface);
        let expected = interface.kind == "device"
            && interface.driver.as_deref().is_some_and(|driver| !NO_IRQS.contains(&driver));
        let none = !queues.is_empty() && queues.iter().all(|queue| queue.irq.is_none());
        let what = format!(
            "{}: no interrupt was found for {}: looked for by netdev netlink, the device's msi_irqs and names in \
             /proc/interrupts",
            interface.name,
            counted(queues.len(), "queue")
        );
        (expected && none).then(|| (links(interface, queues), what))
    })
}

/// Queues with RPS for which `is` holds, told with `what`.
fn rps(map: &Map, what: &str, is: impl Fn(&QueueMap) -> bool) -> Found {
    each(map, |interface| {
        let found: Vec<&QueueMap> =
            reachable(interface).into_iter().filter(|queue| !queue.rps.is_empty() && is(queue)).collect();
        let what = format!("{}: RPS of {} {what}", interface.name, named(found.iter().copied()));
        (!found.is_empty()).then(|| (links(interface, found), what))
    })
}

pub(super) fn rps_on_irq_cpu(_: View<'_>, map: &Map) -> Found {
    let what = "also steers to the CPU that takes the interrupt, which has the most to do already";
    rps(map, what, |queue| queue.cpus.len() == 1 && queue.rps.len() > 1 && queue.cpus.is_subset(&queue.rps))
}

pub(super) fn rps_crosses_nodes(view: View<'_>, map: &Map) -> Found {
    rps(map, "steers to CPUs of another node than the interrupt's", |queue| {
        let [node] = queue.nodes[..] else { return false };
        queue.rps.iter().any(|cpu| view.node(cpu).is_some_and(|other| other != node))
    })
}

pub(super) fn rps_redundant(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let queues = reachable(interface);
        // A queue that nothing is spread to makes no CPU busy.
        let cpus: CpuSet = placed(interface)
            .iter()
            .filter(|(queue, _)| queue.share != Some(0.0))
            .map(|(_, cpu)| *cpu)
            .collect();
        let steered = queues.iter().filter(|queue| !queue.rps.is_empty()).count();
        let what = format!(
            "{}: every CPU has a queue of its own already; RPS costs an interrupt between CPUs and gains nothing",
            interface.name
        );
        let redundant = steered > 0 && map.cpus_online > 1 && cpus.len() >= map.cpus_online;
        redundant.then(|| (links(interface, queues), what))
    })
}

pub(super) fn not_moved(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let waiting: Vec<&QueueMap> = reachable(interface)
            .into_iter()
            .filter(|queue| {
                queue.affinity.as_ref().is_some_and(|set| !set.is_empty() && !queue.cpus.is_subset(set))
            })
            .collect();
        let what = format!(
            "{}: the interrupts of {} do not go yet where they were sent; they will from their next one on",
            interface.name,
            named(waiting.iter().copied())
        );
        (!waiting.is_empty()).then(|| (links(interface, waiting), what))
    })
}

pub(super) fn no_xps(_: View<'_>, map: &Map) -> Found {
    each(map, |interface| {
        let none = interface.queues.iter().all(|queue| queue.xps.is_empty());
        let wanted = interface.tx_queues > 1 && map.cpus_online > 1 && interface.queues.len() > 1;
        let what = format!(
            "{} has {} and no transmit mapping (XPS): CPUs share them, and their locks",
            interface.name,
            counted(interface.tx_queues, "transmit queue")
        );
        (wanted && none).then(|| (vec![Link::Interface(interface.name.clone())], what))
    })
}
