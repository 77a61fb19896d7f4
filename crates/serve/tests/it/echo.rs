//! Every Io, both families, every batch, specific and wildcard addresses: payloads of all sizes come back unchanged.

use std::io::Write;
use std::process::{Command, Stdio};

use udpath_serve::{Config, Io, IoChoice, MAX_BATCH, ReceiveCall};

use crate::support::{Echo, Gate, GatedEcho, client, config, payload, receive, start, stop, target};

const BINDS: [&str; 4] = ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"];

/// Sizes around limits: empty, one byte, a cache line, a page, an Ethernet frame, fragments, the maximum.
const SIZES: [usize; 14] = [0, 1, 2, 63, 64, 100, 1_472, 1_473, 4_095, 4_097, 16_384, 60_000, 65_506, 65_507];

#[test]
fn all_sizes_come_back_unchanged() {
    let _turn = udpath_rig::together();
    for io in Io::KERNEL {
        for bind in BINDS {
            for batch in [1, 2, Config::DEFAULT_BATCH, MAX_BATCH] {
                let server = start(&Config { batch, ..config(io, bind) }, |_| Echo).unwrap();
                let to = target(&server, 0);
                let longest = if to.is_ipv6() { Some(65_527) } else { None };
                let mut sent = 0;
                // Several flows, so that more than one worker serves.
                for _ in 0..4 {
                    let client = client(to);
                    for size in SIZES.into_iter().chain(longest) {
                        client.send(&payload(size)).unwrap();
                        assert!(receive(&client) == payload(size), "{io} {bind} batch {batch}: {size} bytes");
                        sent += 1;
                    }
                }
                let status = stop(server);
                assert_eq!(status.total.answered, sent, "{io} {bind} batch {batch}");
                assert_eq!(status.total.answered_bytes, status.total.received_bytes);
                assert_eq!(status.kernel_drops, 0);
            }
        }
    }
}

/// Each call, where the configuration allows it, whichever would be the cheapest.
#[test]
fn every_receive_call_serves() {
    let _turn = udpath_rig::together();
    for (call, batch, bind) in [
        (ReceiveCall::Recvfrom, 1, "127.0.0.1:0"),
        (ReceiveCall::Recvmsg, 1, "[::1]:0"),
        (ReceiveCall::Recvmsg, 1, "0.0.0.0:0"),
        (ReceiveCall::Recvmmsg, 1, "127.0.0.1:0"),
        (ReceiveCall::Recvmmsg, 8, "[::]:0"),
    ] {
        for io in Io::KERNEL {
            let config = Config { receive_call: Some(call), batch, ..config(io, bind) };
            let server = start(&config, |_| Echo).unwrap();
            let client = client(target(&server, 0));
            for size in SIZES {
                client.send(&payload(size)).unwrap();
                assert!(receive(&client) == payload(size), "{call} {io} {bind} batch {batch}: {size} bytes");
            }
            let status = stop(server);
            assert_eq!(status.total.answered, SIZES.len() as u64, "{call} {io} {bind}");
            assert!(status.cpu_seconds > 0.0 && status.seconds > 0.0, "{call}: {}", status.cpu_seconds);
        }
    }
}

#[test]
fn a_burst_of_mixed_sizes_comes_back_in_order() {
    let _turn = udpath_rig::together();
    for (io, bind) in Io::KERNEL.into_iter().flat_map(|io| BINDS.map(|bind| (io, bind))) {
        let gate = Gate::default();
        let held = gate.clone();
        let one = Config { workers: Some(1), batch: 64, ..config(io, bind) };
        let server = start(&one, move |_| GatedEcho(held.clone())).unwrap();
        let client = client(target(&server, 0));
        // One datagram blocks the worker, so that the others form one burst.
        let sizes = [1, 5, 0, 2_000, 3, 20_000, 64, 65, 1, 9_000];
        client.send(&payload(sizes[0])).unwrap();
        gate.holds(1);
        for size in &sizes[1..] {
            client.send(&payload(*size)).unwrap();
        }
        gate.open();
        for size in sizes {
            assert!(receive(&client) == payload(size), "{io} {bind}: {size} bytes");
        }
        let status = stop(server);
        assert_eq!((status.total.answered, status.total.bursts), (10, 2), "{io} {bind}");
    }
}

