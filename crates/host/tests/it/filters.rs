//! Rules created by nft, iptables (both kinds) and ip6tables, evaluated for datagrams that are taken off a device's
//! queue before reaching them. Needs root.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;

use udpath_host::filters::{Bypassed, Filters, Taken, bypassed};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine};

fn lab(name: &str) -> Lab {
    let link = LinkSpec::with_queues(1);
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &link).up().unwrap()
}

/// Runs a program with this standard input.
fn run(machine: &Machine, program: &str, arguments: &[&str], input: &str) {
    let mut command = machine.command(program);
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}; scripts/setup.sh installs it"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

fn judged(lab: &Lab, addresses: &[&str]) -> Filters {
    let taken = |address: &&str| Taken { interface: "eth0".into(), address: address.parse().unwrap() };
    let taken: Vec<_> = addresses.iter().map(taken).collect();
    let filters = lab.machine("server").unwrap().run(|| bypassed(&taken)).unwrap();
    assert!(filters.unread.is_empty(), "{:?}", filters.unread);
    filters
}

/// `chain: rule`, with a question mark after rules that may apply.
fn lines(filters: &Filters) -> Vec<String> {
    let line = |found: &Bypassed| {
        let sure = if found.certain { "" } else { " ?" };
        format!("{} {}: {}{sure}", found.filter, found.chain, found.rule)
    };
    filters.bypassed.iter().map(line).collect()
}

const ADDRESS: &str = "10.0.0.2:7000";

/// With one ruleset of nftables.
fn with_nft(lab: &Lab, ruleset: &str) -> Vec<String> {
    let server = lab.machine("server").unwrap();
    run(server, "nft", &["-f", "-"], &format!("flush ruleset\n{ruleset}"));
    lines(&judged(lab, &[ADDRESS]))
}

/// One base chain `input`, with these rules.
fn input(policy: &str, rules: &str) -> String {
    format!(
        "table inet f {{ chain input {{ type filter hook input priority 0; policy {policy};\n{rules}\n}}\n}}"
    )
}

#[test]
fn rules_of_nftables_are_judged() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = lab("filters-nft");
    let told = |policy: &str, rules: &str| with_nft(&lab, &input(policy, rules));
    let none: [&str; 0] = [];
    assert_eq!(with_nft(&lab, ""), none);
    // Rules that accept in any case, and rules for other traffic.
    assert_eq!(told("accept", "tcp dport 7000 drop; udp dport 53 drop; iif lo drop"), none);
    assert_eq!(told("drop", "ct state established accept; udp dport 7000 counter accept"), none);
    assert_eq!(told("accept", "iifname \"wlan*\" drop; ip6 nexthdr udp drop; ip daddr 10.0.0.3 drop"), none);
    assert_eq!(told("accept", "meta pkttype broadcast drop; ip frag-off & 0x1fff != 0 drop"), none);
    assert_eq!(
        told("accept", "udp dport { 53, 123 } drop; udp dport 1-6999 drop; udp dport != 7000 drop"),
        none
    );
    // Rules that would have applied to every datagram.
    assert_eq!(told("drop", ""), ["nftables inet f input: policy drop"]);
    for rule in ["udp dport 7000 drop", "udp dport 7000 reject", "udp dport 7000 counter log drop"] {
        let found = told("accept", rule);
        let words = rule.replace("counter ", "");
        assert_eq!(found, [format!("nftables inet f input: {words}")]);
    }
    for rule in [
        "udp dport { 53, 7000 } drop",
        "udp dport { 53, 6000-8000 } drop",
        "udp dport 6000-8000 drop",
        "udp dport != 53 drop",
        "iifname \"eth*\" udp dport 7000 drop",
        "iifname { \"eth0\", \"lo\" } drop",
        "iif \"eth0\" drop",
        "ip daddr 10.0.0.0/24 drop",
        "ip daddr 10.0.0.0/23 drop",
        "ip daddr . udp dport { 10.0.0.2 . 7000 } drop",
        "udp dport vmap { 53 : accept, 7000 : drop }",
        "meta l4proto udp drop",
    ] {
        let found = told("accept", rule);
        assert!(found.len() == 1 && !found[0].ends_with('?'), "{rule}: {found:?}");
    }
    // Rules that depend on unknown properties.
    for rule in [
        "ip saddr 192.0.2.0/24 drop",
        "ip saddr { 192.0.2.1, 192.0.2.2 } drop",
        "udp sport 53 drop",
        "udp dport 7000 limit rate over 100/second drop",
        "ct state invalid drop",
        "ct state vmap { established : accept, invalid : drop }",
        "meta mark 7 drop",
        "fib saddr . iif oif missing drop",
        "ip daddr . ip saddr { 10.0.0.2 . 192.0.2.9 } drop",
        "ip saddr . udp dport { 192.0.2.0/24 . 7000-7001 } drop",
    ] {
        let found = told("accept", rule);
        assert!(found.iter().any(|line| line.ends_with("drop ?")), "{rule}: {found:?}");
    }
    let found = told("drop", "ip saddr 192.0.2.0/24 udp dport 7000 accept\nct state new,established accept");
    assert_eq!(
        found,
        [
            "nftables inet f input: ip saddr 192.0.2.0/24 udp dport 7000 accept ?",
            "nftables inet f input: ct state established,new accept ?",
            "nftables inet f input: policy drop ?"
        ]
    );
    lab.down().unwrap();
}

