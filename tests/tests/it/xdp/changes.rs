//! Changes around a server on the fast path while it receives requests.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{TIMEOUT, awaited, client_and_server};

use super::{PORT, asks, piped, program_counts, serve, targets};
use crate::inside::{connected, end, udpath};

/// Requests in flight of the load: the most that a change may lose.
const IN_FLIGHT: u64 = 64;

/// Runs a program in a machine; returns whether it succeeded.
fn runs(lab: &Lab, machine: &str, program: &str, arguments: &[&str]) -> bool {
    let mut inside = lab.machine(machine).unwrap().command(program);
    inside.args(arguments).output().unwrap().status.success()
}

fn ip(lab: &Lab, machine: &str, arguments: &[&str]) {
    assert!(runs(lab, machine, "ip", arguments), "{machine}: ip {arguments:?}");
}

/// A veth's end must have as many receive queues as the other end sends on, so the server grows first, and the
/// client shrinks first.
fn queues(lab: &Lab, count: &str) -> bool {
    let mut ends = [("server", "rx"), ("client", "tx")];
    if count == "1" {
        ends.reverse();
    }
    ends.iter().all(|(machine, kind)| runs(lab, machine, "ethtool", &["-L", "eth0", kind, count]))
}

#[test]
fn added_and_removed_queues_lose_only_requests_in_flight() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-queues", 2);
    assert!(queues(&lab, "1"));
    let mut server = serve(&lab, &[]);
    let [v4, _] = targets(&lab).map(|target| target.to_string());
    let load =
        ["load", "echo", &v4, "--flows", "32", "--inflight", "2", "-d", "5s", "--timeout", "500ms", "--json"];
    let mut load = udpath(&lab, "client", &load);
    std::thread::sleep(Duration::from_millis(500));
    assert!(queues(&lab, "2"));
    server.says("has 2 queues now, 1 at the start: the new ones are served over kernel sockets");
    assert!(queues(&lab, "1"), "the queue that came has no socket, so it may go");
    assert!(!load.has_ended(), "requests were under way all the time");
    let load = load.finish();
    let counts = end(server);
    let result: Value =
        serde_json::from_str(&load.out).unwrap_or_else(|error| panic!("{error}: {}", load.err));
    let of = |name: &str| result["counts"][name].as_u64().unwrap();
    for wrong in ["duplicate", "corrupt", "wrong_flow"] {
        assert_eq!(of(wrong), 0, "{}", result["counts"]);
    }
    // Four settings were changed.
    let missing = of("lost") + of("late");
    assert_eq!(of("sent"), of("ok") + missing);
    assert!(missing <= 4 * IN_FLIGHT, "{}", result["counts"]);
    // Everything received was answered, on one path or the other, except for replies that the device dropped while
    // its queues changed.
    let total = |name: &str| counts["total"][name].as_u64().unwrap();
    assert!(of("sent") - total("received") <= missing, "{} {}", result["counts"], counts["total"]);
    let unsent = counts["total"]["dropped"]["send_failed"].as_u64().unwrap();
    assert!(unsent <= missing, "{} {}", result["counts"], counts["total"]);
    assert_eq!(total("received"), total("answered") + unsent, "{}", counts["total"]);
    let frames = counts["xdp"]["received"].as_u64().unwrap();
    assert_eq!(frames, program_counts(&counts, "taken"));
    assert_eq!(counts["xdp"]["answered"].as_u64().unwrap() + unsent, frames, "{}", counts["xdp"]);
    assert!(frames > 0 && total("received") > frames, "both ways were gone: {}", counts["xdp"]);
    lab.down().unwrap();
}

#[test]
fn a_queue_with_a_socket_does_not_go_unnoticed() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-fewer", 2);
    let mut server = serve(&lab, &[]);
    let [v4, v6] = targets(&lab);
    // Kernels keep a queue that has an AF_XDP socket; if one does not, the server must report it.
    if queues(&lab, "1") {
        server.says("has 1 queues now, 2 at the start");
    }
    for target in [v4, v6] {
        for _ in 0..8 {
            asks(&connected(&lab, target), 100);
        }
    }
    let counts = end(server);
    assert_eq!(counts["total"]["answered"], 16, "{}", counts["total"]);
    lab.down().unwrap();
}

#[test]
fn frames_for_other_services_go_to_the_kernel() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-kernel", 2);
    let server = serve(&lab, &[]);
    let [v4, v6] = targets(&lab);
    for target in [v4, v6] {
        let other = SocketAddr::new(target.ip(), PORT + 1);
        let there = lab.machine("server").unwrap().run(|| UdpSocket::bind(other)).unwrap().unwrap();
        there.set_read_timeout(Some(TIMEOUT)).unwrap();
        let here = connected(&lab, other);
        here.send(b"another port").unwrap();
        let mut room = [0; 32];
        let (len, from) = there.recv_from(&mut room).unwrap();
        there.send_to(&room[..len], from).unwrap();
        assert_eq!(here.recv(&mut room).unwrap(), 12);
        ping(&lab, target);
        asks(&connected(&lab, target), 100);
    }
    // Destination options (IPV6_DSTOPTS) of padding, before UDP.
    let mut socat = lab.machine("client").unwrap().command("socat");
    socat.args(["-t", "1", "-", &format!("UDP6:{v6},setsockopt=41:59:x0000010400000000")]);
    assert_eq!(piped(socat, b"extended"), b"extended");
    let counts = end(server);
    for (outcome, least) in [("other_port", 2), ("not_udp", 2), ("extension", 1)] {
        assert!(program_counts(&counts, outcome) >= least, "{outcome}: {}", counts["xdp"]);
    }
    assert_eq!((&counts["total"]["answered"], &counts["xdp"]["answered"]), (&3.into(), &2.into()));
    lab.down().unwrap();
}