/// Runs a client program with the payload on its standard input; returns its output.
fn run(program: &str, arguments: &[String], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}; install it"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn netcat_and_socat_are_answered() {
    let _turn = udpath_rig::together();
    for io in Io::KERNEL {
        for bind in BINDS {
            let server = start(&config(io, bind), |_| Echo).unwrap();
            let to = target(&server, 0);
            let (host, port) = (to.ip().to_string(), to.port().to_string());
            // nc reads 16 KiB at a time, which limits its datagrams. -W 1: end after one answer.
            for size in [1, 100, 1_473, 16_384] {
                let arguments = ["-u", "-W", "1", "-w", "5", &host, &port].map(String::from);
                assert!(run("nc", &arguments, &payload(size)) == payload(size), "nc {io} {bind}: {size}");
            }
            for size in [1, 1_473, 65_507] {
                let peer = match to.is_ipv6() {
                    true => format!("UDP6:[{host}]:{port}"),
                    false => format!("UDP4:{host}:{port}"),
                };
                // -t: how long to wait for the answer after the end of the input.
                let arguments = ["-b", "65536", "-t", "0.2", "-", &peer].map(String::from);
                assert!(
                    run("socat", &arguments, &payload(size)) == payload(size),
                    "socat {io} {bind}: {size}"
                );
            }
            assert_eq!(stop(server).total.answered, 7, "{io} {bind}");
        }
    }
}

#[test]
fn several_addresses_are_served_side_by_side() {
    let _turn = udpath_rig::together();
    for io in Io::KERNEL {
        for batch in [1, 32] {
            let mut config = config(io, "127.0.0.1:0");
            config.batch = batch;
            for more in ["127.0.0.2:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
                config.binds.push(more.parse().unwrap());
            }
            let server = start(&config, |_| Echo).unwrap();
            for round in 1..=50 {
                for index in 0..config.binds.len() {
                    let client = client(target(&server, index));
                    client.send(&payload(round)).unwrap();
                    assert_eq!(receive(&client), payload(round));
                }
            }
            let workers = server.workers();
            let status = stop(server);
            assert_eq!(status.total.answered, 250);
            let per_address = if io == Io::Shared { 1 } else { workers };
            assert_eq!(status.sockets.len(), per_address * config.binds.len());
            for bind in status.sockets.iter().map(|socket| socket.bind) {
                let on_it = status.sockets.iter().filter(|socket| socket.bind == bind);
                assert_eq!(on_it.map(|socket| socket.counts.answered).sum::<u64>(), 50, "{io} {bind}");
            }
        }
    }
}

#[test]
fn auto_takes_the_best_and_reports_why_not_another() {
    let _turn = udpath_rig::together();
    let mut config = config(Io::Shared, "127.0.0.1:0");
    config.io = IoChoice::Auto;
    let cpus = udpath_serve::allowed_cpus().unwrap().len();
    let server = start(&config, |_| Echo).unwrap();
    assert_eq!(server.io(), if cpus > 1 { Io::Percpu } else { Io::Shared });
    stop(server);

    // More workers than CPUs: percpu is not possible.
    config.workers = Some(cpus + 1);
    let server = start(&config, |_| Echo).unwrap();
    assert_eq!(server.io(), Io::Reuseport);
    // The loopback has no queue to take frames from.
    assert!(server.rejected()[0].reason.contains("127.0.0.1"), "{:?}", server.rejected());
    assert_eq!(server.rejected().len(), 2);
    assert!(server.rejected()[1].reason.contains("do not fit"), "{:?}", server.rejected());
    stop(server);

    config.workers = Some(1);
    let server = start(&config, |_| Echo).unwrap();
    assert_eq!((server.io(), server.rejected().len()), (Io::Shared, 3));
    stop(server);
}

#[test]
fn workers_are_pinned_only_when_asked() {
    let _turn = udpath_rig::together();
    let server = start(&config(Io::Reuseport, "127.0.0.1:0"), |_| Echo).unwrap();
    let cpus: Vec<u32> = udpath_serve::allowed_cpus().unwrap().iter().collect();
    assert_eq!(server.pinned_to(), Some(cpus.as_slice()));
    stop(server);
    let free = Config { pin: false, ..config(Io::Percpu, "127.0.0.1:0") };
    let server = start(&free, |_| Echo).unwrap();
    assert_eq!(server.pinned_to(), None);
    assert!(stop(server).workers.iter().all(|worker| worker.cpu.is_none()));
}
