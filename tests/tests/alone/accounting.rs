//! The counters of `serve` match reality: under overload, starved of CPU time, and at shutdown. The link's counters
//! at both ends are the independent reference. Needs root.
//!
//! ```text
//! client: sent ── link ──▸ server's end: rx_packets = taken + kernel sockets     rx_dropped = lost at the rings
//!                                           = answered + dropped, by reason + deferred
//! client's end: rx_packets = answered ◂── link ──
//! ```

mod drain;
mod witness;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Run, Running, TIMEOUT, awaited, campaign, client_and_server, program};

use witness::{Link, count};

const PORT: u16 = 7000;

/// Duration of a flood.
const FLOOD: Duration = Duration::from_millis(700);

/// Flows of a flood: enough that every queue and worker gets some.
const FLOWS: usize = 16;

/// Requests sent while a server is stopped: more than rings and receive buffers hold.
const BACKLOG: usize = 12_000;

fn lab(name: &str) -> Lab {
    let lab = client_and_server(name, 2);
    for machine in lab.machines() {
        // IPv6 traffic that the kernel originates would also count on the link.
        let silent = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        machine.run(silent).unwrap().unwrap();
    }
    lab
}

fn serve(lab: &Lab, arguments: &[&str]) -> Running {
    // All threads of the process.
    let mut inside = lab.machine("server").unwrap().command("nice");
    inside.args(["-n", "19"]).arg(program());
    // A message of several replies (GSO) would be one packet in the link's counters.
    inside.args(["serve", "echo", "--json", "--no-gso", "--bind", "0.0.0.0:7000"]).args(arguments);
    let mut server = Run::of(inside, &arguments.join(" ")).within(TIMEOUT * 2).start_with(|c| lab.spawn(c));
    server.says("ready io=");
    server
}

fn sockets(lab: &Lab, flows: usize) -> Vec<UdpSocket> {
    let to = lab.address_of("server", "client").unwrap().ipv4;
    let client = lab.machine("client").unwrap();
    let socket = || -> UdpSocket {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((to, PORT)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    client.run(|| (0..flows).map(|_| socket()).collect()).unwrap()
}

fn pin(cpu: usize) {
    let mut mask = rustix::thread::CpuSet::new();
    mask.set(cpu);
    rustix::thread::sched_setaffinity(None, &mask).unwrap();
}

/// Sends from every CPU as fast as possible, while other programs take the CPU time that a niced server would get.
/// Returns the number sent. The caller must keep the sockets open: the kernel answers replies to closed ones with
/// ICMP errors, over the link.
fn flood(lab: &Lab) -> (u64, Vec<UdpSocket>) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        for cpu in 0..cpus {
            scope.spawn(move || {
                pin(cpu);
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let senders: Vec<_> = (0..cpus)
            .map(|cpu| {
                let sockets = sockets(lab, FLOWS);
                scope.spawn(move || {
                    pin(cpu);
                    let (end, mut sent) = (Instant::now() + FLOOD, 0_u64);
                    while Instant::now() < end {
                        for socket in &sockets {
                            // Fails only where the sender's own buffers are full.
                            sent += u64::from(socket.send(&[7; 100]).is_ok());
                        }
                    }
                    (sent, sockets)
                })
            })
            .collect();
        let (mut all, mut open) = (0, Vec::new());
        for sender in senders {
            let (sent, sockets) = sender.join().unwrap();
            all += sent;
            open.extend(sockets);
        }
        over.store(true, Relaxed);
        (all, open)
    })
}

/// Stops every thread of the server until SIGCONT.
fn halt(server: &Running) {
    server.signal(Signal::STOP);
    let stopped = |thread: std::io::Result<std::fs::DirEntry>| {
        let state = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        state.lines().any(|line| line.starts_with("State:\tT"))
    };
    awaited("all threads to stop", TIMEOUT, || {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        threads.all(stopped).then_some(())
    });
}

/// Ends the server; returns its counters and its stderr.
fn end(server: Running) -> (Value, String) {
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    (serde_json::from_str(&ended.out).unwrap(), ended.err)
}

/// Checks the server's counters against the link's; returns how many datagrams are not accounted for.
fn unnamed(what: &str, counts: &Value, sent: u64, link: Link) -> i64 {
    let (total, kernel_drops) = (&counts["total"], count(counts, "kernel_drops"));
    for (name, of) in
        counts["workers"].as_array().unwrap().iter().map(|of| ("worker", of)).chain([("total", total)])
    {
        let dropped: u64 = of["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(count(of, "in_flight"), 0, "{what}: {name} at rest: {of}");
        assert_eq!(
            count(of, "received"),
            count(of, "answered") + dropped + count(of, "deferred"),
            "{what}: {name} {of}"
        );
    }
    let workers: u64 = counts["workers"].as_array().unwrap().iter().map(|of| count(of, "received")).sum();
    assert_eq!(workers, count(total, "received"), "{what}");
    assert_eq!(
        sent,
        link.arrived + link.lost_before,
        "{what}: what was sent came, or the link lost it: {link:?}"
    );
    assert_eq!(count(total, "answered"), link.answered, "{what}: {link:?} {total}");
    if let Value::Object(_) = counts["xdp"] {
        let xdp = &counts["xdp"];
        let dropped: u64 = xdp["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(count(xdp, "in_flight"), 0, "{what}: {xdp}");
        assert_eq!(
            count(xdp, "taken"),
            count(xdp, "answered") + count(xdp, "declined") + dropped,
            "{what}: {xdp}"
        );
        assert_eq!(count(xdp, "taken"), link.arrived, "{what}: {link:?} {xdp}");
        // No traffic through kernel sockets here.
        assert_eq!(count(xdp, "answered"), link.answered, "{what}: {link:?} {xdp}");
        assert_eq!(kernel_drops, link.lost_at_rings, "{what}: {link:?} {xdp}");
        let by_port: u64 = xdp["ports"].as_array().unwrap().iter().map(|port| count(port, "delivered")).sum();
        assert_eq!(by_port, count(xdp, "received"), "{what}: {xdp}");
        let redirect_failed = xdp["dropped"]["redirect_failed"].as_u64().unwrap_or(0);
        let workers: u64 =
            counts["workers"].as_array().unwrap().iter().map(|of| count(of, "kernel_drops")).sum();
        assert_eq!(workers + redirect_failed, kernel_drops, "{what}: {counts}");
    }
    let dropped: u64 = total["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let named = count(total, "answered") + dropped + count(total, "deferred") + kernel_drops;
    link.arrived as i64 - named as i64
}

/// Repeatedly floods a server that gets almost no CPU time.
fn overload(io: &str, arguments: &[&str], key: &str) {
    let what = [&["--io", io], arguments].concat().join(" ");
    let lab = lab(&format!("acc-{key}"));
    // Otherwise a veth rejects live frames.
    let _napi = lab.machine("client").unwrap().interface("eth0").unwrap().ensure_napi().unwrap();
    let (mut frames, mut lost, mut missing) = (0, 0, 0);
    let rounds = campaign::rounds(1, 20);
    for _ in 0..rounds {
        let server = serve(&lab, &[&["--io", io], arguments].concat());
        let before = Link::of(&lab);
        let (sent, _open) = flood(&lab);
        let (counts, said) = end(server);
        let link = Link::at_rest(&lab, &before, count(&counts["total"], "answered"));
        missing += unnamed(&what, &counts, sent, link).abs();
        frames += link.arrived;
        lost += link.arrived - link.answered;
        let losses = count(&counts, "kernel_drops");
        assert_eq!(
            said.contains("warning: ") && said.contains("dropped") || said.contains("drops"),
            losses > 0,
            "{what}: {said}"
        );
    }
    assert!(lost > 0, "{what}: no overload: {frames} frames");
    campaign::record(
        &format!("overload {what}"),
        &format!("{rounds} rounds, {frames} datagrams arrived, {lost} lost, unnamed: {missing}"),
    );
    assert_eq!(missing, 0, "{what}");
    lab.down().unwrap();
}

#[test]
fn shared_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("shared", &[], "shared");
}

#[test]
fn reuseport_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("reuseport", &[], "reuse");
}

#[test]
fn percpu_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("percpu", &[], "percpu");
}

#[test]
fn xdp_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("xdp", &[], "xdp");
}

#[test]
fn xdp_that_sends_by_its_ring_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("xdp", &["--no-live-frames"], "ring");
}

