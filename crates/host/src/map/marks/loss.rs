//! Packets that are lost, link by link.

use super::{Found, Link, counted, number};
use crate::map::{Map, SocketMap, View};

/// Share of the traffic since boot below which losses are history, such as those of a restart. Lower: every machine that
/// was up for a year has marks. Higher: a slow leak stays unseen. Between two snapshots every loss counts.
const OLD_LOSS: f64 = 1e-4;
/// Most sockets that are marked: more would be a list, not a hint.
const SOCKETS: usize = 5;
/// Share of a limit from which on it is nearly reached.
const NEARLY: f64 = 0.9;

/// Do these losses matter beside that much traffic?
fn matters(map: &Map, lost: u64, of: u64) -> bool {
    lost > 0 && (map.seconds.is_some() || lost as f64 > OLD_LOSS * of as f64)
}

/// `in 1.0 s` or `since boot`.
fn when(map: &Map) -> String {
    map.seconds.map_or_else(|| "since boot".into(), |seconds| format!("in {seconds:.1} s"))
}

pub(super) fn device(_: View<'_>, map: &Map) -> Found {
    let lossy = map.interfaces.iter().filter(|i| matters(map, i.missed, i.packets.unwrap_or(0)));
    lossy
        .map(|interface| {
            let full: Vec<u32> =
                interface.queues.iter().filter(|q| q.drops.unwrap_or(0) > 0).map(|q| q.queue).collect();
            let mut links = vec![Link::Interface(interface.name.clone())];
            links.extend(full.iter().map(|queue| Link::Queue(interface.name.clone(), *queue)));
            let what = format!(
                "{} lost {} packets {} before the kernel saw them: a ring was full, its CPU too late",
                interface.name,
                number(interface.missed),
                when(map)
            );
            (links, what)
        })
        .collect()
}

pub(super) fn backlog(_: View<'_>, map: &Map) -> Found {
    let softnet = map.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.softnet?)));
    let full: Vec<(u32, u32)> = softnet
        .filter(|(_, softnet)| matters(map, softnet.dropped.into(), softnet.processed.into()))
        .map(|(cpu, softnet)| (cpu, softnet.dropped))
        .collect();
    if full.is_empty() {
        return Vec::new();
    }
    let lost: u64 = full.iter().map(|(_, dropped)| u64::from(*dropped)).sum();
    let cpus: udpath_steer::CpuSet = full.iter().map(|(cpu, _)| *cpu).collect();
    let what = format!(
        "{} packets dropped {} because the backlog of CPU {cpus} was full (net.core.netdev_max_backlog)",
        number(lost),
        when(map)
    );
    vec![(full.iter().map(|(cpu, _)| Link::Cpu(*cpu)).collect(), what)]
}

pub(super) fn sockets(_: View<'_>, map: &Map) -> Found {
    let delivered = [map.udp.v4, map.udp.v6].into_iter().flatten().map(|udp| udp.in_datagrams).sum();
    // Sorted by drops already.
    map.sockets
        .iter()
        .filter(|socket| matters(map, socket.drops, delivered))
        .take(SOCKETS)
        .map(|socket| (vec![Link::Socket(socket.inode)], at_socket(map, socket)))
        .collect()
}

fn at_socket(map: &Map, socket: &SocketMap) -> String {
    let owner = socket.pids.first().and_then(|pid| map.processes.iter().find(|process| process.pid == *pid));
    let owner = owner.map_or_else(String::new, |process| format!(" ({}, pid {})", process.name, process.pid));
    let fill = socket
        .fill()
        .map_or_else(String::new, |fill| format!("; its buffer is {:.0} % full now", fill * 100.0));
    let drops = number(socket.drops);
    format!("{drops} datagrams dropped {} at {}{owner}{fill}", when(map), socket.local)
}

pub(super) fn udp(_: View<'_>, map: &Map) -> Found {
    let families = [("IPv4", map.udp.v4), ("IPv6", map.udp.v6)];
    let present = families.into_iter().filter_map(|(family, udp)| Some((family, udp?)));
    present
        .filter_map(|(family, udp)| {
            let reasons = [
                (udp.rcvbuf_errors, "at full receive buffers"),
                (udp.mem_errors.unwrap_or(0), "for want of UDP memory (net.ipv4.udp_mem)"),
                (udp.in_csum_errors.unwrap_or(0), "for wrong checksums"),
            ];
            let said: Vec<String> = reasons
                .iter()
                .filter(|(lost, _)| matters(map, *lost, udp.in_datagrams))
                .map(|(lost, why)| format!("{} {why}", number(*lost)))
                .collect();
            let what = format!("UDP over {family} dropped datagrams {}: {}", when(map), said.join(", "));
            (!said.is_empty()).then(|| (vec![Link::Udp], what))
        })
        .collect()
}

pub(super) fn memory(_: View<'_>, map: &Map) -> Found {
    let Some(memory) = map.udp.memory else { return Vec::new() };
    let max = memory.limits.map_or(u64::MAX, |limits| limits.max);
    if memory.used as f64 <= NEARLY * max as f64 {
        return Vec::new();
    }
    let what = format!(
        "UDP sockets hold {} of the {} pages they may (net.ipv4.udp_mem): datagrams are dropped whatever room their \
         sockets have",
        number(memory.used),
        number(max)
    );
    vec![(vec![Link::Udp], what)]
}

pub(super) fn conntrack(view: View<'_>, _: &Map) -> Found {
    let Some(conntrack) = &view.now.netfilter.conntrack else { return Vec::new() };
    let full = conntrack.max.is_some_and(|max| conntrack.count as f64 > NEARLY * max as f64);
    let max = number(conntrack.max.unwrap_or(0));
    let what = format!(
        "{} of {max} are tracked (net.netfilter.nf_conntrack_max): packets of new flows are dropped when it is full",
        counted(conntrack.count as usize, "connection")
    );
    if full { vec![(vec![Link::Machine], what)] } else { Vec::new() }
}
