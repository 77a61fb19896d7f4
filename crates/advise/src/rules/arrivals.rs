//! Datagrams that arrive but reach no reader: wrong checksums, fragments; and neighbours without an entry. Those for
//! which there is no socket are in `addresses.rs`.

use udpath_host::ip::IpCounters;
use udpath_host::neighbours::NeighbourCounters;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "fragments-lost",
        severity: Severity::Loss,
        look: Look::Map(fragments_lost),
        cause: "one lost fragment loses the whole datagram, and fragments wait for each other in limited memory",
        fix: &[
            "send datagrams that fit the path's MTU (DNS: EDNS size 1232), or use a larger MTU on the whole path",
            "find where fragments are lost: filters often drop those without a UDP header",
        ],
    },
    Rule {
        id: "checksum-errors",
        severity: Severity::Loss,
        look: Look::Map(checksums),
        cause: "something on the path, or the NIC, corrupts datagrams, or a sender writes wrong checksums",
        fix: &[
            "find what corrupts them; `ethtool -K IFACE rx off` shows whether the NIC's checksum offload does",
        ],
    },
    Rule {
        id: "neighbour-table-full",
        severity: Severity::Loss,
        look: Look::Map(neighbours),
        cause: "more hosts of directly connected networks are addressed than the table may hold; packets to the others are \
                dropped",
        fix: &["send through a router, or make the directly connected network smaller"],
    },
    Rule {
        id: "fragments",
        severity: Severity::Limit,
        look: Look::Map(fragments),
        cause: "a fragmented datagram costs a packet for each fragment, passes no RSS by ports, and is lost with any of them",
        fix: &[
            "send datagrams that fit the path's MTU (DNS: EDNS size 1232), or use a larger MTU on the whole path",
        ],
    },
];

/// Part of the packets received that is fragments from which on they matter. Lower: every resolver has them.
const FRAGMENTS: f64 = 0.01;
/// Fewest fragments of an interval that are worth a word.
const FEWEST: u64 = 10;
/// The counters of both families that are there.
fn families(on: Observed<'_>) -> impl Iterator<Item = (&'static str, IpCounters)> {
    let ip = &on.map.ip;
    [("IPv4", ip.v4), ("IPv6", ip.v6)].into_iter().filter_map(|(family, ip)| Some((family, ip?)))
}

fn fragments_lost(on: Observed<'_>) -> Vec<Found> {
    let lossy = families(on).filter(|(_, ip)| on.matters(ip.not_reassembled, ip.received));
    lossy
        .map(|(family, ip)| {
            let evidence = format!(
                "{} reassemblies of {family} datagrams failed {}, {} succeeded",
                number(ip.not_reassembled),
                on.when(),
                number(ip.reassembled)
            );
            Found::new(evidence).at(Location::Machine).rate(on.rate(ip.not_reassembled))
        })
        .collect()
}

fn fragments(on: Observed<'_>) -> Vec<Found> {
    let cut = |ip: &IpCounters| ip.fragments_received.saturating_add(ip.fragments_sent);
    let many = families(on).filter(|(_, ip)| {
        cut(ip) >= FEWEST
            && cut(ip) as f64 >= FRAGMENTS * ip.received.saturating_add(ip.fragments_sent) as f64
    });
    many.map(|(family, ip)| {
        let share = cut(&ip) as f64 / ip.received.saturating_add(ip.fragments_sent).max(1) as f64;
        let evidence = format!(
            "{} fragments of {family} were received and {} sent {}, {} of all packets",
            number(ip.fragments_received),
            number(ip.fragments_sent),
            on.when(),
            percent(share)
        );
        Found::new(evidence).at(Location::Machine).share(share).rate(on.rate(cut(&ip)))
    })
    .collect()
}

fn checksums(on: Observed<'_>) -> Vec<Found> {
    let families = [("IPv4", on.map.udp.v4), ("IPv6", on.map.udp.v6)];
    let wrong = families.into_iter().filter_map(|(family, udp)| {
        let udp = udp?;
        let wrong = udp.in_csum_errors.filter(|wrong| on.matters(*wrong, udp.in_datagrams))?;
        let evidence = format!(
            "{} datagrams over {family} had a wrong checksum {}, {} were delivered",
            number(wrong),
            on.when(),
            number(udp.in_datagrams)
        );
        Some(Found::new(evidence).at(Location::Udp).rate(on.rate(wrong)))
    });
    wrong.collect()
}