#[test]
fn xdp_that_polls_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("xdp", &["--busy-poll"], "poll");
}

#[test]
fn xdp_that_steers_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("xdp", &["--steer"], "steer");
}

#[test]
fn xdp_that_limits_flows_names_every_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    overload("xdp", &["--steer=1", "--flow-limit", "--no-live-frames"], "limit");
}

#[test]
fn a_loss_is_reported_while_the_server_runs() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("acc-told");
    for (io, words) in
        [("xdp", "because the fill ring is empty"), ("reuseport", "kernel drops datagrams at the sockets")]
    {
        let mut server = serve(&lab, &["--io", io]);
        halt(&server);
        let sockets = sockets(&lab, FLOWS);
        for number in 0..BACKLOG {
            sockets[number % FLOWS].send(b"too much").unwrap();
        }
        server.signal(Signal::CONT);
        server.says(words);
        end(server);
    }
    lab.down().unwrap();
}

#[test]
fn replies_dropped_by_the_device_are_not_counted_as_answered() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    for (number, arguments) in [&["--steer"][..], &["--no-live-frames"], &[]].into_iter().enumerate() {
        let lab = lab(&format!("acc-down{number}"));
        let server = serve(&lab, &[&["--io", "xdp"], arguments].concat());
        let before = Link::of(&lab);
        halt(&server);
        let sockets = sockets(&lab, FLOWS);
        for number in 0..400 {
            sockets[number % FLOWS].send(b"asked").unwrap();
        }
        // The carrier at the server's end is down: its driver drops everything it transmits.
        let mut ip = lab.machine("client").unwrap().command("ip");
        assert!(ip.args(["link", "set", "eth0", "down"]).status().unwrap().success());
        server.signal(Signal::CONT);
        let (counts, said) = end(server);
        let link = Link::at_rest(&lab, &before, count(&counts["total"], "answered"));
        assert_eq!(unnamed(&arguments.join(" "), &counts, 400, link), 0, "{counts}");
        assert_eq!((count(&counts["total"], "answered"), link.answered), (0, 0), "{counts}");
        assert_eq!(counts["total"]["dropped"]["send_failed"], 400, "{counts}");
        assert!(said.contains("warning: replies are dropped"), "{said}");
        lab.down().unwrap();
    }
}
