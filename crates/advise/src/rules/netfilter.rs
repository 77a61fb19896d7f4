//! Packet filters and connection tracking.

use udpath_host::netfilter::Hook;
use udpath_profile::Profile;
use udpath_profile::classes::Class;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, number};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "conntrack-full",
        severity: Severity::Loss,
        look: Look::Map(full),
        cause: "when the table is full, packets of new flows are dropped",
        fix: &[NOTRACK],
    },
    Rule {
        id: "conntrack-drops",
        severity: Severity::Loss,
        look: Look::Map(untracked),
        cause: "no connection could be made for them: the table was full, or two packets of a new flow raced",
        fix: &[NOTRACK],
    },
    Rule {
        id: "bridge-filter",
        severity: Severity::Note,
        look: Look::Map(bridged),
        cause: "each bridged packet passes the rules of iptables a second time",
        fix: &[
            "sysctl -w net.bridge.bridge-nf-call-iptables=0, unless bridged traffic is to be filtered (security; Kubernetes \
             needs it)",
        ],
    },
    Rule {
        id: "filtered",
        severity: Severity::Note,
        look: Look::Map(filtered),
        cause: "every packet passes them",
        fix: &["remove the rules that nothing needs, and accept the service's port first"],
    },
    Rule {
        id: "netfilter",
        severity: Severity::Limit,
        look: Look::Profile(netfilter),
        cause: "every packet passes the rules, and tracking looks up its connection",
        fix: &[
            "exempt the service's port from tracking (notrack at priority raw, both directions), and accept it first",
        ],
    },
];

const NOTRACK: &str = "exempt the service's port from tracking (notrack at priority raw, both directions)";
/// Share of the table from which on it is nearly full.
const NEARLY: f64 = 0.9;
/// Packet filters: a single rule costs 1 to 2 %, connection tracking 5 to 20 %.
const NETFILTER: f64 = 0.05;

fn full(on: Observed<'_>) -> Vec<Found> {
    let Some((count, max)) = on.snapshot.netfilter.conntrack.as_ref().and_then(|c| Some((c.count, c.max?)))
    else {
        return Vec::new();
    };
    if count as f64 <= NEARLY * max as f64 {
        return Vec::new();
    }
    let evidence = format!(
        "{} of {} connections are tracked (net.netfilter.nf_conntrack_max)",
        number(count),
        number(max)
    );
    let larger = format!("sysctl:net.netfilter.nf_conntrack_max={}", max.saturating_mul(2));
    vec![
        Found::new(evidence)
            .at(Location::Machine)
            .share(count as f64 / max.max(1) as f64)
            .changes("double the limit", vec![larger]),
    ]
}

fn untracked(on: Observed<'_>) -> Vec<Found> {
    let Some(tracked) = on.map.conntrack.filter(|_| on.map.seconds.is_some()) else { return Vec::new() };
    let lost = tracked.drops.saturating_add(tracked.insert_failed);
    let evidence = format!(
        "connection tracking dropped {} packets {}: {} without room, {} that lost a race",
        number(lost),
        on.when(),
        number(tracked.drops),
        number(tracked.insert_failed)
    );
    (lost > 0).then(|| Found::new(evidence).at(Location::Machine).rate(on.rate(lost))).into_iter().collect()
}

fn bridged(on: Observed<'_>) -> Vec<Found> {
    let calls = on
        .snapshot
        .sysctls
        .iter()
        .any(|sysctl| sysctl.name == "net.bridge.bridge-nf-call-iptables" && sysctl.value.trim() == "1");
    let bridge = on.map.interfaces.iter().find(|interface| interface.kind == "bridge");
    let bridge = bridge.filter(|_| calls).map(|bridge| {
        let evidence = format!(
            "packets that {} bridges pass iptables (net.bridge.bridge-nf-call-iptables=1)",
            bridge.name
        );
        Found::new(evidence).at(Location::Interface(bridge.name.clone()))
    });
    bridge.into_iter().collect()
}

fn filtered(on: Observed<'_>) -> Vec<Found> {
    let Some(hooks) = &on.snapshot.netfilter.hooks else { return Vec::new() };
    let received = hooks.value.iter().filter(|hook| hook.sees_received());
    let named: Vec<String> = received.map(function).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let functions = counted(named.len(), "function");
    let evidence = format!("packet filters have {functions} on the way to sockets: {}", named.join("; "));
    vec![Found::new(evidence).at(Location::Machine)]
}

