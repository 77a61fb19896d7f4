//! Datagrams for which there is no socket, and answers that leave with another address than was asked: what one end
//! does is seen at the other.
//!
//! ```text
//!  client, connected to A ── request to A ──▸ server, bound to any address
//!     no socket takes it  ◂── answer from B ──┘  the route's address, not the one that was asked   ─▸ answer-from-other-address
//!     └▸ no-listener: which ports, and whether sockets have them, shows a trace of drops
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;

use udpath_host::Snapshot;
use udpath_host::map::{Map, SocketMap};
use udpath_host::sockets::Socket;
use udpath_host::sockets::looks::Asked;
use udpath_profile::Profile;
use udpath_profile::trace::drops::Way;

use crate::finding::{Finding, Location, Remedy, Severity};
use crate::rule::{Found, Look, Observed, Rule, number, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: UNHEARD_ID,
        severity: Severity::Loss,
        look: Look::Map(no_listener),
        cause: OPEN,
        fix: &[
            "`udpath profile --trace drops` names the ports; overlap restarts with SO_REUSEPORT (start the new server before \
             the old one ends), and drop scans in a filter",
        ],
    },
    Rule {
        id: "answer-from-other-address",
        severity: Severity::Loss,
        look: Look::Map(answers),
        cause: "a socket that is bound to any address answers from the one that the route to the client gives; a client that is \
                connected to the address it asked takes no answer from another",
        fix: &[
            "bind a socket to each address, or let the program answer from the address that was asked (IP_PKTINFO; unbound: \
             `interface-automatic: yes`)",
            "until then, let clients ask the address that answers",
        ],
    },
];

/// The id of datagrams for which there is no socket.
const UNHEARD_ID: &str = "no-listener";
/// The cause of that where nothing says more.
const OPEN: &str = "no socket takes them: none has their port (the server was not running or restarting, clients use a wrong port, \
                    a scan is under way), or it is bound to another address, or connected to another peer (an answer that comes from \
                    another address than was asked)";
/// The reason of such drops, as the kernel names it.
const NO_SOCKET: &str = "NO_SOCKET";
/// Fewest events of an interval that are worth a word: a scan of a few ports is not.
const FEWEST: u64 = 10;
/// Part of the datagrams without a listener that matters: scans of a busy server stay below.
const UNHEARD: f64 = 0.01;
/// Part of them that a trace must explain. Lower: a cause of a few is called that of all. Higher: one of two causes is
/// not found.
const MOST: f64 = 0.5;
/// Part of its requests that an address answers from which on it does answer. Lower: two routes, one of them right, are
/// a finding. Higher: a packet of another kind hides it.
const ANSWERS: f64 = 0.1;
/// Part of the missing answers that must have left from other addresses. Lower: a server that sends on its own is
/// blamed for requests that it does not answer. Higher: one that does not answer them all is not found.
const ELSEWHERE: f64 = 0.5;

fn no_listener(on: Observed<'_>) -> Vec<Found> {
    let families = [("IPv4", on.map.udp.v4), ("IPv6", on.map.udp.v6)];
    let unheard = families.into_iter().filter_map(|(family, udp)| {
        let udp = udp?;
        let came = udp.in_datagrams.saturating_add(udp.no_ports);
        let share = udp.no_ports as f64 / came.max(1) as f64;
        let evidence = format!(
            "{} datagrams over {family} came for ports without a socket {}, {} of those that came",
            number(udp.no_ports),
            on.when(),
            percent(share)
        );
        (udp.no_ports >= FEWEST && share >= UNHEARD)
            .then(|| Found::new(evidence).at(Location::Udp).share(share).rate(on.rate(udp.no_ports)))
    });
    // Since boot, they may be of a restart long ago.
    unheard.filter(|_| on.map.seconds.is_some()).collect()
}

/// Is a finding's cause one of many, some of which sockets of this machine suggest?
pub(crate) fn is_open(finding: &Finding, map: &Map) -> bool {
    let suggests = |socket: &SocketMap| socket.peer.is_some() || !socket.local.ip().is_unspecified();
    finding.id == UNHEARD_ID && finding.cause == OPEN && map.sockets.iter().any(suggests)
}

