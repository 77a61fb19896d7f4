//! How the device spreads packets over its queues.

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, percent};
use crate::rules::queues::{located, names, reachable};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "rss-table-short",
        severity: Severity::Limit,
        look: Look::Map(table),
        cause: "",
        fix: &["if the device refuses, reduce its channels to as many as the table can address"],
    },
    Rule {
        id: "rss-without-ports",
        severity: Severity::Limit,
        look: Look::Map(fields),
        cause: "all flows between two hosts share a queue",
        fix: &[],
    },
    Rule {
        id: "one-hot-queue",
        severity: Severity::Limit,
        look: Look::Map(hot),
        cause: "one flow, or a few, have most packets: a hash keeps all packets of a flow on one queue",
        fix: &[
            "let its sender use more source ports, so that the hash has more to spread",
            "give it a queue of its own, away from the others (`ethtool -N IFACE flow-type udp4 src-ip A dst-port P action Q`), or \
             limit it under overload (`sysctl:net.core.flow_limit_cpu_bitmap`)",
            "one flow reaches one socket of a group, too: spread its datagrams over readers in the server",
        ],
    },
];

/// Packets of one queue, as a multiple of an even share, from which on it is hot, and their least share. Lower: a dozen
/// flows may hash so. Higher: two heavy flows on two queues pass.
const HOT: (f64, f64) = (2.5, 0.5);
/// Packets per second that are worth spreading: a tenth of a CPU.
const BUSY: f64 = 50_000.0;

fn table(on: Observed<'_>) -> Vec<Found> {
    let short = on.map.interfaces.iter().filter_map(|interface| {
        let rss = interface.rss.as_ref()?;
        let queues = reachable(interface);
        let idle: Vec<_> = queues.iter().copied().filter(|queue| queue.share == Some(0.0)).collect();
        let entries = counted(rss.entries, "entry").replace("entrys", "entries");
        let evidence = format!(
            "{}: the RSS table ({entries}) uses {} of {} queues",
            interface.name,
            rss.queues,
            queues.len()
        );
        (!idle.is_empty()).then(|| {
            Found::new(evidence)
                .at_all(located(interface, idle.iter().copied()))
                .cause(format!("{} receive nothing", names(idle.iter().copied())))
                .changes(
                    "spread the table over all queues",
                    vec![format!("{}:rss/table=equal:{}", interface.name, queues.len())],
                )
        })
    });
    short.collect()
}

fn fields(on: Observed<'_>) -> Vec<Found> {
    let without = on.map.interfaces.iter().filter_map(|interface| {
        let rss = interface.rss.as_ref().filter(|rss| rss.queues > 1)?;
        let families = [("IPv4", "udp4", &rss.udp4), ("IPv6", "udp6", &rss.udp6)];
        let without: Vec<_> = families
            .iter()
            .filter(|(.., fields)| {
                fields.as_deref().is_some_and(|fields| !(fields.contains('f') && fields.contains('n')))
            })
            .collect();
        let named: Vec<&str> = without.iter().map(|(family, ..)| *family).collect();
        let evidence =
            format!("{}: the hash of UDP over {} leaves out ports", interface.name, named.join(" and "));
        let settings =
            without.iter().map(|(_, kind, _)| format!("{}:hash/{kind}=sdfn", interface.name)).collect();
        (!named.is_empty()).then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .changes("hash ports too", settings)
        })
    });
    without.collect()
}

fn hot(on: Observed<'_>) -> Vec<Found> {
    let hot = on.map.interfaces.iter().filter_map(|interface| {
        let rss = interface.rss.as_ref()?;
        let queues = reachable(interface);
        let by_ports = [&rss.udp4, &rss.udp6].into_iter().flatten().all(|fields| fields.contains('n'));
        let packets: u64 = queues.iter().filter_map(|queue| queue.packets).sum();
        let hottest = queues.iter().copied().max_by_key(|queue| queue.packets)?;
        let share = hottest.packets? as f64 / packets.max(1) as f64;
        let even = 1.0 / queues.len() as f64;
        let is_hot = share >= HOT.1 && share >= HOT.0 * even && on.rate(packets)? >= BUSY;
        let evidence = format!(
            "{}: {} of the packets came on {} of {}, although ports are hashed",
            interface.name,
            percent(share),
            names([hottest]),
            counted(queues.len(), "queue")
        );
        // Without ports, or with a short table, those come first.
        (is_hot && by_ports && rss.queues == queues.len()).then(|| {
            Found::new(evidence).at_all(located(interface, [hottest])).share(share).rate(on.rate(packets))
        })
    });
    hot.collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::map::RssSummary;

    use super::*;
    use crate::rules::testing::{Host, only, settings};

    fn rss(queues: usize, udp4: &str) -> Option<RssSummary> {
        Some(RssSummary { entries: 128, queues, udp4: Some(udp4.into()), udp6: Some("sdfn".into()) })
    }

    #[test]
    fn a_table_that_leaves_queues_out() {
        let mut host = Host::with_queues(4);
        host.map.interfaces[0].rss = rss(2, "sdfn");
        for queue in &mut host.map.interfaces[0].queues {
            queue.share = Some(if queue.queue < 2 { 0.5 } else { 0.0 });
        }
        let finding = only(&host, "rss-table-short");
        assert_eq!(finding.evidence, "eth0: the RSS table (128 entries) uses 2 of 4 queues");
        assert_eq!(finding.cause, "rx-2-3 receive nothing");
        assert_eq!(finding.locations, [2, 3].map(|queue| Location::Queue("eth0".into(), queue)));
        assert_eq!(settings(&finding), ["eth0:rss/table=equal:4"]);
        host.map.interfaces[0].queues.iter_mut().for_each(|queue| queue.share = Some(0.25));
        assert_eq!(host.found("rss-table-short"), []);
    }

    #[test]
    fn a_hash_without_ports() {
        let mut host = Host::with_queues(4);
        host.map.interfaces[0].rss = rss(4, "sd");
        let finding = only(&host, "rss-without-ports");
        assert_eq!(finding.evidence, "eth0: the hash of UDP over IPv4 leaves out ports");
        assert_eq!(settings(&finding), ["eth0:hash/udp4=sdfn"]);
        host.map.interfaces[0].rss = rss(4, "sdfn");
        assert_eq!(host.found("rss-without-ports"), []);
    }

    #[test]
    fn most_packets_on_one_queue() {
        let mut host = Host::with_queues(8);
        host.map.seconds = Some(2.0);
        let spread = |host: &mut Host, hottest: u64| {
            host.map.interfaces[0].rss = rss(8, "sdfn");
            for queue in &mut host.map.interfaces[0].queues {
                queue.packets = Some(if queue.queue == 3 { hottest } else { 10_000 });
            }
        };
        spread(&mut host, 180_000);
        let finding = only(&host, "one-hot-queue");
        assert_eq!(
            finding.evidence,
            "eth0: 72 % of the packets came on rx-3 of 8 queues, although ports are hashed"
        );
        assert_eq!(finding.locations, [Location::Queue("eth0".into(), 3)]);
        // A dozen flows; too few packets; another cause.
        spread(&mut host, 50_000);
        assert_eq!(host.found("one-hot-queue"), []);
        spread(&mut host, 180_000);
        host.map.seconds = Some(60.0);
        assert_eq!(host.found("one-hot-queue"), []);
        host.map.seconds = Some(2.0);
        host.map.interfaces[0].rss = rss(8, "sd");
        assert_eq!(host.found("one-hot-queue"), []);
    }
}
