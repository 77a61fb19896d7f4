//! `serve --io xdp` on a lab's link: requests on the fast path and those left to the kernel are both answered,
//! nothing is left behind however it ends, and unsupported requests give a clear error. Needs root.

mod changes;
mod forged;
mod peers;

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Running, TIMEOUT, awaited, client_and_server, one_sentence};

use crate::inside::{self, addresses, connected, end, udpath};

const PORT: u16 = 7000;

fn serve(lab: &Lab, more: &[&str]) -> Running {
    let arguments = ["echo", "--bind", "0.0.0.0:7000", "--bind", "[::]:7000"];
    inside::serve(lab, "xdp", &[&arguments[..], more].concat())
}

fn targets(lab: &Lab) -> [SocketAddr; 2] {
    addresses(lab).map(|ip| SocketAddr::new(ip, PORT))
}

fn asks(socket: &UdpSocket, len: usize) {
    let payload: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
    socket.send(&payload).unwrap();
    let mut room = [0; 65_536];
    let got = socket.recv(&mut room).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
    assert!(room[..got] == payload, "{len} bytes came back as {got}");
}

/// Whether the server's end has an XDP program.
fn attached(lab: &Lab) -> bool {
    let mut ip = lab.machine("server").unwrap().command("ip");
    let said = ip.args(["link", "show", "eth0"]).output().unwrap();
    String::from_utf8_lossy(&said.stdout).contains("prog/xdp")
}

fn program_counts(end: &Value, outcome: &str) -> u64 {
    end["xdp"]["program"][outcome].as_u64().unwrap_or(0)
}

#[test]
fn every_kind_of_datagram_is_answered() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-kinds", 2);
    let server = serve(&lab, &[]);
    let [v4, v6] = targets(&lab);
    for target in [v4, v6] {
        let client = connected(&lab, target);
        // Whole frames, empty and full ones; then fragments.
        for len in [0, 1, 18, 100, 1452, 1473, 3000, 60_000] {
            asks(&client, len);
        }
    }
    // IP options: no operation, four times.
    let mut socat = lab.machine("client").unwrap().command("socat");
    socat.args(["-t", "1", "-", &format!("UDP4:{v4},ip-options=x01010101")]);
    let answer = piped(socat, b"with options");
    assert_eq!(answer, b"with options");
    let counts = end(server);
    assert_eq!(counts["total"]["received"], 17);
    assert_eq!(counts["total"]["answered"], 17);
    // In each family five fit a frame: the limit is 1472 bytes for IPv4 and 1452 for IPv6.
    assert_eq!(counts["xdp"]["answered"], 10, "{}", counts["xdp"]);
    assert!(
        program_counts(&counts, "fragment") + program_counts(&counts, "extension") >= 4,
        "{}",
        counts["xdp"]
    );
    assert_eq!(program_counts(&counts, "options"), 1, "{}", counts["xdp"]);
    assert!(!attached(&lab));
    lab.down().unwrap();
}

fn piped(mut command: Command, input: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_load_is_answered_without_loss_steered_or_not() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-load", 2);
    let [v4, v6] = targets(&lab).map(|target| target.to_string());
    for more in [&[][..], &["--steer"], &["--steer", "--flow-limit"], &["--steer=1"]] {
        let server = serve(&lab, more);
        let mut sent = 0;
        for (engine, target) in [("socket", &v4), ("socket", &v6), ("kernel", &v4), ("kernel", &v6)] {
            let load = [
                "load",
                "echo",
                target,
                "--engine",
                engine,
                "--flows",
                "16",
                "--inflight",
                "4",
                "-d",
                "500ms",
                // A reply that other programs hold up is not late.
                "--timeout",
                "10s",
                "--json",
            ];
            let ended = udpath(&lab, "client", &load).finish();
            assert_eq!(ended.code(), Some(0), "{}", ended.err);
            let result: Value = serde_json::from_str(&ended.out).unwrap();
            let counts = &result["counts"];
            for wrong in ["lost", "late", "duplicate", "corrupt", "wrong_flow"] {
                assert_eq!(counts[wrong], 0, "{engine} {target} {more:?}: {counts}");
            }
            sent += counts["sent"].as_u64().unwrap();
        }
        let counts = end(server);
        assert_eq!(counts["total"]["received"], sent);
        assert_eq!(counts["total"]["answered"], sent);
        assert_eq!(counts["xdp"]["answered"], sent, "{}", counts["xdp"]);
        assert_eq!(counts["xdp"]["received"], counts["xdp"]["program"]["taken"]);
        assert_eq!(counts["xdp"]["steered"].as_u64().unwrap() > 0, !more.is_empty());
        let hash = if more.is_empty() { Value::Null } else { "from the device".into() };
        for port in counts["xdp"]["ports"].as_array().unwrap() {
            assert_eq!(port["rx_hash"], hash, "{port}");
        }
        assert_eq!(counts["workers"][0]["received"] == 0, more == ["--steer=1"]);
    }
    lab.down().unwrap();
}

