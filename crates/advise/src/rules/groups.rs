//! Reuseport groups in which a program selects the socket by the CPU that received the datagram.
//!
//! ```text
//! CPU 2 ──▸ the program returns 2 ──▸ index   0    1    2    3       no such index: the kernel's hash
//!                                            [A]  [D]  [C]  [B]
//!                                 read on CPU 0    3    2    1       B was restarted: D took its index, B came last
//! ```
//! The program and the order are the kernel's, read as root. Which CPU reads a socket is known only if all threads that
//! can read it are bound to that CPU, or if the socket has it as SO_INCOMING_CPU.

use std::collections::BTreeSet;

use udpath_host::receivers::uses_incoming_cpu;
use udpath_host::sockets::{GroupOrder, Place, ReuseportGroup, Selector, Socket};
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, cpus};
use crate::rules::queues::{placed, reachable};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "group-order",
        severity: Severity::Limit,
        look: Look::Map(reordered),
        cause: "when a socket closes, the last one takes its index, and a socket that is bound anew comes last: after a worker's \
                restart, a program that returns the CPU selects the sockets of other workers",
        fix: &[
            "restart the whole server, so that its sockets are bound in the order of the CPUs",
            "for good, set SO_INCOMING_CPU on each socket in place of the program (Linux 6.2), or select from a SOCKARRAY with the \
             CPU as key",
        ],
    },
    Rule {
        id: "cpu-without-socket",
        severity: Severity::Limit,
        look: Look::Map(beyond),
        cause: "where there is no socket at the index that a program returns, the kernel selects by its hash: these datagrams \
                reach readers on other CPUs",
        fix: &[
            "let the program return the CPU modulo the number of sockets (`A %= n`), or open a socket for each CPU",
            "or receive on fewer CPUs: as many queues, or RPS CPUs, as there are sockets",
        ],
    },
];

/// Sockets or readers that evidence lists. More: a line per CPU of a big machine.
const LISTED: usize = 4;

/// The groups with two sockets or more in which a program selects by CPU, of the sockets that were selected.
fn by_cpu(on: Observed<'_>) -> impl Iterator<Item = (&ReuseportGroup, &GroupOrder)> {
    let shown: BTreeSet<u32> = on.map.sockets.iter().map(|socket| socket.inode).collect();
    let groups = on.snapshot.sockets.groups.iter();
    groups.filter_map(move |group| {
        let order = &group.order.as_ref()?.value;
        let by_cpu = matches!(order.selector, Selector::Cpu { .. }) && order.sockets.len() > 1;
        let is_shown = order.sockets.iter().any(|place| shown.contains(&socket(on, place).inode));
        (by_cpu && is_shown).then_some((group, order))
    })
}

fn socket<'a>(on: Observed<'a>, place: &Place) -> &'a Socket {
    &on.snapshot.sockets.list[place.socket]
}

/// `4 sockets of 0.0.0.0:53 (knotd, pid 812), selected by CPU`.
fn named(on: Observed<'_>, order: &GroupOrder) -> String {
    let first = socket(on, &order.sockets[0]);
    let owner = first.owners.first().and_then(|owner| on.snapshot.sockets.process(owner.pid));
    let owner = owner.map(|process| format!(" ({}, pid {})", process.name, process.pid));
    let modulo = match order.selector {
        Selector::Cpu { modulus: Some(modulus) } => format!(" modulo {modulus}"),
        _ => String::new(),
    };
    let sockets = counted(order.sockets.len(), "socket");
    format!("{sockets} of {}{}, selected by CPU{modulo}", first.local, owner.unwrap_or_default())
}

/// The one CPU on which a socket is read; `None` if there may be others.
fn reader(on: Observed<'_>, place: &Place) -> Option<u32> {
    let socket = socket(on, place);
    let processes = socket.owners.iter().map(|owner| on.snapshot.sockets.process(owner.pid));
    let sets: Option<Vec<&CpuSet>> = processes
        .flat_map(|process| match process {
            Some(process) => process.threads.iter().map(|thread| thread.cpus.as_ref()).collect(),
            None => vec![None],
        })
        .collect();
    let bound = sets.filter(|sets| !sets.is_empty()).and_then(|sets| {
        let first = sets[0].first()?;
        sets.iter().all(|set| set.len() == 1 && set.contains(first)).then_some(first)
    });
    // For a connected socket it is the CPU of the last datagram.
    bound.or(place.incoming_cpu.filter(|_| socket.peer.is_none()))
}

