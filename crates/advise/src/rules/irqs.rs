//! Which CPUs take the interrupts of queues, and with them the packets.

use std::collections::BTreeMap;

use udpath_host::map::{InterfaceMap, QueueMap};
use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::CpuLine;
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, cpus, percent};
use crate::rules::queues::{each, located, names, placed, reachable};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "irqs-on-one-node",
        severity: Severity::Limit,
        look: Look::Map(one_node),
        cause: "",
        fix: &[EXACT],
    },
    Rule {
        id: "irqs-share-cpus",
        severity: Severity::Limit,
        look: Look::Map(shared_cpus),
        cause: "queues that share a CPU do not process packets in parallel",
        fix: &[EXACT],
    },
    Rule {
        id: "hint-unused",
        severity: Severity::Limit,
        look: Look::Map(hints),
        cause: "irqbalance or an administrator moved them",
        fix: &[EXACT],
    },
    Rule {
        id: "one-queue",
        severity: Severity::Limit,
        look: Look::Map(one_queue),
        cause: "one CPU processes all its packets",
        fix: &["in a virtual machine, ask the hypervisor for more queues"],
    },
    Rule {
        id: "no-irq-found",
        severity: Severity::Limit,
        look: Look::Map(no_irq),
        cause: "neither netdev netlink, nor the device's msi_irqs, nor names in /proc/interrupts show one",
        fix: &[
            "run `udpath support` and report the archive: the driver names its interrupts in an unknown way",
        ],
    },
    Rule {
        id: "irq-not-moved-yet",
        severity: Severity::Note,
        look: Look::Map(not_moved),
        cause: "an interrupt moves when it next fires",
        fix: &["send traffic to these queues and look again"],
    },
    Rule {
        id: "one-cpu",
        severity: Severity::Limit,
        look: Look::Profile(one_cpu),
        cause: "work does not spread: one queue, one flow or one thread has most of it",
        fix: &[
            "spread the interrupts (RSS, RPS) or the threads: `udpath show` says what keeps them together",
        ],
    },
];

/// Softirqs of many CPUs that fill one socket are slower than those of one CPU: the sockets come first.
const SPREAD: &str =
    "give each queue's interrupt a CPU of its own, once each thread of the service has its own socket";
/// irqbalance before 1.9 applies the driver's hints only if asked to; later versions do not know hints.
const EXACT: &str = "if irqbalance runs, ban these IRQs from it or stop it: it moves them back";
/// Drivers of devices whose interrupts are not the kernel's own.
const NO_IRQS: [&str; 2] = ["hv_netvsc", "vif"];
/// A CPU without time left, of the interval: sampling errs by a point or two.
const FULL: f64 = 0.95;
/// The mean of the other CPUs, up to which they have time.
const FREE: f64 = 0.6;

/// A CPU for each of these queues: all that run in turn, those near the device first.
fn one_each<'a>(
    on: Observed<'_>,
    interface: &InterfaceMap,
    queues: impl IntoIterator<Item = &'a QueueMap>,
) -> Vec<String> {
    let mut cpus: Vec<u32> = on.snapshot.cpus.online.iter().collect();
    cpus.sort_by_key(|cpu| (interface.node.is_some() && on.node(*cpu) != interface.node, *cpu));
    let cpus = cpus.iter().copied().cycle();
    let setting = |(queue, cpu): (&QueueMap, u32)| format!("{}:irq/rx-{}={cpu}", interface.name, queue.queue);
    queues.into_iter().zip(cpus).map(setting).collect()
}

/// All on one node, and fewer CPUs than queues.
fn node_of_all(on: Observed<'_>, interface: &InterfaceMap) -> Option<(u32, CpuSet)> {
    let placed = placed(interface);
    let cpus: CpuSet = placed.iter().map(|(_, cpu)| *cpu).collect();
    let (_, first) = placed.first()?;
    let node = on.node(*first)?;
    let all = placed.iter().all(|(_, cpu)| on.node(*cpu) == Some(node));
    (all && cpus.len() < placed.len()).then_some((node, cpus))
}

