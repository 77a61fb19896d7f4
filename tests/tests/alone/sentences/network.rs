//! Overhead on a datagram's path: connection tracking, a packet socket, GRO.

use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Said};

use super::{PORT, alone, bind, found, in_the_kernel, in_the_kernel_to, said, said_in};

#[test]
fn tracked_connections_are_named_and_counted() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("tracked", &LinkSpec::with_queues(2)).polled().first("client");
    // A rule that matches a connection's state makes the kernel track connections in this namespace.
    let rules = "table inet filter { chain input { type filter hook input priority 0; ct state established,new accept; }; }";
    Said::from(bed.command("server", "nft").arg(rules).output().unwrap()).fine();
    let _server = bed.serve(&["echo", "--io", "percpu", "--workers", "2", "--bind", &bind()]);
    let _load = in_the_kernel(&bed);
    let (profile, text) = said(&bed, "netfilter", "connection tracking");
    // At least as many as there are flows.
    let tracked = profile["facts"]["tracked"].as_u64().unwrap();
    assert!((64..200).contains(&tracked), "{tracked}");
    assert!(
        text.ends_with(&format!(
            "goes to packet filters and connection tracking ({tracked} connections tracked)"
        )),
        "{text}"
    );
}

#[test]
fn a_tcpdump_that_was_left_running_is_named() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("tapped", &LinkSpec::with_queues(2)).polled().first("client");
    // A socket for each CPU: the lock of one that all share would cost more than the copies, and be named instead.
    let _server = bed.serve(&["echo", "--io", "percpu", "--workers", "2", "--bind", &bind()]);
    let mut tcpdump = bed.start("server", "tcpdump", &["-i", "eth0", "-w", "/dev/null", "udp"]);
    tcpdump.says("listening on eth0");
    let _load = in_the_kernel(&bed);
    let (profile, text) = said(&bed, "packet-sockets", "tcpdump");
    assert!(
        text.ends_with(&format!("copies packets to packet sockets (tcpdump, pid {})", tcpdump.pid())),
        "{text}"
    );
    let sockets = profile["facts"]["packet_sockets"].as_array().unwrap();
    assert_eq!(
        (sockets.len(), &sockets[0]["pid"], &sockets[0]["name"]),
        (1, &tcpdump.pid().into(), &"tcpdump".into())
    );
    // After it exits, it is no longer named.
    tcpdump.signal(rustix::process::Signal::TERM);
    let _ = tcpdump.finish();
    let after = bed.profile_json(&["--port", &PORT.to_string(), "-d", "500ms"]);
    assert_eq!(
        (found(&after, "packet-sockets", ""), &after["facts"]["packet_sockets"]),
        (None, &serde_json::json!([])),
        "{}",
        after["sentence"]
    );
}

#[test]
fn gro_that_merges_nothing_is_reported() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("merging", &LinkSpec::with_queues(2)).polled().first("client");
    let merge = ["-K", "eth0", "gro", "on"];
    Said::from(bed.command("server", "ethtool").args(merge).output().unwrap()).fine();
    // Replies over IPv6 have no identifiers, whose choice takes more time than GRO on some processors.
    let _server = bed.serve(&["echo", "--io", "percpu", "--workers", "2", "--bind", &format!("[::]:{PORT}")]);
    let _load = in_the_kernel_to(&bed, &bed.target_over_ipv6(PORT));
    let (_, text) = said_in(&bed, "gro", "GRO", "8s");
    assert!(text.ends_with("looks for packets to merge (GRO), and hardly any are merged"), "{text}");
}