#[test]
fn every_hook_that_a_datagram_passes_counts_and_no_other() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = lab("filters-hooks");
    let ruleset = r#"
        table netdev d {
            chain in { type filter hook ingress device "eth0" priority 0; udp dport 7000 drop; }
            chain other { type filter hook ingress device "lo" priority 0; drop; }
        }
        table inet i {
            chain in { type filter hook ingress device "eth0" priority 5; udp dport 7000 drop; }
            chain out { type filter hook output priority 0; policy drop; }
            chain sub { udp dport 7000 drop; }
        }
        table ip v4 {
            chain deeper { ip saddr 192.0.2.1 return; udp length 9 drop; }
            chain mine { udp dport 7000 jump deeper; counter drop; }
            chain pre { type filter hook prerouting priority raw; udp dport 7000 notrack; }
            chain nat { type nat hook prerouting priority dstnat; udp dport 7000 dnat to 10.0.0.9:1; }
            chain in { type filter hook input priority 0; iifname "eth0" goto mine; udp dport 7000 accept; }
        }
        table ip6 v6 {
            chain in { type filter hook input priority 0; policy drop; }
        }
        table ip asleep {
            flags dormant;
            chain in { type filter hook input priority 0; policy drop; }
        }
    "#;
    assert_eq!(
        with_nft(&lab, ruleset),
        [
            "nftables netdev d in: udp dport 7000 drop",
            "nftables inet i in: udp dport 7000 drop",
            "nftables ip v4 pre: udp dport 7000 notrack",
            "nftables ip v4 nat: udp dport 7000 nat",
            "nftables ip v4 deeper: udp length 9 drop ?",
            "nftables ip v4 mine: drop ?",
        ]
    );
    let six = judged(&lab, &["[fd00::2]:7000"]);
    assert!(lines(&six).contains(&"nftables ip6 v6 in: policy drop".into()), "{six:?}");
    // One finding for several addresses, with nft's handle of the rule.
    let both = judged(&lab, &[ADDRESS, "[fd00::2]:7000", "0.0.0.0:7000"]);
    let all: Vec<SocketAddr> =
        [ADDRESS, "[fd00::2]:7000", "0.0.0.0:7000"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(both.bypassed[0].addresses, all);
    let listed =
        lab.machine("server").unwrap().command("nft").args(["-a", "list", "ruleset"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let handle = both.bypassed[0].handle.unwrap();
    assert!(listed.contains(&format!("udp dport 7000 drop # handle {handle}\n")), "{handle}: {listed}");
    lab.down().unwrap();
}

/// The same rules with both kinds of iptables.
#[test]
fn rules_of_iptables_are_judged() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    for kind in ["legacy", "nft"] {
        let lab = lab(&format!("iptables-{kind}"));
        let server = lab.machine("server").unwrap();
        let tables = |command: &str, rules: &str| {
            run(server, &format!("{command}-{kind}-restore"), &[], &format!("{rules}\nCOMMIT\n"));
            lines(&judged(&lab, &[ADDRESS, "[fd00::2]:7000"]))
        };
        let filter = |policy: &str, rules: &str| {
            tables("iptables", &format!("*filter\n:INPUT {policy} [0:0]\n:MINE - [0:0]\n{rules}"))
        };
        let none: [&str; 0] = [];
        assert_eq!(filter("ACCEPT", ""), none, "{kind}");
        for rule in [
            "-p tcp --dport 7000 -j DROP",
            "-p udp --dport 53 -j DROP",
            "-p udp -m multiport --dports 53,123 -j DROP",
            "-i lo -j DROP",
            "! -i eth+ -j DROP",
            "-d 10.0.0.3 -j DROP",
            "! -p udp -j DROP",
            "-f -j DROP",
        ] {
            assert_eq!(filter("ACCEPT", &format!("-A INPUT {rule}")), none, "{kind}: {rule}");
        }
        for rule in [
            "-p udp --dport 7000 -j DROP",
            "-p udp -m udp ! --dport 1:6999 -j REJECT",
            "-p udp -m multiport --dports 53,6000:8000 -j DROP",
            "-i eth+ -d 10.0.0.0/8 -m comment --comment why -j DROP",
            "-p udp -j MINE\n-A MINE -p udp --dport 7000 -j DROP",
        ] {
            let found = filter("ACCEPT", &format!("-A INPUT {rule}"));
            assert!(found.len() == 1 && !found[0].ends_with('?'), "{kind}: {rule}: {found:?}");
        }
        for rule in [
            "-s 192.0.2.0/24 -j DROP",
            "-p udp --sport 53 -j DROP",
            "-m conntrack --ctstate INVALID -j DROP",
            "-p udp --dport 7000 -m limit --limit 5/sec -j DROP",
        ] {
            let found = filter("ACCEPT", &format!("-A INPUT {rule}"));
            assert!(found.len() == 1 && found[0].ends_with('?'), "{kind}: {rule}: {found:?}");
        }
        let found = filter("DROP", "-A INPUT -s 10.0.0.0/8 -p udp --dport 7000 -j ACCEPT");
        assert_eq!(found.len(), 2, "{kind}: {found:?}");
        assert!(found[1].to_lowercase().contains("policy drop"), "{kind}: {found:?}");
        assert_eq!(filter("DROP", "-A INPUT -p udp --dport 7000 -j ACCEPT"), none, "{kind}");
        let found = tables(
            "iptables",
            "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp --dport 7000 -j CT --notrack",
        );
        assert!(found.len() == 1 && found[0].contains("PREROUTING"), "{kind}: {found:?}");
        let found = tables("ip6tables", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp --dport 7000 -j DROP");
        assert_eq!(found.len(), 2, "{kind}: {found:?}");
        let found =
            tables("ip6tables", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s fd00::/8 -d fd00::2 -j DROP");
        assert!(found.len() == 2 && found[1].ends_with('?'), "{kind}: {found:?}");
        lab.down().unwrap();
    }
}

/// Reading must not make the kernel load the tables.
#[test]
fn reading_changes_nothing() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = lab("filters-idle");
    let names = || {
        ["ip", "ip6"].map(|version| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{version}_tables_names"))
                .unwrap_or_default()
        })
    };
    let server = lab.machine("server").unwrap();
    assert_eq!(judged(&lab, &[ADDRESS]), Filters::default());
    assert_eq!(server.run(names).unwrap(), [String::new(), String::new()]);
    lab.down().unwrap();
}
