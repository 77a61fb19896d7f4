//! Receive packet steering: which CPUs process packets after the interrupt's.

use udpath_host::map::{CpuMap, QueueMap};
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number, percent};
use crate::rules::queues::{each, located, names, placed, reachable};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "rps-on-irq-cpu",
        severity: Severity::Limit,
        look: Look::Map(on_irq_cpu),
        cause: "that CPU has the most to do already",
        fix: &[],
    },
    Rule {
        id: "rps-crosses-nodes",
        severity: Severity::Limit,
        look: Look::Map(crosses_nodes),
        cause: "packets are read from another node's memory",
        fix: &[],
    },
    Rule {
        id: "rps-one-cpu",
        severity: Severity::Limit,
        look: Look::Map(one_cpu),
        cause: "one CPU runs the stack for all queues, whatever CPUs their packets arrive on, while others have time",
        fix: &[],
    },
    Rule {
        id: "rps-redundant",
        severity: Severity::Limit,
        look: Look::Map(redundant),
        cause: "RPS costs an interrupt between CPUs and gains nothing",
        fix: &[],
    },
];

/// Queues with RPS that `better` has other CPUs for.
fn steered(
    on: Observed<'_>,
    does: &str,
    what: &str,
    better: impl Fn(&QueueMap) -> Option<CpuSet>,
) -> Vec<Found> {
    each(on, |interface| {
        let with = reachable(interface).into_iter().filter(|queue| !queue.rps.is_empty());
        let found: Vec<(&QueueMap, CpuSet)> =
            with.filter_map(|queue| Some((queue, better(queue)?))).collect();
        let queues = || found.iter().map(|(queue, _)| *queue);
        let settings = found.iter().filter(|(_, cpus)| !cpus.is_empty());
        let settings = settings
            .map(|(queue, cpus)| format!("{}:rps/rx-{}={cpus}", interface.name, queue.queue))
            .collect();
        let evidence = format!("{}: RPS of {} {does}", interface.name, names(queues()));
        (!found.is_empty())
            .then(|| Found::new(evidence).at_all(located(interface, queues())).changes(what, settings))
    })
}

fn on_irq_cpu(on: Observed<'_>) -> Vec<Found> {
    let does = "also steers to the CPU that takes the interrupt";
    steered(on, does, "leave the interrupt's CPU out", |queue| {
        let own = queue.cpus.len() == 1 && queue.rps.len() > 1 && queue.cpus.is_subset(&queue.rps);
        own.then(|| queue.rps.difference(&queue.cpus))
    })
}

fn crosses_nodes(on: Observed<'_>) -> Vec<Found> {
    let does = "steers to CPUs of another node than the interrupt's";
    steered(on, does, "keep to the CPUs of the interrupt's node", |queue| {
        let [node] = queue.nodes[..] else { return None };
        let near = |cpus: &CpuSet| cpus.iter().filter(|cpu| on.node(*cpu) == Some(node)).collect::<CpuSet>();
        let crosses = queue.rps.iter().any(|cpu| on.node(cpu).is_some_and(|other| other != node));
        let kept = near(&queue.rps).difference(&queue.cpus);
        crosses.then(|| if kept.is_empty() { near(&on.snapshot.cpus.online) } else { kept })
    })
}

/// Share of a CPU in softirqs from which on it has too much of them, and part of all softirqs that it has.
const ONE_CPU: (f64, f64) = (0.2, 0.6);
/// Share of its time that a full CPU is idle: then it does not matter how busy others are with handing packets to it.
const FULL: f64 = 0.05;

fn one_cpu(on: Observed<'_>) -> Vec<Found> {
    let soft = |cpu: &CpuMap| cpu.time.map_or(0.0, |time| time.soft);
    let all: f64 = on.map.cpus.iter().map(soft).sum();
    each(on, |interface| {
        let queues = reachable(interface);
        let target = queues.first()?.rps.clone();
        if target.len() != 1 || on.map.cpus_online < 2 || queues.iter().any(|queue| queue.rps != target) {
            return None;
        }
        let cpu = on.map.cpus.iter().find(|cpu| target.contains(cpu.cpu))?;
        let its = soft(cpu);
        let dropped = on.map.seconds.and(cpu.softnet).map_or(0, |softnet| u64::from(softnet.dropped));
        let dropped = dropped.saturating_sub(on.map.flow_limited());
        let lost = if dropped > 0 {
            format!(", and its backlog dropped {} packets", number(dropped))
        } else {
            String::new()
        };
        let evidence = format!(
            "{}: RPS of {} steers to CPU {target} alone, which spends {} in softirqs, {} of those of all CPUs{lost}",
            interface.name,
            if queues.len() == 1 { "its queue".to_owned() } else { format!("all {} queues", queues.len()) },
            percent(its),
            percent(its / all.max(1e-9))
        );
        let full = cpu.time.is_some_and(|time| time.idle < FULL);
        let busiest = its >= ONE_CPU.0 && (full || its >= ONE_CPU.1 * all);
        let heavy = on.map.seconds.is_some() && (dropped > 0 || busiest);
        heavy.then(|| {
            Found::new(evidence)
                .at_all(located(interface, queues))
                .at(Location::Cpu(cpu.cpu))
                .share(its)
                .rate(on.rate(dropped).filter(|rate| *rate > 0.0))
                .changes(
                    "turn RPS off, or name several CPUs",
                    vec![format!("{}:rps/rx-*=none", interface.name)],
                )
        })
    })
}