fn one_node(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let (node, taken) = node_of_all(on, interface).filter(|_| on.map.nodes > 1)?;
        let elsewhere = on.snapshot.cpus.list.iter().filter(|cpu| cpu.online && cpu.node != Some(node));
        let idle: CpuSet = elsewhere.map(|cpu| cpu.number).collect();
        let queues = || placed(interface).into_iter().map(|(queue, _)| queue);
        let evidence = format!(
            "{}: the interrupts of {} go only to node {node}, {}",
            interface.name,
            counted(queues().count(), "queue"),
            cpus(&taken)
        );
        Some(
            Found::new(evidence)
                .at_all(located(interface, queues()))
                .cause(format!("{} process no packets", cpus(&idle)))
                .changes(SPREAD, one_each(on, interface, queues())),
        )
    })
}

fn shared_cpus(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let placed = placed(interface);
        if on.map.nodes > 1 && node_of_all(on, interface).is_some() {
            return None;
        }
        let mut of_cpu = BTreeMap::<u32, Vec<&QueueMap>>::new();
        for (queue, cpu) in &placed {
            of_cpu.entry(*cpu).or_default().push(queue);
        }
        // With fewer CPUs than queues some must share.
        if of_cpu.len() >= placed.len().min(on.map.cpus_online) {
            return None;
        }
        let sharing = of_cpu.values().filter(|queues| queues.len() > 1).flatten().copied();
        let evidence = format!(
            "{}: the interrupts of {} go to {} of {}",
            interface.name,
            counted(placed.len(), "queue"),
            counted(of_cpu.len(), "CPU"),
            on.map.cpus_online
        );
        let queues = placed.iter().map(|(queue, _)| *queue);
        Some(
            Found::new(evidence)
                .at_all(located(interface, sharing))
                .changes(SPREAD, one_each(on, interface, queues)),
        )
    })
}

fn hints(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let astray: Vec<(&QueueMap, &CpuSet)> = reachable(interface)
            .into_iter()
            .filter_map(|queue| {
                let hint = queue.hint.as_ref().filter(|hint| !hint.is_empty())?;
                let set = queue.affinity.as_ref()?;
                set.intersection(hint).is_empty().then_some((queue, hint))
            })
            .collect();
        let queues = || astray.iter().map(|(queue, _)| *queue);
        let evidence = format!(
            "{}: the interrupts of {} do not go to the CPUs that their driver asks for (affinity_hint)",
            interface.name,
            names(queues())
        );
        let setting = |(queue, hint): &(&QueueMap, &CpuSet)| {
            format!("{}:irq/rx-{}={hint}", interface.name, queue.queue)
        };
        (!astray.is_empty()).then(|| {
            Found::new(evidence)
                .at_all(located(interface, queues()))
                .changes("follow the driver's hint", astray.iter().map(setting).collect())
        })
    })
}

fn one_queue(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let [queue] = reachable(interface)[..] else { return None };
        if interface.kind != "device" || !queue.rps.is_empty() || on.map.cpus_online < 2 {
            return None;
        }
        let name = &interface.name;
        let channels = on.interface(name).and_then(|now| now.channels.as_ref()).map(|fact| fact.value);
        let most = channels.and_then(|channels| channels.max.combined).unwrap_or(1);
        let more = (most > 1)
            .then(|| format!("{name}:channels/combined={}", (most as usize).min(on.map.cpus_online)));
        // Where the interrupt's CPU is known, it has enough to do.
        let online = &on.snapshot.cpus.online;
        let others = online.difference(&queue.cpus);
        let near: CpuSet =
            others.iter().filter(|cpu| on.node(*cpu) == on.node(queue.cpus.first().unwrap_or(0))).collect();
        let others = if near.is_empty() { others } else { near };
        let rps = (!others.is_empty()).then(|| format!("{name}:rps/rx-{}={others}", queue.queue));
        let evidence = format!(
            "{name} has one receive queue and RPS is off, on a machine of {} CPUs",
            on.map.cpus_online
        );
        Some(
            Found::new(evidence)
                .at_all(located(interface, [queue]))
                .changes("use more of the device's queues", more.into_iter().collect())
                .changes(
                    "let other CPUs process its packets, once each thread of the service has its own socket",
                    rps.into_iter().collect(),
                ),
        )
    })
}