/// `ip prerouting -200 ipv4_conntrack_in (nf_conntrack)`.
fn function(hook: &Hook) -> String {
    let device = hook.device.as_ref().map_or_else(String::new, |device| format!(" of {device}"));
    let what = match (&hook.chain, hook.program, &hook.function) {
        (Some(chain), ..) => format!("chain {} of table {} {}", chain.name, chain.family, chain.table),
        (None, Some(program), _) => format!("BPF program {program}"),
        (None, None, Some(function)) => function.clone(),
        (None, None, None) => "a function without a name".into(),
    };
    let module = hook.module.as_ref().map_or_else(String::new, |module| format!(" ({module})"));
    format!("{} {}{device} {} {what}{module}", hook.family, hook.hook, hook.priority)
}

fn netfilter(profile: &Profile) -> Vec<Found> {
    let share = profile.share(Class::Netfilter);
    let tracked = profile.facts.tracked.filter(|count| *count > 0);
    let tracked = tracked.map_or_else(String::new, |count| format!(" ({count} connections tracked)"));
    let does = format!("goes to packet filters and connection tracking{tracked}");
    (share >= NETFILTER).then(|| Found::cpu_time(share, &does).at(Location::Machine)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::map::ConntrackMap;
    use udpath_host::netfilter::{Conntrack, HookChain};
    use udpath_host::sysctls::{Sysctl, SysctlScope};
    use udpath_profile::context::Context;

    use super::*;
    use crate::rules::testing::{Host, fact, fires_above, found_in, of, only, settings};

    #[test]
    fn a_table_that_is_nearly_full() {
        let mut host = Host::with_queues(1);
        let tracked = |count| Some(Conntrack { count, max: Some(1000), ..Conntrack::default() });
        host.snapshot.netfilter.conntrack = tracked(950);
        let finding = only(&host, "conntrack-full");
        assert_eq!(finding.evidence, "950 of 1,000 connections are tracked (net.netfilter.nf_conntrack_max)");
        assert_eq!(settings(&finding), ["sysctl:net.netfilter.nf_conntrack_max=2000"]);
        host.snapshot.netfilter.conntrack = tracked(900);
        assert_eq!(host.found("conntrack-full"), []);
    }

    #[test]
    fn packets_without_a_connection() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.map.conntrack = Some(ConntrackMap::default());
        assert_eq!(host.found("conntrack-drops"), []);
        host.map.conntrack = Some(ConntrackMap { drops: 30, insert_failed: 5, ..ConntrackMap::default() });
        let finding = only(&host, "conntrack-drops");
        assert_eq!(
            finding.evidence,
            "connection tracking dropped 35 packets in 10.0 s: 30 without room, 5 that lost a race"
        );
    }

    #[test]
    fn a_bridge_that_filters() {
        let mut host = Host::with_queues(1);
        let name = "net.bridge.bridge-nf-call-iptables".to_owned();
        host.snapshot.sysctls = vec![Sysctl { name, value: "1".into(), scope: SysctlScope::Namespace }];
        assert_eq!(host.found("bridge-filter"), [], "no bridge");
        host.map.interfaces[0].kind = "bridge".into();
        only(&host, "bridge-filter");
        host.snapshot.sysctls.clear();
        assert_eq!(host.found("bridge-filter"), []);
    }

    #[test]
    fn functions_on_the_way_in_are_named() {
        let mut host = Host::with_queues(1);
        assert_eq!(host.found("filtered"), []);
        let hook = |hook: &str, priority| Hook {
            family: "ip".into(),
            hook: hook.into(),
            device: None,
            priority,
            function: Some("f".into()),
            module: None,
            chain: None,
            program: None,
        };
        let chain = HookChain { family: "inet".into(), table: "t".into(), name: "c".into() };
        let hooks = vec![
            Hook { module: Some("nf_conntrack".into()), ..hook("prerouting", -200) },
            Hook { chain: Some(chain), ..hook("input", 0) },
            Hook {
                program: Some(7),
                device: Some("eth0".into()),
                family: "netdev".into(),
                ..hook("ingress", 5)
            },
            hook("output", 0),
        ];
        host.snapshot.netfilter.hooks = Some(fact(hooks));
        assert_eq!(
            only(&host, "filtered").evidence,
            "packet filters have 3 functions on the way to sockets: ip prerouting -200 f (nf_conntrack); \
             ip input 0 chain c of table inet t; netdev ingress of eth0 5 BPF program 7"
        );
    }

    #[test]
    fn filters_that_take_time() {
        let line = (Context::Softirq, Class::Netfilter, None, None, "nft_do_chain", 60);
        let finding = fires_above("netfilter", line, 40);
        assert_eq!(finding.evidence, "5.7 % of CPU time goes to packet filters and connection tracking");
    }

    #[test]
    fn tracked_connections_are_counted() {
        let mut profile = of(&[(Context::Softirq, Class::Netfilter, None, None, "nf_conntrack_in", 900)]);
        profile.facts.tracked = Some(12);
        let [finding] = &found_in(&profile, "netfilter")[..] else { panic!() };
        assert!(finding.evidence.ends_with("(12 connections tracked)"), "{}", finding.evidence);
    }
}
