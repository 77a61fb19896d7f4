//! Other programs and files that change the same settings.

use udpath_host::actors::{Actor, Touch};

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "conflict",
        severity: Severity::Note,
        look: Look::Map(conflicts),
        cause: "it may revert your settings",
        fix: &["stop it, or exclude your settings from it"],
    },
    Rule {
        id: "set-by-file",
        severity: Severity::Note,
        look: Look::Map(files),
        cause: "the file overrides settings made by other means",
        fix: &["set the values you want in that file"],
    },
];

fn conflicts(on: Observed<'_>) -> Vec<Found> {
    let steering = [Touch::IrqAffinity, Touch::Channels, Touch::Rps, Touch::Xps, Touch::ThreadAffinity];
    let touching = on.snapshot.actors.list.iter().filter_map(|actor| {
        let pid = actor.pid.filter(|_| steering.iter().any(|touch| actor.touches.contains(touch)))?;
        let evidence = format!("{} (pid {pid}) changes steering settings too: {}", actor.name, actor.when);
        Some(
            Found::new(evidence)
                .at(Location::Process(pid))
                .changes("ban the queues' IRQs from it", ban(on, actor)),
        )
    });
    touching.collect()
}

/// irqbalance leaves IRQs alone if it is asked to.
fn ban(on: Observed<'_>, actor: &Actor) -> Vec<String> {
    let mut irqs: Vec<u32> = on
        .map
        .interfaces
        .iter()
        .flat_map(|interface| &interface.queues)
        .filter_map(|queue| queue.irq)
        .collect();
    irqs.sort_unstable();
    irqs.dedup();
    let irqs: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let bans = actor.name == "irqbalance" && !irqs.is_empty();
    bans.then(|| format!("irqbalance:ban={}", irqs.join(","))).into_iter().collect()
}

fn files(on: Observed<'_>) -> Vec<Found> {
    let actors = &on.snapshot.actors;
    let acts = |by: &str| actors.list.iter().find(|actor| actor.name == by);
    let files = actors.network_files.iter();
    files
        .filter_map(|file| {
            let when = &acts(&file.by)?.when;
            // Names may be patterns, or there is none: then it may be any interface.
            let named: Vec<&str> = file
                .matches
                .iter()
                .filter(|(key, _)| matches!(key.as_str(), "connection.interface-name" | "Match.Name"))
                .flat_map(|(_, value)| value.split_ascii_whitespace())
                .collect();
            let shown = on.map.interfaces.iter().filter(|interface| named.contains(&interface.name.as_str()));
            let mut locations: Vec<Location> =
                shown.map(|interface| Location::Interface(interface.name.clone())).collect();
            if locations.is_empty() {
                locations.push(Location::Machine);
            }
            let of = if named.is_empty() { "the interfaces it matches".into() } else { named.join(", ") };
            let sets: Vec<String> = file.sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let evidence = format!("{} sets {} of {of} from {}: {when}", file.by, sets.join(", "), file.path);
            Some(Found::new(evidence).at_all(locations))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::actors::NetworkFile;

    use super::*;
    use crate::rules::testing::{Host, only, settings};

    fn actor(name: &str, pid: Option<u32>, touches: &[Touch]) -> Actor {
        Actor {
            name: name.into(),
            pid,
            seen_by: String::new(),
            files: Vec::new(),
            touches: touches.to_vec(),
            when: "every 10 s".into(),
        }
    }

    #[test]
    fn a_daemon_that_moves_interrupts() {
        let mut host = Host::with_queues(2);
        host.snapshot.actors.list = vec![actor("irqbalance", Some(5), &[Touch::IrqAffinity])];
        let finding = only(&host, "conflict");
        assert_eq!(finding.evidence, "irqbalance (pid 5) changes steering settings too: every 10 s");
        assert_eq!(settings(&finding), ["irqbalance:ban=100,101"]);
        for harmless in [
            actor("irqbalance", None, &[Touch::IrqAffinity]),
            actor("firewalld", Some(5), &[Touch::Netfilter]),
        ] {
            host.snapshot.actors.list = vec![harmless];
            assert_eq!(host.found("conflict"), []);
        }
    }

    #[test]
    fn a_file_counts_while_its_daemon_runs() {
        let mut host = Host::with_queues(1);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        host.snapshot.actors.network_files.push(NetworkFile {
            by: "NetworkManager".into(),
            path: "/etc/a".into(),
            matches: vec![pair("connection.interface-name", "eth0")],
            sets: vec![pair("ethtool.feature-gro", "false"), pair("ethernet.mtu", "9000")],
        });
        assert_eq!(host.found("set-by-file"), []);
        host.snapshot.actors.list.push(actor("NetworkManager", Some(5), &[]));
        let finding = only(&host, "set-by-file");
        assert_eq!(
            finding.evidence,
            "NetworkManager sets ethtool.feature-gro=false, ethernet.mtu=9000 of eth0 from /etc/a: every 10 s"
        );
        assert_eq!(finding.locations, [Location::Interface("eth0".into())]);
    }
}
