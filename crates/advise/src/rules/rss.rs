//! How the device spreads packets over its queues.

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted};
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
];

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
}
