//! The way out: queueing disciplines and transmit queues.

use udpath_host::interfaces::Napi;
use udpath_host::map::SocketMap;
use udpath_host::queues::TxQueue;
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, number};
use crate::rules::queues::each;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "transmit-queue-full",
        severity: Severity::Loss,
        look: Look::Map(full),
        cause: "more is sent than the interface, or a rate limit on it, lets out",
        fix: &[
            "raise or remove the limit of the queueing discipline (`tc -s qdisc show dev IFACE`), send less, or use a faster \
             interface: a longer queue only helps against bursts",
        ],
    },
    Rule {
        id: "tun-reader-slow",
        severity: Severity::Loss,
        look: Look::Map(unread),
        cause: "what is sent to a tun or tap interface waits until a program reads it, and that program is too slow",
        fix: &[
            "let the program read faster: without sleeping, in one go until nothing is left, with a queue and a thread for each CPU \
             (IFF_MULTI_QUEUE), or whole segments (IFF_VNET_HDR); a longer queue only helps against bursts",
        ],
    },
    Rule {
        id: "transmit-queue-stops",
        severity: Severity::Limit,
        look: Look::Map(stops),
        cause: "its ring, or the limit of bytes in it (BQL), was full: replies wait until the device has sent others",
        fix: &[
            "look whether the peer sends pause frames, and whether the link is full; a larger ring helps against bursts",
        ],
    },
    Rule {
        id: "one-qdisc",
        severity: Severity::Limit,
        look: Look::Map(one_qdisc),
        cause: "every sender takes its lock",
        fix: &[],
    },
    Rule {
        id: "no-xps",
        severity: Severity::Note,
        look: Look::Map(no_xps),
        cause: "CPUs share the queues and their locks",
        fix: &[],
    },
    Rule {
        id: "transmit-by-cpu",
        severity: Severity::Note,
        look: Look::Map(by_cpu),
        cause: "a thread that is not bound to a CPU sends on that CPU's queue, so that another NAPI instance than the one it \
                polls cleans up what was sent, by an interrupt of its own",
        fix: &[
            "sockets that are connected already keep their queue until their route changes: connect them again",
        ],
    },
];

/// Root disciplines that have a lock of their own for each transmit queue, or none.
const MANY: [&str; 5] = ["mq", "mqprio", "noqueue", "taprio", "clsact"];

/// rtnetlink's name for both tun and tap interfaces.
const TUN: &str = "tun";

fn full(on: Observed<'_>) -> Vec<Found> {
    let mut found = each(on, |interface| {
        let out = &interface.out;
        if interface.kind == TUN {
            return None;
        }
        // Both count a packet that the queue below did not take.
        let lost = out.qdisc_drops.max(out.dropped);
        let kind = out.qdisc.as_ref().map_or_else(String::new, |kind| format!(" ({kind})"));
        let evidence = format!(
            "{} dropped {} packets on the way out {}{kind}, and sent {}",
            interface.name,
            number(lost),
            on.when(),
            number(out.packets.unwrap_or(0))
        );
        let longer = format!("{}:tx-queue-len=5000", interface.name);
        // The length applies to disciplines that have no limit of their own.
        let has_length = matches!(out.qdisc.as_deref(), Some("pfifo_fast" | "mq" | "pfifo"));
        on.matters(lost, out.packets.unwrap_or(0)).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .rate(on.rate(lost))
                .changes("lengthen the queue, for bursts", has_length.then_some(longer).into_iter().collect())
        })
    });
    if found.is_empty() && unread(on).is_empty() {
        found.extend(not_sent(on));
    }
    found
}

/// Packets that a program did not take from its tun or tap interface in time.
fn unread(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let (lost, sent) = (interface.out.dropped, interface.out.packets.unwrap_or(0));
        let behind = on.snapshot.tuns.iter().filter(|tun| tun.interface == interface.name);
        let readers: Vec<String> =
            behind.clone().map(|tun| format!("{} (pid {})", tun.program, tun.pid)).collect();
        let who = if readers.is_empty() { "a program".to_owned() } else { readers.join(", ") };
        let evidence = format!(
            "{} dropped {} packets that {who} had to read {}; it took {}",
            interface.name,
            number(lost),
            on.when(),
            number(sent)
        );
        let longer = format!("{}:tx-queue-len=5000", interface.name);
        (interface.kind == TUN && on.matters(lost, sent)).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .at_all(behind.map(|tun| Location::Process(tun.pid)))
                .rate(on.rate(lost))
                .changes("lengthen the queue, for bursts", vec![longer])
        })
    })
}

/// Where no interface says what it dropped: what UDP could not send.
fn not_sent(on: Observed<'_>) -> Option<Found> {
    let families = [on.map.udp.v4, on.map.udp.v6].into_iter().flatten();
    let (lost, sent) =
        families.fold((0u64, 0u64), |sum, udp| (sum.0 + udp.sndbuf_errors, sum.1 + udp.out_datagrams));
    let evidence = format!(
        "{} datagrams could not be sent {}: a send buffer or a transmit queue was full",
        number(lost),
        on.when()
    );
    on.matters(lost, sent).then(|| Found::new(evidence).at(Location::Udp).rate(on.rate(lost)))
}

