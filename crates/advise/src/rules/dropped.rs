//! Datagrams that the kernel drops before they reach a socket, by the reasons that it gives for each (`skb:kfree_skb`).

use udpath_profile::Profile;
use udpath_profile::trace::drops::{Drop, Way};

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Rule, number, percent};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "dropped-before-socket",
    severity: Severity::Loss,
    look: Look::Profile(dropped),
    cause: "the kernel gives this reason for each of them",
    fix: &["`udpath profile --trace drops` shows the ports and the functions"],
}];

/// Part of the datagrams that came from which on it matters. Lower: every network has stray packets.
const DROPPED: f64 = 0.01;
/// Fewest packets that are worth a word.
const FEWEST: u64 = 10;

/// Reasons that are known: what drops, why, and what to do. Names: `enum skb_drop_reason`,
/// include/net/dropreason-core.h.
const KNOWN: [(&str, &str, &str); 6] = [
    (
        "NETFILTER_DROP",
        "a rule of nftables or iptables drops them",
        "find the rule whose counter grows (`nft list ruleset`, `iptables -L -v -n`), and accept the service's port before it",
    ),
    (
        "IP_RPFILTER",
        "source validation drops them: the route back to the sender leaves through another interface, or there is none",
        "add the missing route; security: net.ipv4.conf.IFACE.rp_filter=2 accepts any route back",
    ),
    ("XDP", "an XDP program on the interface drops them", "look at the program: `bpftool net list` names it"),
    ("TC_INGRESS", "a filter of tc drops them", "look at the filters: `tc filter show dev IFACE ingress`"),
    ("SECURITY_HOOK", "a security module (SELinux, Smack) drops them", "look for denials in the audit log"),
    ("XFRM_POLICY", "an IPsec policy drops them", "look at the policies: `ip xfrm policy`"),
];

/// Reasons that counters of sockets, of UDP and of the backlog tell with more detail, or that are no loss.
const TOLD: [&str; 10] = [
    "SOCKET_RCVBUFF",
    "PROTO_MEM",
    "NO_SOCKET",
    "UDP_CSUM",
    "SOCKET_FILTER",
    "CPU_BACKLOG",
    "FULL_RING",
    "DUP_FRAG",
    "FRAG_REASM_TIMEOUT",
    "NOT_SPECIFIED",
];

fn dropped(profile: &Profile) -> Vec<Found> {
    let (Some(counted), Some(drops)) = (profile.datagrams, &profile.traces.drops) else { return Vec::new() };
    let port = profile.facts.focus.port;
    let ours = |drop: &&Drop| {
        let served = port.is_none() || drop.port == port;
        drop.way == Way::Received && served && !TOLD.contains(&drop.reason.as_str())
    };
    let mut by_reason: Vec<(&str, u64)> = Vec::new();
    for drop in drops.lines.iter().filter(ours) {
        match by_reason.iter_mut().find(|(reason, _)| *reason == drop.reason) {
            Some((_, packets)) => *packets += drop.packets,
            None => by_reason.push((&drop.reason, drop.packets)),
        }
    }
    let all: u64 = by_reason.iter().map(|(_, packets)| packets).sum();
    let came = counted.received.saturating_add(counted.dropped).saturating_add(all).max(1);
    let matters = |(_, packets): &(&str, u64)| *packets >= FEWEST && *packets as f64 >= DROPPED * came as f64;
    let found = by_reason.into_iter().filter(matters).map(|(reason, packets)| {
        let share = packets as f64 / came as f64;
        let evidence = format!(
            "{} of the datagrams that came ({}) were dropped before UDP: {reason}",
            percent(share),
            number(packets)
        );
        let found = Found::new(evidence).share(share).at(Location::Machine);
        match KNOWN.iter().find(|(known, ..)| *known == reason) {
            Some((_, cause, fix)) => found.cause(*cause).advice(*fix),
            None => found,
        }
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use udpath_profile::profile::Datagrams;
    use udpath_profile::trace::drops::Drops;

    use super::*;
    use crate::rules::testing::{BASE, found_in, of};

    fn profile(reason: &str, port: u16, way: Way, packets: u64) -> Profile {
        let drop = Drop { reason: reason.into(), function: None, way, port: Some(port), packets };
        let mut profile = of(&[BASE]);
        profile.datagrams = Some(Datagrams { received: 9_000, sent: 9_000, dropped: 0 });
        profile.traces.drops = Some(Drops { lines: vec![drop], ..Drops::default() });
        profile
    }

    #[test]
    fn what_a_filter_drops_is_named_with_the_filter() {
        let found = found_in(&profile("NETFILTER_DROP", 53, Way::Received, 1_000), "dropped-before-socket");
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            finding.evidence,
            "10 % of the datagrams that came (1,000) were dropped before UDP: NETFILTER_DROP"
        );
        assert!(
            finding.cause.contains("nftables") && finding.remedies[0].what().contains("nft list ruleset")
        );
    }

    #[test]
    fn a_reason_that_is_not_known_is_named_all_the_same() {
        let found = found_in(&profile("IP_NOPROTO", 53, Way::Received, 1_000), "dropped-before-socket");
        assert!(found[0].evidence.ends_with(": IP_NOPROTO"), "{found:?}");
    }

    #[test]
    fn what_others_tell_what_is_rare_and_what_is_sent_is_no_finding() {
        for (reason, way, packets) in [
            ("SOCKET_RCVBUFF", Way::Received, 1_000),
            ("NETFILTER_DROP", Way::Sent, 1_000),
            ("NETFILTER_DROP", Way::Other, 1_000),
            ("NETFILTER_DROP", Way::Received, 80),
        ] {
            assert_eq!(
                found_in(&profile(reason, 53, way, packets), "dropped-before-socket"),
                [],
                "{reason} {way:?}"
            );
        }
        let mut other = profile("NETFILTER_DROP", 54, Way::Received, 1_000);
        other.facts.focus.port = Some(53);
        assert_eq!(found_in(&other, "dropped-before-socket"), []);
        other.facts.focus.port = Some(54);
        assert_eq!(found_in(&other, "dropped-before-socket").len(), 1);
    }
}
