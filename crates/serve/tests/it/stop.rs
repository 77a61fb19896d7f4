//! Stopping answers what is queued, and every lost datagram is counted, over every Io. Needs root.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use udpath_serve::{Config, Io, Outcome, Reply, Request, Service};

use crate::support::{
    Case, Echo, Gate, GatedEcho, TIMEOUT, cases, client, config, link, receive, start, stop, target,
    wait_until,
};

/// A specific address, the wildcard of the other family, and both at once.
fn binds(own: &str) -> Vec<Vec<String>> {
    vec![vec![format!("{own}:0")], vec!["[::]:0".into()], vec![format!("{own}:0"), "[::]:0".into()]]
}

#[test]
fn what_is_queued_is_answered_before_the_end() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    // Fewer than the 256 small datagrams that fit the default receive buffer.
    const QUEUED: usize = 150;
    let lab = link("serve-queued", 2);
    for case in cases(&lab, binds) {
        let gate = Gate::default();
        let held = gate.clone();
        let server = case.start(move |_| GatedEcho(held.clone()));
        let addresses = case.config.binds.len();
        let clients: Vec<_> = (0..addresses).map(|index| case.client(&server, index)).collect();
        for client in &clients {
            for number in 0..QUEUED {
                client.send(&(number as u32).to_le_bytes()).unwrap();
            }
        }
        gate.holds(1);
        case.taken(&server, (QUEUED * addresses) as u64);
        let target_port = server.binds()[0].port();
        let stopping = thread::spawn(move || stop(server));
        // Until the server stops receiving: then a datagram that finds space in the queue is dropped as well.
        wait_until("the server stops receiving", || {
            clients[0].send(b"late").unwrap();
            case.at_server(|| drops_at(target_port)) > 0
        });
        gate.open();
        let status = stopping.join().unwrap();
        assert_eq!(status.kernel_drops, 0, "{case}");
        assert_eq!(status.total.received, status.total.answered, "{case}");
        for client in &clients {
            let mut numbers: Vec<_> = Vec::new();
            while numbers.len() < QUEUED {
                if let Ok(number) = <[u8; 4]>::try_from(receive(client)).map(u32::from_le_bytes)
                    && number < QUEUED as u32
                {
                    numbers.push(number);
                }
            }
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..QUEUED as u32), "{case}: {numbers:?}");
        }
    }
    lab.down().unwrap();
}

/// Datagrams the kernel dropped at the sockets of a port.
fn drops_at(port: u16) -> u64 {
    let mut drops = 0;
    for table in ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"] {
        for line in std::fs::read_to_string(table).unwrap().lines().skip(1) {
            let columns: Vec<_> = line.split_whitespace().collect();
            if columns[1].ends_with(&format!(":{port:04X}")) {
                drops += columns.last().unwrap().parse::<u64>().unwrap();
            }
        }
    }
    drops
}

#[test]
fn a_server_under_load_still_stops() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-stops", 2);
    for case in cases(&lab, binds) {
        let server = case.start(|_| Echo);
        let client = case.client(&server, 0);
        let over = Arc::new(AtomicBool::new(false));
        let flood = {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Errors are expected once the socket is gone.
                while !over.load(Relaxed) {
                    let _ = client.send(b"flood");
                }
            })
        };
        wait_until("traffic flows", || server.status().total.received > 1_000);
        let begun = Instant::now();
        stop(server);
        over.store(true, Relaxed);
        flood.join().unwrap();
        assert!(begun.elapsed() < TIMEOUT, "{case}: {:?}", begun.elapsed());
    }
    lab.down().unwrap();
}

#[test]
fn an_idle_server_stops_and_frees_its_ports() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-idle", 2);
    for mut case in cases(&lab, binds) {
        let server = case.start(|_| Echo);
        let io = server.io();
        case.config.binds = server.binds().to_vec();
        assert_eq!(stop(server).total.received, 0, "the probe is no traffic");
        let server = case.start(|_| Echo);
        assert_eq!(server.io(), io);
        // Dropping the server stops it as well.
        drop(server);
        stop(case.start(|_| Echo));
    }
    lab.down().unwrap();
}