/// Share of the packets sent at which a stop matters. Lower: a burst now and then. Higher: each stop delays a whole
/// ring.
const STOPS: f64 = 0.001;

fn stops(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let (stops, sent) = (interface.out.stops?, interface.out.packets?);
        let evidence = format!(
            "{} stopped its transmit queues {} times {}, while it sent {} packets",
            interface.name,
            number(stops),
            on.when(),
            number(sent)
        );
        let name = &interface.name;
        let longer = on.interface(name).and_then(|interface| interface.rings.as_ref());
        let longer = longer.and_then(|rings| rings.value.tx_max.filter(|most| rings.value.tx < Some(*most)));
        let longer = longer.map(|most| format!("{name}:ring/tx={most}"));
        (stops > 0 && stops as f64 >= STOPS * sent as f64).then(|| {
            Found::new(evidence)
                .at(Location::Interface(name.clone()))
                .rate(on.rate(stops))
                .changes("enlarge the transmit ring", longer.into_iter().collect())
        })
    })
}

fn one_qdisc(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let qdiscs = &on.interface(&interface.name)?.qdiscs.as_ref()?.value;
        let mut roots = qdiscs.iter().filter(|qdisc| qdisc.parent == "root");
        let root = roots.find(|qdisc| !MANY.contains(&qdisc.kind.as_str()))?;
        let evidence = format!(
            "{}: one queueing discipline ({}) in front of {}",
            interface.name,
            root.kind,
            counted(interface.tx_queues, "transmit queue")
        );
        (interface.tx_queues > 1).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .changes("give each transmit queue its own", vec![format!("{}:qdisc=mq", interface.name)])
        })
    })
}

fn no_xps(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let none = interface.queues.iter().all(|queue| queue.xps.is_empty());
        let wanted = interface.tx_queues > 1 && on.map.cpus_online > 1 && interface.queues.len() > 1;
        let evidence = format!(
            "{} has {} and no transmit mapping (XPS)",
            interface.name,
            counted(interface.tx_queues, "transmit queue")
        );
        (wanted && none).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .changes("give each CPU a transmit queue", spread(on, &interface.name, interface.tx_queues))
        })
    })
}

/// The CPUs in turn over the transmit queues; queues beyond the number of CPUs stay without.
fn spread(on: Observed<'_>, interface: &str, queues: usize) -> Vec<String> {
    let mut of_queue = vec![CpuSet::default(); queues.min(on.snapshot.cpus.online.len())];
    let used = of_queue.len();
    for (at, cpu) in on.snapshot.cpus.online.iter().enumerate() {
        of_queue[at % used].insert(cpu);
    }
    of_queue.iter().enumerate().map(|(queue, cpus)| format!("{interface}:xps/tx-{queue}={cpus}")).collect()
}

/// Connected sockets that poll a queue of the interface, of processes with threads that may move. Others do not
/// remember the queue that they receive on, which `xps_rxqs` needs (`sk_mark_napi_id_once` of net/ipv4/udp.c); AF_XDP
/// sockets send on their own.
fn polling<'a>(on: Observed<'a>, napis: &[Napi]) -> Vec<&'a SocketMap> {
    let all = on.snapshot.sysctls.iter().find(|sysctl| sysctl.name == "net.core.busy_poll");
    let all = all.is_some_and(|sysctl| sysctl.value.parse::<u32>().is_ok_and(|us| us > 0));
    let polls = |socket: &&SocketMap| {
        let options = socket.options.as_ref()?;
        let here = napis.iter().any(|napi| Some(napi.id) == options.napi);
        let process = on.map.processes.iter().find(|process| socket.pids.contains(&process.pid))?;
        let moves = process.pinned < process.threads;
        Some(socket.peer.is_some() && here && moves && (all || options.busy_poll_us > 0))
    };
    on.map.sockets.iter().filter(|socket| polls(socket).unwrap_or(false)).collect()
}

fn by_cpu(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let found = on.interface(&interface.name)?;
        let sockets = polling(on, &found.napis.as_ref()?.value);
        let first = sockets.first()?;
        let who = match (sockets.len(), first.peer) {
            (1, Some(peer)) => format!("{} to {peer} busy-polls", first.local),
            (n, _) => format!("{n} connected sockets busy-poll"),
        };
        let pairs: Vec<&TxQueue> =
            found.tx.iter().filter(|tx| found.rx.iter().any(|rx| rx.id == tx.id)).collect();
        let own = |tx: &TxQueue| tx.xps_rxqs.as_ref().is_some_and(|rx| rx.iter().eq([tx.id]));
        let other: Vec<String> = pairs
            .iter()
            .filter(|tx| !own(tx))
            .map(|tx| format!("{}:xps-rxqs/tx-{}={}", interface.name, tx.id, tx.id))
            .collect();
        let evidence = format!(
            "{who} {}, and the sending CPU selects among its {}",
            interface.name,
            counted(pairs.len(), "transmit queue")
        );
        (pairs.len() > 1 && !other.is_empty()).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .at_all(sockets.iter().map(|socket| Location::Socket(socket.inode)))
                .changes("send on the queue that a flow comes in on", other)
        })
    })
}

#[cfg(test)]
mod tests;
