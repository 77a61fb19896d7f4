//! `udpath load --lab`: its servers answer every protocol and engine, with the options that the load needs. Needs root.

use serde_json::Value;
use udpath_rig::{Run, TIMEOUT, client_and_server};

use crate::inside::udpath;

/// The result of a load in a lab of which every reply is valid.
fn valid(arguments: &[&str]) -> Value {
    let fixed = ["--lab", "-d", "400ms", "--json"];
    let ended = Run::new(&[&["load"], arguments, &fixed].concat()).within(TIMEOUT * 3).finish();
    assert_eq!(ended.code(), Some(0), "{arguments:?}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 100, "{arguments:?}: {counts}");
    for wrong in ["refused", "corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{arguments:?}: {counts}");
    }
    result
}

#[test]
fn the_kernel_engine_finds_a_server_on_kernel_sockets() {
    udpath_lab::needs_root!();
    for protocol in ["echo", "ntp", "dns"] {
        let result = valid(&[protocol, "--engine", "kernel", "--inflight", "4"]);
        assert_eq!(result["engine"], "kernel", "{protocol}");
    }
    // Each client has a link, and so an address of the server, of its own.
    let result = valid(&["echo", "--engine", "kernel", "--pattern", "incast", "--hosts", "2"]);
    assert_eq!(result["targets"].as_array().unwrap().len(), 2, "{}", result["targets"]);
}

/// The rate of a search is that of all clients together.
#[test]
fn a_search_in_a_lab_shares_each_rate_between_its_clients() {
    udpath_lab::needs_root!();
    let search = ["--find-max", "--rate", "2k", "--loss", "20%", "--p99", "5ms", "-d", "300ms", "--json"];
    let lab = ["load", "echo", "--lab", "--pattern", "incast", "--hosts", "2", "--flows", "2"];
    let ended = Run::new(&[&lab[..], &search].concat()).within(TIMEOUT * 4).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    let held = found["probes"].as_array().unwrap().iter().filter(|probe| probe["verdict"] == "held");
    let rates: Vec<[f64; 2]> =
        held.map(|probe| ["rate", "tps"].map(|name| probe[name].as_f64().unwrap())).collect();
    assert!(!rates.is_empty(), "{found}");
    // Both clients together completed what was offered, except for a fifth at most.
    assert!(rates.iter().all(|[rate, tps]| (0.75..1.1).contains(&(tps / rate))), "{rates:?}");
    assert_eq!(found["best"]["targets"].as_array().unwrap().len(), 2, "{}", found["best"]);
}

#[test]
fn the_zone_has_the_names_of_the_load() {
    udpath_lab::needs_root!();
    for engine in ["socket", "kernel", "xdp"] {
        let names = ["dns", "--engine", engine, "--name", "H{}.eXample.test", "--names", "500", "--verify"];
        let mixed = ["--types", "A:60,AAAA:30,MX:10", "--missing", "20", "--edns", "50"];
        valid(&[&names[..], &mixed].concat());
    }
    let all = valid(&["dns", "--name", "h{}.example.test", "--names", "500"]);
    assert_eq!(all["kinds"][0]["name"], "NOERROR", "{}", all["kinds"]);
    assert_eq!(all["kinds"].as_array().unwrap().len(), 1, "{}", all["kinds"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "example.test A\n").unwrap();
    let queries = file.path().display().to_string();
    let ended = Run::new(&["load", "dns", "--lab", "--queries", &queries]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(
        ended.err.contains("a server made for the load has generated names: use --name"),
        "{}",
        ended.err
    );
}

#[test]
fn the_radius_server_shares_the_secret_and_the_users_of_the_load() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let secret = file("secret", "a \"quoted\" secret\n");
    let users = file("users", "eve Cleartext-Password := \"x y\"\nmallory Auth-Type := Reject\n");
    for engine in ["socket", "xdp"] {
        valid(&["radius", "--engine", engine]);
        let given = ["radius", "--engine", engine, "--secret-file", &secret, "--users", &users];
        valid(&[&given[..], &["--method", "chap"]].concat());
        valid(&[&given[..], &["--accounting"]].concat());
    }
}

/// Broadcast and multicast addresses, by whatever engine.
#[test]
fn nothing_is_sent_to_a_group() {
    udpath_lab::needs_root!();
    let lab = client_and_server("load-group", 1);
    let server = lab.address_of("server", "client").unwrap().ipv4;
    let [a, b, c, _] = server.octets();
    let sent = || {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let text = lab.machine("client").unwrap().run(read).unwrap();
        let line = text.lines().rfind(|line| line.starts_with("Udp: ")).unwrap();
        line.split_whitespace().nth(4).unwrap().parse::<u64>().unwrap()
    };
    let group = "expected the address of one machine, not of a group";
    for (target, code, says) in [
        (format!("{a}.{b}.{c}.255:7"), 3, "(is it a broadcast address?)"),
        ("255.255.255.255:7".to_owned(), 2, group),
        ("224.0.0.1:7".to_owned(), 2, group),
        ("[ff02::1%eth0]:7".to_owned(), 2, group),
        ("[::ffff:224.0.0.1]:7".to_owned(), 2, group),
    ] {
        for engine in ["socket", "kernel", "xdp", "xdp-rings"] {
            let ended = udpath(&lab, "client", &["load", "echo", &target, "--engine", engine, "-d", "200ms"])
                .finish();
            assert_eq!(ended.code(), Some(code), "{target} {engine}: {}", ended.err);
            assert!(
                ended.err.contains(says) && ended.err.lines().count() == 1,
                "{target} {engine}: {}",
                ended.err
            );
        }
    }
    assert_eq!(sent(), 0);
}
