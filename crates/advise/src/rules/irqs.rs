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
mod tests {
    use std::collections::BTreeMap;

    use udpath_host::interfaces::{ChannelCounts, Channels};
    use udpath_host::irqs::Irq;
    use udpath_profile::classes::Class;

    use super::*;
    use crate::rules::testing::{Host, fact, found_in, of, only, set, settings};

    /// Four queues on four CPUs of two nodes, each queue's interrupt as given.
    fn placed_on(cpus: [&str; 4]) -> Host {
        let mut host = Host::with_queues(4);
        host.cpus(4, 2);
        for (queue, cpu) in host.map.interfaces[0].queues.iter_mut().zip(cpus) {
            queue.affinity = Some(set(cpu));
            queue.cpus = set(cpu);
        }
        host
    }

    #[test]
    fn interrupts_that_keep_to_one_node() {
        let host = placed_on(["0", "1", "0", "1"]);
        let finding = only(&host, "irqs-on-one-node");
        assert_eq!(finding.evidence, "eth0: the interrupts of 4 queues go only to node 0, CPUs 0-1");
        assert_eq!(finding.cause, "CPUs 2-3 process no packets");
        assert_eq!(
            settings(&finding),
            ["eth0:irq/rx-0=0", "eth0:irq/rx-1=1", "eth0:irq/rx-2=2", "eth0:irq/rx-3=3"]
        );
        assert_eq!(host.found("irqs-share-cpus"), []);
        assert_eq!(placed_on(["0", "1", "2", "3"]).found("irqs-on-one-node"), []);
    }

    #[test]
    fn interrupts_that_share_cpus() {
        let host = placed_on(["0", "1", "2", "2"]);
        let finding = only(&host, "irqs-share-cpus");
        assert_eq!(finding.evidence, "eth0: the interrupts of 4 queues go to 3 CPUs of 4");
        assert_eq!(finding.locations, [2, 3].map(|queue| Location::Queue("eth0".into(), queue)));
        assert_eq!(placed_on(["0", "1", "2", "3"]).found("irqs-share-cpus"), []);
    }

    #[test]
    fn hints_that_nothing_follows() {
        let mut host = placed_on(["0", "1", "2", "3"]);
        host.map.interfaces[0].queues[3].hint = Some(set("0"));
        let finding = only(&host, "hint-unused");
        assert!(finding.evidence.starts_with("eth0: the interrupts of rx-3 do not go to"));
        assert_eq!(settings(&finding), ["eth0:irq/rx-3=0"]);
        host.map.interfaces[0].queues[3].hint = Some(set("3"));
        assert_eq!(host.found("hint-unused"), []);
    }

    #[test]
    fn a_single_queue_without_rps() {
        let mut host = Host::with_queues(1);
        host.cpus(4, 1);
        host.map.interfaces[0].queues[0].cpus = set("0");
        let max = ChannelCounts { combined: Some(8), ..ChannelCounts::default() };
        host.snapshot.interfaces[0].channels = Some(fact(Channels { max, ..Channels::default() }));
        let finding = only(&host, "one-queue");
        assert_eq!(finding.evidence, "eth0 has one receive queue and RPS is off, on a machine of 4 CPUs");
        assert_eq!(settings(&finding), ["eth0:channels/combined=4", "eth0:rps/rx-0=1-3"]);
        host.map.interfaces[0].queues[0].rps = set("1-3");
        assert_eq!(host.found("one-queue"), []);
    }

    #[test]
    fn a_device_without_known_interrupts() {
        let mut host = Host::with_queues(2);
        assert_eq!(host.found("no-irq-found"), []);
        host.map.interfaces[0].queues.iter_mut().for_each(|queue| queue.irq = None);
        assert_eq!(
            only(&host, "no-irq-found").evidence,
            "eth0: no interrupt found for 2 queues; none has eth0 or ixgbe in its name"
        );
        let irq = |number: u32, name: &str, chip: &str| Irq {
            number,
            name: name.into(),
            chip: chip.into(),
            counts: BTreeMap::new(),
            affinity: None,
            effective: None,
            hint: None,
            node: None,
        };
        host.snapshot.irqs =
            vec![irq(7, "eth0-fp-0", "PCI-MSI"), irq(8, "ixgbe:misc", "PCI-MSI"), irq(9, "ahci", "PCI-MSI")];
        assert_eq!(
            only(&host, "no-irq-found").evidence,
            "eth0: no interrupt found for 2 queues; what may be its own: eth0-fp-0, ixgbe:misc"
        );
        host.snapshot.irqs = (0..9).map(|n| irq(n, &format!("eth0-{n}"), "PCI-MSI")).collect();
        let said = only(&host, "no-irq-found").evidence;
        assert!(said.ends_with("eth0-4, eth0-5 and 3 more"), "{said}");
        host.map.interfaces[0].driver = Some("hv_netvsc".into());
        assert_eq!(host.found("no-irq-found"), []);
    }

    #[test]
    fn an_interrupt_that_has_not_moved_yet() {
        let mut host = placed_on(["0", "1", "2", "3"]);
        assert_eq!(host.found("irq-not-moved-yet"), []);
        host.map.interfaces[0].queues[1].cpus = set("0");
        let finding = only(&host, "irq-not-moved-yet");
        assert_eq!(finding.evidence, "eth0: the interrupts of rx-1 still go to their previous CPUs");
    }

    #[test]
    fn one_full_cpu_beside_free_ones() {
        const SECOND: u64 = 1_000_000_000;
        let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
        profile.cpus[0].sampled = BTreeMap::from([(Context::Softirq, 49 * SECOND / 10)]);
        profile.cpus[1].sampled =
            BTreeMap::from([(Context::Softirq, SECOND / 10), (Context::Idle, 49 * SECOND / 10)]);
        let [finding] = &found_in(&profile, "one-cpu")[..] else { panic!() };
        assert_eq!(finding.evidence, "CPU 0 is full while the other is 2.0 % used");
        assert_eq!(finding.locations, [Location::Cpu(0)]);
        profile.cpus[1].sampled = BTreeMap::from([(Context::Softirq, 4 * SECOND)]);
        assert_eq!(found_in(&profile, "one-cpu"), []);
    }
}