fn reordered(on: Observed<'_>) -> Vec<Found> {
    by_cpu(on)
        .filter_map(|(group, order)| {
            let readers: Option<Vec<u32>> = order.sockets.iter().map(|place| reader(on, place)).collect();
            let readers = readers?;
            // The index that each reader's CPU selects. Not each of them once: it was never meant to be its own.
            let own: Vec<usize> =
                readers.iter().filter_map(|cpu| Some(order.selector.index(*cpu)? as usize)).collect();
            let distinct: BTreeSet<usize> = own.iter().copied().collect();
            let all = distinct.len() == readers.len() && distinct.iter().copied().eq(0..readers.len());
            let wrong: Vec<usize> = (0..own.len()).filter(|&index| own[index] != index).collect();
            if !all || wrong.is_empty() {
                return None;
            }
            let listed: Vec<String> = wrong
                .iter()
                .take(LISTED)
                .map(|&index| format!("the one at index {index} is read on CPU {}", readers[index]))
                .collect();
            let more = match wrong.len().saturating_sub(LISTED) {
                0 => String::new(),
                n => format!(", and {n} more"),
            };
            let evidence = format!("of the {}, {}{more}", named(on, order), listed.join(", "));
            let places = wrong.iter().map(|&index| Location::Socket(socket(on, &order.sockets[index]).inode));
            Some(Found::new(evidence).at_all(places).changes(
                "let each socket name the CPU of its reader, in place of the program",
                by_incoming_cpu(on, group, order, &readers),
            ))
        })
        .collect()
}

/// Settings that make SO_INCOMING_CPU select; none on a kernel that does not use it.
fn by_incoming_cpu(
    on: Observed<'_>,
    group: &ReuseportGroup,
    order: &GroupOrder,
    readers: &[u32],
) -> Vec<String> {
    if !uses_incoming_cpu(on.snapshot) {
        return Vec::new();
    }
    let named = order.sockets.iter().zip(readers).filter_map(|(place, cpu)| {
        let socket = socket(on, place);
        let pid = socket.owners.first()?.pid;
        Some(format!("socket:{pid}/{}:incoming-cpu={cpu}", socket.inode))
    });
    // The CPUs first: without them the kernel would select by its hash in between.
    named.chain([format!("port:{}:selection=by-flow", group.port)]).collect()
}

fn beyond(on: Observed<'_>) -> Vec<Found> {
    let received = receiving(on);
    by_cpu(on)
        .filter_map(|(group, order)| {
            let named_by = |cpu| order.sockets.iter().any(|place| place.incoming_cpu == Some(cpu));
            let falls_back = |cpu: &u32| {
                let index =
                    order.selector.index(*cpu).is_some_and(|index| index as usize >= order.sockets.len());
                // The fallback prefers a socket that names the CPU.
                index && !(uses_incoming_cpu(on.snapshot) && named_by(*cpu))
            };
            let without: CpuSet = received.iter().filter(falls_back).collect();
            if without.is_empty() {
                return None;
            }
            let receive = if without.len() == 1 { "receives" } else { "receive" };
            let evidence = format!(
                "{} {receive} packets, but of the {}, the program selects none for {}",
                cpus(&without),
                named(on, order),
                if without.len() == 1 { "it" } else { "them" }
            );
            let places = order.sockets.iter().map(|place| Location::Socket(socket(on, place).inode));
            Some(Found::new(evidence).at_all(without.iter().map(Location::Cpu)).at_all(places).changes(
                "select by CPU modulo the number of sockets",
                vec![format!("port:{}:selection=by-cpu", group.port)],
            ))
        })
        .collect()
}

/// CPUs on which packets reach the sockets: those of RPS, else of the queues' interrupts; where neither is known, all
/// that are online.
fn receiving(on: Observed<'_>) -> CpuSet {
    let mut cpus = CpuSet::default();
    for interface in &on.map.interfaces {
        for queue in reachable(interface) {
            cpus = cpus.union(&queue.rps);
        }
        // An interrupt that only wakes a NAPI thread says nothing.
        let threaded = on.interface(&interface.name).and_then(|found| found.napi_defaults.threaded);
        let placed = placed(interface).into_iter().filter(|(queue, _)| queue.rps.is_empty());
        cpus = cpus.union(&placed.filter(|_| threaded.unwrap_or(0) == 0).map(|(_, cpu)| cpu).collect());
    }
    let online = &on.snapshot.cpus.online;
    let cpus = cpus.intersection(online);
    if cpus.is_empty() { online.clone() } else { cpus }
}

#[cfg(test)]
mod tests;
