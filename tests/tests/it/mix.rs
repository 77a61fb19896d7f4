//! Loads without a server of their own: captures that are replayed, and mixes of protocols. Needs root.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{DnsProgram, DnsServer, DnsSpec, Run, client_and_server};

use crate::inside::{start, udpath};

const ENGINES: [&str; 4] = ["socket", "kernel", "xdp", "xdp-rings"];
const ZONE: &str =
    "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";

fn knotd(lab: &Lab) -> DnsServer {
    let (machine, asker, zones) = ("server", "client", &[("example.test", ZONE)]);
    DnsServer::start(
        lab,
        &DnsSpec { program: DnsProgram::Knotd, machine, asker, zones, workers: 1, cpus: None },
    )
}

/// The result of a load of which every reply is valid.
fn load(lab: &Lab, arguments: &[&str]) -> Value {
    let ended = udpath(lab, "client", &[&["load"], arguments, &["-d", "400ms", "--json"]].concat()).finish();
    assert_eq!(ended.code(), Some(0), "{arguments:?}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 20, "{arguments:?}: {counts}");
    for wrong in ["refused", "corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{arguments:?}: {counts}");
    }
    result
}

/// Captures what a load of DNS and its server send to each other.
fn capture(lab: &Lab, server: SocketAddr, to: &Path) {
    let mut tcpdump = lab.machine("client").unwrap().command("tcpdump");
    tcpdump.args(["-i", "eth0", "-U", "--immediate-mode", "-Z", "root", "-w"]).arg(to).args(["udp"]);
    let mut tcpdump = start(lab, tcpdump, "tcpdump");
    tcpdump.says("listening on");
    let names = ["--name", "h{}.example.test", "--names", "50", "--flows", "3", "--edns", "50"];
    load(lab, &[&["dns", &server.to_string()][..], &names].concat());
    tcpdump.signal(Signal::INT);
    let ended = tcpdump.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}

#[test]
fn a_captured_load_is_replayed_over_every_engine() {
    udpath_lab::needs_root!();
    let lab = client_and_server("replay", 2);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    let server = knotd(&lab);
    let file = tempfile::NamedTempFile::new().unwrap();
    capture(&lab, server.ipv4(), file.path());
    let (pcap, target) = (file.path().display().to_string(), server.ipv4().to_string());
    for engine in ENGINES {
        let replay =
            ["replay", &target, "--engine", engine, "--pcap", &pcap, "--port", "5300", "--flows", "4"];
        let matched = load(&lab, &[&replay[..], &["--id", "0:2", "--inflight", "4"]].concat());
        let size = matched["size"].as_u64().unwrap();
        assert!((35..50).contains(&size), "{size}");
        // Any reply answers the request in flight.
        load(&lab, &replay);
    }
    // The capture has replies too, to the ports of the load's flows.
    let load = ["load", "replay", &target, "--pcap", &pcap];
    let ended = Run::new(&load).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(ended.err.contains("it has datagrams to several ports (5300: "), "{}", ended.err);
    let ended = Run::new(&[&load[..], &["--port", "5300", "--inflight", "2"]].concat()).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(ended.err.contains("replay has 1 identifiers: use at least 2 flows"), "{}", ended.err);
    drop((server, napi));
    lab.down().unwrap();
}

#[test]
fn a_mix_sends_each_share_to_its_server_over_every_engine() {
    udpath_lab::needs_root!();
    let lab = client_and_server("mix", 2);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    let server = knotd(&lab);
    let ip = server.ipv4().ip();
    for engine in ENGINES {
        let bind = format!("{ip}:7007");
        let mut echo =
            udpath(&lab, "server", &["serve", "echo", "--io", "shared", "--json", "--bind", &bind]);
        echo.says("ready io=");
        let parts = format!(
            "70 dns {} --name h{{}}.example.test --names 50 --verify\n20 echo {bind} --size 64\n10 echo {bind} # 100\n",
            server.ipv4()
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, parts).unwrap();
        let mix = ["mix", "--mix", &file.path().display().to_string(), "--engine", engine, "--flows", "20"];
        if engine == "kernel" {
            // Each flow is as fast as its server, in a closed loop: the flows have the shares.
            let result = load(&lab, &mix);
            let kinds = result["kinds"].as_array().unwrap();
            let names: Vec<_> = kinds.iter().map(|kind| kind["name"].as_str().unwrap()).collect();
            assert_eq!(names, [format!("dns {}", server.ipv4()), format!("echo {bind}")]);
            let intact = kinds.iter().map(|kind| kind["count"].as_u64().unwrap());
            assert_eq!(intact.sum::<u64>(), result["counts"]["received"].as_u64().unwrap());
            continue;
        }
        let result = load(&lab, &[&mix[..], &["--rate", "5000"]].concat());
        let sent = result["counts"]["sent"].as_u64().unwrap();
        assert_eq!(result["targets"].as_array().unwrap().len(), 2, "{}", result["targets"]);
        echo.signal(Signal::TERM);
        let ended = echo.finish();
        let counts: Value = serde_json::from_str(&ended.out).unwrap();
        // The flows of a constant rate are drawn: 2,000 requests of which 30 % are expected, with a deviation of 20.
        let echoed = counts["total"]["received"].as_u64().unwrap() as f64 / sent as f64;
        assert!((0.25..0.35).contains(&echoed), "{engine}: {echoed} of {sent}");
    }
    drop((server, napi));
    lab.down().unwrap();
}

#[test]
fn wrong_files_and_targets_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "70 echo 127.0.0.1:7\n30 ntp 127.0.0.1:123\n").unwrap();
    let parts = file.path().display().to_string();
    let bad = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&bad, "1 echo 127.0.0.1:7\n1 gopher 127.0.0.1:70\n").unwrap();
    let bad = bad.path().display().to_string();
    for (arguments, said) in [
        (&["load", "mix"][..], "--mix FILE is required: name the file of the parts"),
        (&["load", "mix", "--mix", "/nonexistent"], "invalid --mix /nonexistent: No such file"),
        (&["load", "mix", "--mix", &bad], "line 2: unknown protocol gopher: expected echo"),
        (&["load", "mix", "--mix", &parts], "the shares of this mix need 10 flows: use --flows 10"),
        (
            &["load", "mix", "127.0.0.1:7", "--mix", &parts],
            "the options of mix name the targets: remove 127.0.0.1:7",
        ),
        (
            &["load", "mix", "--mix", &parts, "--flows", "10", "--lab", "--pattern", "one-to-one"],
            "udpath has none of mix",
        ),
        (
            &["load", "mix", "--mix", &parts, "--size", "64"],
            "invalid --size 64: the requests of mix have their own lengths",
        ),
        (&["load", "replay", "127.0.0.1:7"], "--pcap FILE is required: name the capture to replay"),
        (&["load", "replay", "127.0.0.1:7", "--pcap", &parts], "is not a capture"),
    ] {
        let ended = Run::new(arguments).finish();
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.err);
        udpath_rig::one_sentence(&arguments.join(" "), &ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    // They have no server.
    let ended = Run::new(&["serve", "replay", "--bind", "127.0.0.1:0"]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
}