/// Says of the datagrams for which there is no socket which ports they came for, where drops were traced, and what has
/// those ports.
pub(crate) fn named(found: &mut [Finding], snapshot: &Snapshot, map: &Map, profile: &Profile) {
    let Some(drops) = &profile.traces.drops else { return };
    let mut ports: BTreeMap<u16, u64> = BTreeMap::new();
    for line in drops.lines.iter().filter(|line| line.reason == NO_SOCKET && line.way == Way::Received) {
        if let Some(port) = line.port {
            *ports.entry(port).or_default() += line.packets;
        }
    }
    for finding in found.iter_mut().filter(|finding| finding.id == UNHEARD_ID) {
        let is_v6 = finding.evidence.contains("IPv6");
        let lost = [map.udp.v4, map.udp.v6][usize::from(is_v6)].map_or(0, |udp| udp.no_ports);
        explain(finding, &snapshot.sockets.list, &ports, (is_v6, lost));
    }
}

/// The same of one family and its count. The trace is of all network namespaces: what it explains must be of this one's
/// sockets, or fit the count.
fn explain(
    finding: &mut Finding,
    sockets: &[Socket],
    ports: &BTreeMap<u16, u64>,
    (is_v6, lost): (bool, u64),
) {
    let at = |port: u16| {
        sockets.iter().filter(move |socket| socket.local.port() == port && socket.local.is_ipv6() == is_v6)
    };
    // A socket that takes all of its port is missing for a moment, or is in another namespace.
    let takes_all = |socket: &Socket| socket.peer.is_none() && socket.local.ip().is_unspecified();
    let missed = ports.iter().filter(|(port, _)| at(**port).next().is_some() && !at(**port).any(takes_all));
    let (mut connected, mut bound): (Group, Group) = Default::default();
    for (port, packets) in missed {
        let peers: Vec<SocketAddr> = at(*port).filter_map(|socket| socket.peer).collect();
        let locals = at(*port).filter(|socket| socket.peer.is_none()).map(|socket| socket.local);
        let group = if peers.is_empty() { &mut bound } else { &mut connected };
        group.packets += packets;
        group.addresses.extend(if peers.is_empty() { locals.collect() } else { peers });
    }
    let enough = |group: &Group| group.packets as f64 >= MOST * lost as f64 && group.packets > 0;
    if enough(&connected) {
        finding.evidence +=
            &format!("; {} of them for ports of connected sockets", number(connected.packets.min(lost)));
        finding.cause = format!(
            "those sockets take only what their peer sends, {}, and these datagrams came from another address or port: most often the \
             server is bound to any address and answers from another than was asked",
            connected.named()
        );
        finding.remedies = vec![
            Remedy::Advice(
                "at the server, bind a socket to each address, or answer from the address that was asked (IP_PKTINFO; unbound: \
                 `interface-automatic: yes`)"
                    .into(),
            ),
            Remedy::Advice("until then, ask the address that answers, or do not connect the socket".into()),
        ];
    } else if enough(&bound) {
        finding.evidence +=
            &format!("; {} of them differ only in the address", number(bound.packets.min(lost)));
        finding.cause = format!(
            "the sockets of their port are bound to {} alone, and they came for another address of this machine",
            bound.named()
        );
        finding.remedies = vec![Remedy::Advice(format!(
            "bind the server to the address that is asked, or to any ({}), or let clients ask {}",
            if is_v6 { "::" } else { "0.0.0.0" },
            bound.named()
        ))];
    // A trace begins before the interval does.
    } else if let Some((port, packets)) = ports.iter().max_by_key(|(_, packets)| **packets)
        && at(*port).next().is_none()
        && *packets as f64 >= MOST * lost as f64
        && *packets <= lost.saturating_mul(2)
    {
        finding.evidence += &format!("; {} of them for port {port}", number((*packets).min(lost)));
        finding.cause = format!(
            "no socket has port {port}: the server was not running or restarting, clients use a wrong port, or a scan is under way"
        );
    }
}

/// Datagrams that sockets of their port did not take.
#[derive(Default)]
struct Group {
    packets: u64,
    /// The sockets' peers, or where they are bound.
    addresses: Vec<SocketAddr>,
}

impl Group {
    /// Some of the addresses.
    fn named(&self) -> String {
        const NAMED: usize = 3;
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        let named: Vec<String> = addresses.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if addresses.len() > NAMED { ", ..." } else { "" };
        format!("{}{more}", named.join(", "))
    }
}

