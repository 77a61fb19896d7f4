//! What takes time on the way, and who else has a hand in it.

use super::{Found, Link, counted};
use crate::map::{Map, View};
use crate::snapshot::actors::Touch;

/// Share of time taken by the hypervisor from which on figures are somebody else's. Lower: every virtual machine has the
/// mark. Higher: a starved one has not.
const STEAL: f64 = 0.02;
/// Threads from which on a process with one socket is worth a word.
const THREADS: usize = 4;
/// What a packet socket that takes every packet asks for (`ETH_P_ALL`, linux/if_ether.h).
const ALL: u16 = 3;
/// Root disciplines that have a lock of their own for each transmit queue, or none.
const MANY: [&str; 5] = ["mq", "mqprio", "noqueue", "taprio", "clsact"];

pub(super) fn one_qdisc(view: View<'_>, map: &Map) -> Found {
    map.interfaces
        .iter()
        .filter(|interface| interface.tx_queues > 1)
        .filter_map(|interface| {
            let now = view.now.interfaces.iter().find(|now| now.name == interface.name)?;
            let qdiscs = &now.qdiscs.as_ref()?.value;
            let root =
                qdiscs.iter().find(|qdisc| qdisc.parent == "root" && !MANY.contains(&qdisc.kind.as_str()))?;
            let what = format!(
                "{}: one queueing discipline ({}) in front of {}: every sender takes its lock",
                interface.name,
                root.kind,
                counted(interface.tx_queues, "transmit queue")
            );
            Some((vec![Link::Interface(interface.name.clone())], what))
        })
        .collect()
}

pub(super) fn tap(view: View<'_>, map: &Map) -> Found {
    let taps = view.now.taps.sockets.iter().filter(|tap| tap.running && tap.protocol == ALL);
    taps.filter_map(|tap| {
        let name =
            view.now.interfaces.iter().find(|now| now.index == tap.interface).map(|now| now.name.clone());
        if tap.interface != 0 && !map.interfaces.iter().any(|shown| Some(&shown.name) == name.as_ref()) {
            return None;
        }
        let place = name.clone().unwrap_or_else(|| "every interface".into());
        let what = format!("a packet socket (inode {}) takes a copy of every packet of {place}", tap.inode);
        Some((vec![name.map_or(Link::Machine, Link::Interface)], what))
    })
    .collect()
}

pub(super) fn one_socket(_: View<'_>, map: &Map) -> Found {
    map.sockets
        .iter()
        .filter(|socket| socket.group == 1 && socket.peer.is_none())
        .filter_map(|socket| {
            let [pid] = socket.pids[..] else { return None };
            let process = map.processes.iter().find(|process| process.pid == pid)?;
            // Of threads, only those bound to CPUs look like workers; of a busy socket any may be.
            let workers = process.pinned >= 2 || process.threads >= THREADS;
            let busy = socket.drops > 0 || socket.queued > 0 || process.pinned >= 2;
            let what = format!(
                "{} is one socket of {} (pid {pid}, {}): if all of them read it, they wait for its lock; with \
                 SO_REUSEPORT each has its own",
                socket.local,
                process.name,
                counted(process.threads, "thread")
            );
            (workers && busy).then(|| (vec![Link::Socket(socket.inode)], what))
        })
        .collect()
}

pub(super) fn steal(_: View<'_>, map: &Map) -> Found {
    let shares: Vec<f64> = map.cpus.iter().filter_map(|cpu| Some(cpu.time?.steal)).collect();
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let what = format!("the hypervisor took {:.0} % of the CPU time", mean * 100.0);
    if mean > STEAL { vec![(vec![Link::Machine], what)] } else { Vec::new() }
}

pub(super) fn rivals(view: View<'_>, _: &Map) -> Found {
    let touching = view.now.actors.list.iter().filter(|actor| {
        let steering = [Touch::IrqAffinity, Touch::Channels, Touch::Rps, Touch::Xps, Touch::ThreadAffinity];
        actor.pid.is_some() && steering.iter().any(|touch| actor.touches.contains(touch))
    });
    touching
        .map(|actor| {
            let pid = actor.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            (vec![Link::Machine], format!("{}{pid} changes these settings too: {}", actor.name, actor.when))
        })
        .collect()
}