fn neighbours(on: Observed<'_>) -> Vec<Found> {
    let tables = [("ipv4", on.map.neighbours.v4), ("ipv6", on.map.neighbours.v6)];
    let full = tables
        .into_iter()
        .filter_map(|(family, table)| Some((family, table.filter(|t: &NeighbourCounters| t.full > 0)?)));
    full.filter(|_| on.map.seconds.is_some())
        .map(|(family, table)| {
            let name = format!("net.{family}.neigh.default.gc_thresh3");
            let limit = on.snapshot.sysctls.iter().find(|sysctl| sysctl.name == name);
            let limit = limit.and_then(|sysctl| sysctl.value.trim().parse::<u64>().ok());
            let larger = limit.map(|limit| format!("sysctl:{name}={}", limit.saturating_mul(4)));
            let evidence = format!(
                "the neighbour table was full {} times {}, with {} entries ({name})",
                number(table.full),
                on.when(),
                number(table.entries)
            );
            let found = Found::new(evidence).at(Location::Machine).rate(on.rate(table.full));
            found.changes("enlarge the table", larger.into_iter().collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::sysctls::{Sysctl, SysctlScope};
    use udpath_host::udp::UdpCounters;

    use super::*;
    use crate::rules::testing::{Host, only, settings};

    fn host() -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host
    }

    #[test]
    fn fragments_and_those_that_are_lost() {
        let mut host = host();
        let healthy =
            IpCounters { received: 10_000, fragments_received: 20, reassembled: 10, ..IpCounters::default() };
        host.map.ip.v4 = Some(healthy);
        assert_eq!((host.found("fragments"), host.found("fragments-lost")), (vec![], vec![]));
        host.map.ip.v4 =
            Some(IpCounters { fragments_received: 2000, reassembled: 990, not_reassembled: 10, ..healthy });
        let finding = only(&host, "fragments");
        assert_eq!(
            finding.evidence,
            "2,000 fragments of IPv4 were received and 0 sent in 10.0 s, 20 % of all packets"
        );
        assert_eq!(finding.rate, Some(200.0));
        let finding = only(&host, "fragments-lost");
        assert_eq!(finding.evidence, "10 reassemblies of IPv4 datagrams failed in 10.0 s, 990 succeeded");
    }

    #[test]
    fn wrong_checksums() {
        let mut host = host();
        let udp = UdpCounters { in_datagrams: 1000, in_csum_errors: Some(0), ..UdpCounters::default() };
        host.map.udp.v6 = Some(udp);
        assert_eq!(host.found("checksum-errors"), []);
        host.map.udp.v6 = Some(UdpCounters { in_csum_errors: Some(50), ..udp });
        let finding = only(&host, "checksum-errors");
        assert_eq!(
            finding.evidence,
            "50 datagrams over IPv6 had a wrong checksum in 10.0 s, 1,000 were delivered"
        );
        assert_eq!((finding.rate, host.found("udp-errors")), (Some(5.0), vec![]));
    }

    #[test]
    fn a_neighbour_table_that_is_full() {
        let mut host = host();
        host.map.neighbours.v4 = Some(NeighbourCounters { entries: 900, full: 0, unresolved: 3 });
        assert_eq!(host.found("neighbour-table-full"), []);
        host.map.neighbours.v4 = Some(NeighbourCounters { entries: 1024, full: 70, unresolved: 3 });
        let (name, value) = ("net.ipv4.neigh.default.gc_thresh3".to_owned(), "1024".to_owned());
        host.snapshot.sysctls = vec![Sysctl { name, value, scope: SysctlScope::Host }];
        let finding = only(&host, "neighbour-table-full");
        assert_eq!(
            finding.evidence,
            "the neighbour table was full 70 times in 10.0 s, with 1,024 entries (net.ipv4.neigh.default.gc_thresh3)"
        );
        assert_eq!(settings(&finding), ["sysctl:net.ipv4.neigh.default.gc_thresh3=4096"]);
    }
}