fn answers(on: Observed<'_>) -> Vec<Found> {
    let mut ports = std::collections::BTreeSet::new();
    let asked = on.map.sockets.iter().filter(|socket| !socket.asked.is_empty());
    let first = asked.filter(|socket| ports.insert(socket.local.port()));
    let found = first.filter_map(|socket| {
        let silent = |of: &&Asked| of.asked >= FEWEST && (of.answered as f64) < ANSWERS * of.asked as f64;
        let (silent, others): (Vec<&Asked>, Vec<&Asked>) = socket.asked.iter().partition(silent);
        let missing: u64 = silent.iter().map(|of| of.asked - of.answered).sum();
        let more: Vec<&&Asked> = others.iter().filter(|of| of.answered > of.asked).collect();
        let elsewhere: u64 = more.iter().map(|of| of.answered - of.asked).sum();
        if silent.is_empty() || (elsewhere as f64) < ELSEWHERE * missing as f64 {
            return None;
        }
        let list = |all: Vec<String>| all.join(", ");
        let owner = on.map.processes.iter().find(|process| socket.pids.contains(&process.pid));
        let who =
            owner.map_or_else(String::new, |process| format!(" ({}, pid {})", process.name, process.pid));
        let evidence = format!(
            "of {} requests to {} at {}{who}, {} were answered from there; {} packets left from {} instead",
            number(silent.iter().map(|of| of.asked).sum()),
            list(silent.iter().map(|of| of.address.to_string()).collect()),
            socket.local,
            number(silent.iter().map(|of| of.answered).sum()),
            number(elsewhere),
            list(more.iter().map(|of| of.address.to_string()).collect())
        );
        let found = Found::new(evidence).at_all(owner.map(|process| Location::Process(process.pid)));
        Some(found.at(Location::Socket(socket.inode)))
    });
    found.filter(|_| on.map.seconds.is_some()).collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::udp::UdpCounters;
    use udpath_profile::classes::Class;
    use udpath_profile::context::Context;
    use udpath_profile::trace::Drops;
    use udpath_profile::trace::drops::Drop;

    use super::*;
    use crate::diagnosis::{Diagnosis, Level};
    use crate::rules::testing::{Host, of, only};

    /// This many datagrams without a socket, beside a thousand with one.
    fn host(no_ports: u64) -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.map.udp.v4 = Some(UdpCounters { in_datagrams: 1000, no_ports, ..UdpCounters::default() });
        host
    }

    fn socket(local: &str, peer: Option<&str>) -> Socket {
        let text = r#"{"local": "0.0.0.0:53", "uid": 0, "receive_queue": 0, "send_queue": 0, "drops": 0, "inode": 9}"#;
        let socket: Socket = serde_json::from_str(text).unwrap();
        Socket { local: local.parse().unwrap(), peer: peer.map(|peer| peer.parse().unwrap()), ..socket }
    }

    /// The finding beside these sockets, where a trace saw this many drops at that port.
    fn explained(sockets: &[(&str, Option<&str>)], port: u16, packets: u64) -> Finding {
        let mut host = host(4000);
        host.snapshot.sockets.list = sockets.iter().map(|(local, peer)| socket(local, *peer)).collect();
        let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5)]);
        let line =
            Drop { reason: NO_SOCKET.into(), function: None, way: Way::Received, port: Some(port), packets };
        profile.traces.drops = Some(Drops { lines: vec![line], ..Drops::default() });
        let mut found = host.found(UNHEARD_ID);
        named(&mut found, &host.snapshot, &host.map, &profile);
        found.pop().unwrap()
    }

    #[test]
    fn datagrams_that_nobody_listens_for() {
        assert_eq!(host(9).found(UNHEARD_ID), []);
        let mut host = host(1000);
        let finding = only(&host, UNHEARD_ID);
        assert_eq!(
            finding.evidence,
            "1,000 datagrams over IPv4 came for ports without a socket in 10.0 s, 50 % of those that came"
        );
        host.map.seconds = None;
        assert_eq!(host.found(UNHEARD_ID), [], "since boot");
    }

    #[test]
    fn a_port_without_a_socket_is_named() {
        let finding = explained(&[("0.0.0.0:53", None)], 7001, 4000);
        assert!(finding.evidence.ends_with("; 4,000 of them for port 7001"), "{}", finding.evidence);
        assert!(finding.cause.starts_with("no socket has port 7001: "), "{}", finding.cause);
        // Of another namespace, whose drops the trace counts as well.
        assert_eq!(explained(&[], 7001, 90_000).cause, OPEN);
        assert_eq!(explained(&[], 7001, 100).cause, OPEN);
    }

    #[test]
    fn sockets_of_the_port_at_another_address_are_named() {
        let finding = explained(&[("127.0.0.2:7000", None)], 7000, 4000);
        assert!(
            finding.evidence.ends_with("; 4,000 of them differ only in the address"),
            "{}",
            finding.evidence
        );
        assert_eq!(
            finding.cause,
            "the sockets of their port are bound to 127.0.0.2:7000 alone, and they came for another address of this machine"
        );
        assert!(!finding.remedies.iter().any(|fix| fix.what().contains("restart")), "{:?}", finding.remedies);
        let two = explained(&[("127.0.0.2:7000", None), ("127.0.0.3:7000", None)], 7000, 4000);
        assert!(two.cause.contains("bound to 127.0.0.2:7000, 127.0.0.3:7000 alone"), "{}", two.cause);
        // One that takes all of the port came back.
        assert_eq!(explained(&[("127.0.0.2:7000", None), ("0.0.0.0:7000", None)], 7000, 4000).cause, OPEN);
    }

    #[test]
    fn an_answer_from_another_address_is_not_taken_for_a_scan() {
        let finding = explained(&[("10.9.0.7:40000", Some("10.9.0.2:7000"))], 40_000, 4000);
        assert!(finding.cause.contains("their peer sends, 10.9.0.2:7000, and"), "{}", finding.cause);
        let fixes: Vec<&str> = finding.remedies.iter().map(Remedy::what).collect();
        assert!(fixes[0].contains("IP_PKTINFO") && !fixes.concat().contains("scan"), "{fixes:?}");
    }

    /// Without a trace a connected socket may be the cause: not sure.
    #[test]
    fn a_cause_among_many_is_not_sure() {
        let level = |peer: Option<&str>| {
            let mut host = host(4000);
            host.serve(1, 0);
            host.map.sockets[0].peer = peer.map(|peer| peer.parse().unwrap());
            let found = host.found(UNHEARD_ID);
            let diagnosis = Diagnosis::of(&host.map, found, Err("--no-profile was given"));
            diagnosis.findings[0].confidence.level
        };
        assert_eq!((level(None), level(Some("10.9.0.2:7000"))), (Level::High, Level::Low));
    }

    #[test]
    fn answers_that_leave_with_another_address() {
        let with = |asked: &[(&str, u64, u64)]| {
            let mut host = host(0);
            host.serve(1, 0);
            host.map.sockets[0].asked = asked
                .iter()
                .map(|(address, asked, answered)| Asked {
                    address: address.parse().unwrap(),
                    asked: *asked,
                    answered: *answered,
                })
                .collect();
            host
        };
        let finding =
            only(&with(&[("10.9.0.1", 0, 998), ("10.9.0.2", 1000, 0)]), "answer-from-other-address");
        assert_eq!(
            finding.evidence,
            "of 1,000 requests to 10.9.0.2 at 0.0.0.0:53 (knotd, pid 812), 0 were answered from there; 998 packets left from \
             10.9.0.1 instead"
        );
        let both = with(&[("10.9.0.1", 500, 1000), ("10.9.0.2", 500, 0)]);
        assert_eq!(both.found("answer-from-other-address").len(), 1);
        for (twin, asked) in [
            ("answers from each", &[("10.9.0.1", 500, 500), ("10.9.0.2", 500, 498)][..]),
            ("does not answer one", &[("10.9.0.1", 500, 500), ("10.9.0.2", 500, 0)]),
            ("one way", &[("10.9.0.1", 500, 0)]),
            ("too few", &[("10.9.0.1", 0, 9), ("10.9.0.2", 9, 0)]),
        ] {
            assert_eq!(with(asked).found("answer-from-other-address"), [], "{twin}");
        }
    }
}
