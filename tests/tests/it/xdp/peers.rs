//! Other programs as clients, and the other service, over every Io on a lab's link.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{TIMEOUT, awaited, client_and_server};

use super::{PORT, piped, program_counts, targets};
use crate::inside::{IOS, connected, end, udpath};

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + size) as u8).collect()
}

fn on_client(lab: &Lab, program: &str) -> Command {
    lab.machine("client").unwrap().command(program)
}

fn socat(lab: &Lab, target: SocketAddr, size: usize) -> Vec<u8> {
    let family = if target.is_ipv6() { 6 } else { 4 };
    let mut socat = on_client(lab, "socat");
    // -t: how long to wait for the reply after the input has ended.
    socat.args(["-b", "65536", "-t", "0.3", "-", &format!("UDP{family}:{target}")]);
    piped(socat, &payload(size))
}

fn nc(lab: &Lab, target: SocketAddr, size: usize) -> Vec<u8> {
    let mut nc = on_client(lab, "nc");
    // -W 1: exit after one reply.
    nc.args(["-u", "-W", "1", "-w", "5", &target.ip().to_string(), &target.port().to_string()]);
    piped(nc, &payload(size))
}

/// From one byte to the longest datagram: whole frames on the fast path, everything longer in fragments through the
/// kernel.
#[test]
fn nc_and_socat_are_answered_over_xdp() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-peers", 2);
    let server = super::serve(&lab, &[]);
    let (mut asked, mut in_frames) = (0, 0);
    for target in targets(&lab) {
        let fits = if target.is_ipv4() { 1_472 } else { 1_452 };
        // Around the size that fits a frame, a second frame, and the maximum.
        for size in [1, 2, 17, 18, 100, fits - 1, fits, fits + 1, 2_953, 16_384, 32_768, 65_506, 65_507] {
            let answer = socat(&lab, target, size);
            assert!(answer == payload(size), "socat, {target}: {} of {size} bytes", answer.len());
            (asked, in_frames) = (asked + 1, in_frames + u64::from(size <= fits));
        }
        // nc sends each read of up to 16 KiB as a datagram.
        for size in [1, 100, fits, fits + 1, 16_384] {
            let answer = nc(&lab, target, size);
            assert!(answer == payload(size), "nc, {target}: {} of {size} bytes", answer.len());
            (asked, in_frames) = (asked + 1, in_frames + u64::from(size <= fits));
        }
    }
    let counts = end(server);
    assert_eq!(counts["total"]["received"], asked);
    assert_eq!(counts["total"]["answered"], asked);
    assert_eq!(counts["xdp"]["answered"], in_frames, "{}", counts["xdp"]);
    assert_eq!(program_counts(&counts, "taken"), in_frames, "{}", counts["xdp"]);
    lab.down().unwrap();
}

/// A sink counts every datagram, whichever path it took, and reports the count on request.
#[test]
fn a_sink_takes_everything_over_every_io() {
    udpath_lab::needs_root!();
    const SENT: u64 = 2_000;
    for io in IOS {
        let lab = client_and_server("xdp-sink", 2);
        let serve = ["serve", "sink", "--io", io, "--json", "--bind", "0.0.0.0:7000", "--bind", "[::]:7000"];
        let mut server = udpath(&lab, "server", &serve);
        let ready = server.says_line("ready io=");
        let over_frames = ["xdp", "auto"].contains(&io);
        assert_eq!(ready.contains("io=xdp "), over_frames, "{ready}");
        let mut bytes = 0;
        for target in targets(&lab) {
            let socket = connected(&lab, target);
            for number in 0..SENT {
                // Mostly whole frames, some fragments; a few at a time, so that no queue overflows.
                let size = if number % 100 == 99 { 3_000 } else { 100 };
                socket.send(&payload(size)).unwrap();
                bytes += size as u64;
                if number % 50 == 49 {
                    awaited("the sink to have taken it", TIMEOUT, || {
                        socket.send(&udpath_protocols::sink::QUESTION).unwrap();
                        let mut room = [0; 64];
                        let len = socket.recv(&mut room).unwrap();
                        let report = udpath_protocols::sink::Report::decode(&room[..len]).unwrap();
                        (report.bytes == bytes).then_some(())
                    });
                }
            }
        }
        let counts = end(server);
        let total = |name: &str| counts["total"][name].as_u64().unwrap();
        let consumed = counts["total"]["dropped"]["consumed"].as_u64();
        assert_eq!(consumed, Some(2 * SENT), "{io}: {}", counts["total"]);
        assert_eq!(total("received"), total("answered") + 2 * SENT, "{io}: {}", counts["total"]);
        assert_eq!(counts["kernel_drops"], 0, "{io}");
        if over_frames {
            let xdp = &counts["xdp"];
            assert_eq!(xdp["received"], xdp["program"]["taken"], "{xdp}");
            assert_eq!(xdp["declined"], 2 * SENT - 2 * SENT / 100, "{xdp}");
        }
        lab.down().unwrap();
    }
}