fn no_irq(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let queues = reachable(interface);
        let expected = interface.kind == "device"
            && interface.driver.as_deref().is_some_and(|driver| !NO_IRQS.contains(&driver));
        let none = !queues.is_empty() && queues.iter().all(|queue| queue.irq.is_none());
        let evidence = format!(
            "{}: no interrupt found for {}; {}",
            interface.name,
            counted(queues.len(), "queue"),
            seen(on, interface)
        );
        (expected && none).then(|| Found::new(evidence).at_all(located(interface, queues)))
    })
}

/// Most names of interrupts that a finding quotes; a card may have hundreds.
const QUOTED: usize = 6;

/// The interrupts that may be an interface's: by its name, its driver's, or its device's address.
fn seen(on: Observed<'_>, interface: &InterfaceMap) -> String {
    let bus = on.interface(&interface.name).and_then(|read| Some(&*read.driver.as_ref()?.value.bus));
    let marks: Vec<&str> = [Some(&*interface.name), interface.driver.as_deref(), bus]
        .into_iter()
        .flatten()
        .filter(|mark| !mark.is_empty())
        .collect();
    let of_it = |text: &str| marks.iter().any(|mark| text.contains(mark));
    let names = on.snapshot.irqs.iter().filter(|irq| of_it(&irq.name) || of_it(&irq.chip));
    let names: Vec<&str> = names.map(|irq| &*irq.name).collect();
    match names.len() {
        0 => format!("none has {} in its name", marks.join(" or ")),
        n if n > QUOTED => {
            format!("what may be its own: {} and {} more", names[..QUOTED].join(", "), n - QUOTED)
        }
        _ => format!("what may be its own: {}", names.join(", ")),
    }
}

fn not_moved(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let waiting: Vec<&QueueMap> = reachable(interface)
            .into_iter()
            .filter(|queue| {
                queue.affinity.as_ref().is_some_and(|set| !set.is_empty() && !queue.cpus.is_subset(set))
            })
            .collect();
        let evidence = format!(
            "{}: the interrupts of {} still go to their previous CPUs",
            interface.name,
            names(waiting.iter().copied())
        );
        (!waiting.is_empty()).then(|| Found::new(evidence).at_all(located(interface, waiting)))
    })
}

fn one_cpu(profile: &Profile) -> Vec<Found> {
    let busy = |line: &CpuLine| {
        let contexts = line.sampled.iter().filter(|(context, _)| **context != Context::Idle);
        contexts.map(|(_, ns)| ns).sum::<u64>() as f64 / 1e9 / profile.seconds.max(1e-9)
    };
    let (full, rest): (Vec<_>, Vec<_>) = profile.cpus.iter().partition(|line| busy(line) >= FULL);
    // A few that are full beside many that are not: a queue, an interrupt, a thread.
    if full.is_empty() || rest.is_empty() || full.len() * 2 > profile.cpus.len() {
        return Vec::new();
    }
    let free = rest.iter().map(|line| busy(line)).sum::<f64>() / rest.len() as f64;
    if free > FREE {
        return Vec::new();
    }
    let which: CpuSet = full.iter().map(|line| line.cpu).collect();
    let share =
        full.iter().map(|line| busy(line)).sum::<f64>() * profile.seconds * 1e9 / profile.busy() as f64;
    let are = if full.len() == 1 { "is" } else { "are" };
    let (others, used) =
        if rest.len() == 1 { ("other".to_owned(), "is") } else { (format!("other {}", rest.len()), "are") };
    let evidence = format!("{} {are} full while the {others} {used} {} used", cpus(&which), percent(free));
    vec![Found::new(evidence).share(share).at_all(which.iter().map(Location::Cpu))]
}

#[cfg(test)]
mod tests;