/// An ICMP echo request, and its reply.
fn ping(lab: &Lab, target: SocketAddr) {
    // Type, code, checksum (the kernel writes IPv6's), identifier, number.
    let (to, request, reply) = match target {
        SocketAddr::V4(v4) => (format!("IP4:{}:1", v4.ip()), [8, 0, 0xe5, 0xc9, 0x12, 0x34, 0, 2], 0),
        SocketAddr::V6(v6) => (format!("IP6:[{}]:58", v6.ip()), [128, 0, 0, 0, 0x12, 0x34, 0, 2], 129),
    };
    let mut socat = lab.machine("client").unwrap().command("socat");
    socat.args(["-t", "1", "-", &to]);
    let came = piped(socat, &request);
    let is_reply = |at: &[u8]| at[0] == reply && at[4..] == request[4..];
    assert!(came.windows(request.len()).any(is_reply), "{target}: {came:02x?}");
}

#[test]
fn mtu_stations_and_addresses_change_under_it() {
    udpath_lab::needs_root!();
    let lab = client_and_server("xdp-changes", 2);
    let mut server = serve(&lab, &[]);
    let [v4, _] = targets(&lab);
    let socket = connected(&lab, v4);
    asks(&socket, 1000);
    ip(&lab, "server", &["link", "set", "eth0", "mtu", "1400"]);
    server.says("has an MTU of 1400 now, 1500 at the start");
    asks(&socket, 1000);
    ip(&lab, "server", &["link", "set", "eth0", "mtu", "1500"]);
    asks(&socket, 1400);
    // The client's MAC address changes: the reply goes to the new one. Then the server's changes: until the program
    // follows, the kernel answers.
    ip(&lab, "client", &["link", "set", "eth0", "address", "02:00:00:00:77:01"]);
    asks(&socket, 100);
    ip(&lab, "server", &["link", "set", "eth0", "address", "02:00:00:00:77:02"]);
    ip(&lab, "client", &["neigh", "flush", "dev", "eth0"]);
    let mut asked: u64 = 4;
    // Long enough for the program to follow, and enough requests after that, however slow the machine is.
    let deadline = std::time::Instant::now() + Duration::from_secs(4);
    while std::time::Instant::now() < deadline || asked < 50 {
        asks(&socket, 100);
        asked += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    // The wildcard no longer answers for a removed address; the others are still answered.
    let gone = SocketAddr::new("10.0.0.78".parse().unwrap(), PORT);
    ip(&lab, "server", &["addr", "add", "10.0.0.78/32", "dev", "eth0"]);
    ip(&lab, "client", &["route", "add", "10.0.0.78", "dev", "eth0"]);
    ip(&lab, "client", &["neigh", "replace", "10.0.0.78", "lladdr", "02:00:00:00:77:02", "dev", "eth0"]);
    let there = connected(&lab, gone);
    there.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    awaited("an answer from the new address", TIMEOUT, || {
        there.send(b"x").unwrap();
        there.recv(&mut [0; 8]).ok()
    });
    ip(&lab, "server", &["addr", "del", "10.0.0.78/32", "dev", "eth0"]);
    awaited("the address that is gone to be silent", TIMEOUT, || {
        there.send(b"x").unwrap();
        there.recv(&mut [0; 8]).err()
    });
    asks(&socket, 100);
    asked += 1;
    server.signal(Signal::TERM);
    let ended = server.finish();
    let counts: Value = serde_json::from_str(&ended.out).unwrap();
    let xdp = &counts["xdp"];
    // Frames for a removed address are left to the kernel, except for one that was in flight: that is dropped.
    let in_flight = xdp["dropped"]["not_local"].as_u64().unwrap_or(0);
    assert!(in_flight <= 1, "{xdp}");
    let total = |name: &str| counts["total"][name].as_u64().unwrap();
    assert!(total("answered") > asked, "{}", counts["total"]);
    assert_eq!(total("received"), total("answered") + in_flight, "{}", counts["total"]);
    assert!(program_counts(&counts, "other_port") >= 1, "{xdp}");
    // The program follows the new MAC address: it took more frames than came before the change.
    assert!(program_counts(&counts, "taken") >= 10, "{xdp}");
    // Until the program saw the MTU change, the kernel's socket sent any reply too long for it.
    let of = |name: &str| xdp[name].as_u64().unwrap();
    assert_eq!(of("received"), of("answered") + of("declined") + in_flight, "{xdp}");
    assert!(of("declined") <= 1, "{xdp}");
    lab.down().unwrap();
}