fn redundant(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let queues = reachable(interface);
        // A queue that nothing is spread to makes no CPU busy.
        let busy = placed(interface).into_iter().filter(|(queue, _)| queue.share != Some(0.0));
        let cpus: CpuSet = busy.map(|(_, cpu)| cpu).collect();
        let steered = queues.iter().any(|queue| !queue.rps.is_empty());
        let redundant = steered && on.map.cpus_online > 1 && cpus.len() >= on.map.cpus_online;
        let evidence = format!("{}: RPS is on, and every CPU has a queue of its own already", interface.name);
        redundant.then(|| {
            Found::new(evidence)
                .at_all(located(interface, queues))
                .changes("turn RPS off", vec![format!("{}:rps/rx-*=none", interface.name)])
        })
    })
}

#[cfg(test)]
mod tests {
    use udpath_host::map::Shares;

    use crate::rules::testing::{Host, only, set, settings};

    /// One queue on CPU 0 of four in two nodes, steered as given.
    fn one_queue(rps: &str) -> Host {
        let mut host = Host::with_queues(1);
        host.cpus(4, 2);
        let queue = &mut host.map.interfaces[0].queues[0];
        (queue.cpus, queue.nodes, queue.rps) = (set("0"), vec![0], set(rps));
        host
    }

    #[test]
    fn all_queues_steered_to_one_cpu() {
        let mut host = Host::with_queues(2);
        host.map.seconds = Some(10.0);
        let soft = |soft| Some(Shares { soft, idle: 1.0 - soft, ..Shares::default() });
        (host.map.cpus[0].time, host.map.cpus[1].time) = (soft(0.02), soft(0.6));
        assert_eq!(host.found("rps-one-cpu"), [], "no RPS");
        host.map.interfaces[0].queues.iter_mut().for_each(|queue| queue.rps = set("1"));
        let finding = only(&host, "rps-one-cpu");
        assert_eq!(
            finding.evidence,
            "eth0: RPS of all 2 queues steers to CPU 1 alone, which spends 60 % in softirqs, 97 % of those of all CPUs"
        );
        assert_eq!(settings(&finding), ["eth0:rps/rx-*=none"]);
        host.map.cpus[0].time = soft(0.5);
        assert_eq!(host.found("rps-one-cpu"), [], "others have as much, and this one has time");
        host.map.cpus[1].time = Some(Shares { soft: 0.6, usr: 0.38, idle: 0.02, ..Shares::default() });
        only(&host, "rps-one-cpu");
        host.map.interfaces[0].queues[0].rps = set("0-1");
        assert_eq!(host.found("rps-one-cpu"), []);
    }

    #[test]
    fn steering_to_the_interrupts_cpu() {
        let finding = only(&one_queue("0-1"), "rps-on-irq-cpu");
        assert_eq!(finding.evidence, "eth0: RPS of rx-0 also steers to the CPU that takes the interrupt");
        assert_eq!(settings(&finding), ["eth0:rps/rx-0=1"]);
        assert_eq!(one_queue("1").found("rps-on-irq-cpu"), []);
        assert_eq!(one_queue("").found("rps-on-irq-cpu"), []);
    }

    #[test]
    fn steering_to_another_node() {
        let finding = only(&one_queue("1-3"), "rps-crosses-nodes");
        assert_eq!(settings(&finding), ["eth0:rps/rx-0=1"]);
        // Nothing of its own node is left: all of that.
        assert_eq!(settings(&only(&one_queue("2-3"), "rps-crosses-nodes")), ["eth0:rps/rx-0=0-1"]);
        assert_eq!(one_queue("1").found("rps-crosses-nodes"), []);
    }

    #[test]
    fn steering_where_every_cpu_has_a_queue() {
        let mut host = Host::with_queues(2);
        host.cpus(2, 1);
        for (queue, cpu) in host.map.interfaces[0].queues.iter_mut().zip(["0", "1"]) {
            (queue.cpus, queue.rps) = (set(cpu), set("0-1"));
        }
        let finding = only(&host, "rps-redundant");
        assert_eq!(settings(&finding), ["eth0:rps/rx-*=none"]);
        // A queue that gets nothing leaves its CPU free.
        host.map.interfaces[0].queues[1].share = Some(0.0);
        assert_eq!(host.found("rps-redundant"), []);
    }
}