#[test]
fn a_killed_server_leaves_the_kernel_as_it_was() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-kill", 2);
    let [v4, _] = targets(&lab);
    let server = serve(&lab, &[]);
    asks(&connected(&lab, v4), 100);
    assert!(attached(&lab));
    server.signal(Signal::KILL);
    assert!(server.finish().code().is_none(), "ended by the signal");
    awaited("the program to go", TIMEOUT, || (!attached(&lab)).then_some(()));
    // The next server can start.
    let server = serve(&lab, &[]);
    asks(&connected(&lab, v4), 100);
    end(server);
    lab.down().unwrap();
}

#[test]
fn a_link_that_goes_down_and_up_goes_on() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-down", 2);
    let [v4, _] = targets(&lab);
    let server = serve(&lab, &[]);
    asks(&connected(&lab, v4), 100);
    for state in ["down", "up"] {
        let mut ip = lab.machine("client").unwrap().command("ip");
        assert!(ip.args(["link", "set", "eth0", state]).status().unwrap().success());
    }
    let target = connected(&lab, v4);
    target.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    awaited("an answer after the link is up", TIMEOUT, || {
        target.send(b"again").unwrap();
        target.recv(&mut [0; 8]).ok()
    });
    // The fast path also serves an address added later, as soon as it is noticed.
    let late = "10.0.0.77";
    let ip = |machine: &str, arguments: &[&str]| {
        let mut ip = lab.machine(machine).unwrap().command("ip");
        assert!(ip.args(arguments).status().unwrap().success(), "ip {arguments:?}");
    };
    let mac = lab.machine("server").unwrap().run(|| std::fs::read_to_string("/sys/class/net/eth0/address"));
    let mac = mac.unwrap().unwrap();
    ip("server", &["addr", "add", &format!("{late}/32"), "dev", "eth0"]);
    ip("client", &["route", "add", late, "dev", "eth0"]);
    ip("client", &["neigh", "replace", late, "lladdr", mac.trim(), "dev", "eth0"]);
    let target = connected(&lab, SocketAddr::new(late.parse().unwrap(), PORT));
    target.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    awaited("an answer from the new address", TIMEOUT, || {
        target.send(b"new").unwrap();
        target.recv(&mut [0; 8]).ok()
    });
    end(server);
    lab.down().unwrap();
}

#[test]
fn unsupported_requests_give_one_sentence() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-refused", 2);
    let [v4, _] = targets(&lab);
    let refused = |arguments: &[&str], words: &str| {
        let ended = udpath(&lab, "server", arguments).finish();
        assert_eq!(ended.code(), Some(3), "{arguments:?}: {}", ended.err);
        one_sentence(&arguments.join(" "), &ended.err);
        assert!(ended.err.contains(words), "{arguments:?}: {}", ended.err);
    };
    let bind = v4.to_string();
    let xdp = ["serve", "echo", "--io", "xdp", "--bind", &bind];
    refused(&["serve", "echo", "--io", "xdp", "--bind", "127.0.0.1:7"], "127.0.0.1");
    refused(&[&xdp[..], &["--interface", "eth7"]].concat(), "eth7");
    refused(&[&xdp[..], &["--workers", "1"]].concat(), "2 queues");
    refused(&[&xdp[..], &["--frames", "100"]].concat(), "100 frames");
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    refused(&xdp, "XDP program");
    drop(napi);
    // An address with special rules in the kernel: the probe finds that none of its frames would be taken.
    let reserved = "240.0.0.1:7000";
    let mut ip = lab.machine("server").unwrap().command("ip");
    assert!(ip.args(["addr", "add", "240.0.0.1/32", "dev", "eth0"]).status().unwrap().success());
    let left = "eth0 queue 0: the program leaves a datagram from 192.0.2.1:9 to 240.0.0.1:7000 to the kernel (special)";
    refused(&["serve", "echo", "--io", "xdp", "--bind", reserved], left);
    assert!(!attached(&lab));
    let server = serve(&lab, &[]);
    let ports = &end(server)["xdp"]["ports"];
    assert_eq!((&ports[0]["probe"], &ports[1]["probe"]), (&Value::from("answered"), &Value::from("taken")));
    // Auto selects the fastest available mode, and skips those that are unavailable.
    let auto = [
        (bind.as_str(), "ready io=xdp"),
        ("127.0.0.1:7000", "not xdp: "),
        (reserved, "not xdp: eth0 queue 0: "),
    ];
    for (bind, io) in auto {
        let mut server = udpath(&lab, "server", &["serve", "echo", "--io", "auto", "--json", "--bind", bind]);
        server.says(io);
        server.says("ready");
        end(server);
    }
    lab.down().unwrap();
}