/// Packet filters do not see what xdp takes: the operator is shown the bypassed rules, and an Io that bypasses
/// nothing prints nothing.
#[test]
fn rules_that_are_bypassed_are_named_at_the_start() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-rules", 2);
    let ruleset = "table inet guard { chain in { type filter hook input priority 0; policy accept;
        iif lo accept
        udp dport 53 drop
        ip saddr 192.0.2.0/24 udp dport 7000 drop
        udp dport 7000 drop
        }
        }";
    let mut nft = lab.machine("server").unwrap().command("nft");
    nft.args(["-f", "-"]).stderr(Stdio::inherit());
    assert!(piped(nft, ruleset.as_bytes()).is_empty());
    let [v4, _] = targets(&lab);
    let bind = v4.to_string();
    for io in ["xdp", "auto"] {
        let mut server = udpath(&lab, "server", &["serve", "echo", "--io", io, "--json", "--bind", &bind]);
        server.says("ready io=xdp");
        // The rule says drop, and the datagram is answered anyway.
        super::asks(&connected(&lab, v4), 100);
        server.signal(rustix::process::Signal::TERM);
        let ended = server.finish();
        let told: Vec<&str> = ended.err.lines().collect();
        let from =
            told.iter().position(|line| line.starts_with("warning: packet filters do not apply")).unwrap();
        assert!(told[from].contains("eth0"), "{}", ended.err);
        let may = "nftables inet guard in: ip saddr 192.0.2.0/24 udp dport 7000 drop # handle ";
        assert!(told[from + 1].trim_start().starts_with(may), "{}", ended.err);
        assert!(told[from + 1].contains("some packets"), "{}", ended.err);
        let all = "nftables inet guard in: udp dport 7000 drop # handle ";
        assert!(told[from + 2].trim_start().starts_with(all), "{}", ended.err);
        assert!(!told[from + 3].contains("nftables"), "{}", ended.err);
        let json: Value = serde_json::from_str(&ended.out).unwrap();
        let bypassed = json["filters"]["bypassed"].as_array().unwrap();
        // The second rule does not apply to datagrams that the first one dropped.
        let certain: Vec<_> = bypassed.iter().map(|found| &found["certain"]).collect();
        assert_eq!(certain, [false, false], "{}", json["filters"]);
        assert_eq!(bypassed[1]["rule"], "udp dport 7000 drop");
        assert_eq!(bypassed[1]["addresses"], Value::from(vec![bind.clone()]));
        assert_eq!(json["filters"]["unread"], Value::from(Vec::<String>::new()));
    }
    let mut flush = lab.machine("server").unwrap().command("nft");
    assert!(flush.args(["flush", "ruleset"]).status().unwrap().success());
    for io in ["xdp", "reuseport"] {
        let mut server = udpath(&lab, "server", &["serve", "echo", "--io", io, "--json", "--bind", &bind]);
        server.says(&format!("ready io={io} "));
        server.signal(rustix::process::Signal::TERM);
        let ended = server.finish();
        assert!(!ended.err.contains("warning"), "{io}: {}", ended.err);
        let json: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(json["filters"]["bypassed"], Value::from(Vec::<String>::new()), "{io}");
    }
    assert_eq!(PORT, v4.port());
    lab.down().unwrap();
}