/// Takes 50 us for every answer.
struct Slow;

impl Service for Slow {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let until = Instant::now() + Duration::from_micros(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        reply.write(request.payload())
    }
}

#[test]
fn under_overload_every_datagram_is_accounted_for() {
    let _turn = udpath_rig::together();
    const SENT: u64 = 20_000;
    for io in Io::KERNEL {
        for (batch, bind) in [(1, "127.0.0.1:0"), (32, "[::1]:0"), (32, "0.0.0.0:0")] {
            let small = Config { batch, receive_buffer: Some(16 << 10), ..config(io, bind) };
            let server = start(&small, |_| Slow).unwrap();
            let flows: Vec<UdpSocket> = (0..8).map(|_| client(target(&server, 0))).collect();
            for number in 0..SENT {
                // Loopback delivers, or drops at the socket, before `send` returns.
                flows[number as usize % flows.len()].send(b"overload").unwrap();
            }
            wait_until("the queues are empty", || {
                let status = server.status();
                status.total.received + status.kernel_drops == SENT
            });
            let status = stop(server);
            assert!(status.kernel_drops > 0, "{io} {bind}: no overload");
            assert_eq!(status.total.received + status.kernel_drops, SENT, "{io} {bind}");
            assert_eq!(status.total.answered, status.total.received);
            assert_eq!(status.sockets.iter().map(|s| s.kernel_drops).sum::<u64>(), status.kernel_drops);
        }
    }
}

/// Frames are lost only before workers receive them: what they receive is answered, and the server continues.
#[test]
fn under_overload_every_frame_that_came_is_answered() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    const SENT: u64 = 20_000;
    let lab = link("serve-overload", 2);
    for mut case in cases(&lab, binds).into_iter().filter(Case::takes_frames) {
        // Small rings, so that they fill up.
        case.config.xdp.port.receive = 64;
        case.config.xdp.port.fill = 64;
        let server = case.start(|_| Slow);
        let flows: Vec<UdpSocket> = (0..8).map(|_| case.client(&server, 0)).collect();
        for number in 0..SENT {
            flows[number as usize % flows.len()].send(b"overload").unwrap();
        }
        // It still answers after the losses.
        let client = case.client(&server, 0);
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut asked = 0;
        wait_until("an answer after the overload", || {
            asked += 1;
            client.send(b"after").unwrap();
            client.recv(&mut [0; 8]).is_ok()
        });
        let total = stop(server).total;
        assert!(total.received < SENT + asked, "{case}: no overload");
        assert_eq!(total.answered, total.received, "{case}");
    }
    lab.down().unwrap();
}

#[test]
fn percpu_warns_when_everything_arrives_on_one_cpu() {
    // With one CPU there is nothing to spread.
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::together();
    let cpus = udpath_serve::allowed_cpus().unwrap();
    let two = [cpus.first().unwrap(), cpus.last().unwrap()];
    let mut config = config(Io::Percpu, "127.0.0.1:0");
    config.cpus = Some(two.into_iter().collect());
    let server = start(&config, |_| Echo).unwrap();
    let to = target(&server, 0);
    for cpu in two {
        thread::spawn(move || {
            let mut mask = rustix::thread::CpuSet::new();
            mask.set(cpu as usize);
            rustix::thread::sched_setaffinity(None, &mask).unwrap();
            let client = client(to);
            for _ in 0..3_000 {
                client.send(b"x").unwrap();
                receive(&client);
            }
        })
        .join()
        .unwrap();
        let warnings = server.status().warnings;
        assert!(warnings[0].contains(&format!("on CPU {cpu};")), "{warnings:?}");
    }
    let even = stop(server);
    assert_eq!(even.shares().values().map(|share| (share * 10.0).round()).collect::<Vec<_>>(), [5.0, 5.0]);
}
