//! Tracing of this machine while a lab does what is to be seen. Needs root.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine};
use udpath_profile::classes::Rules;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::trace::locks::Part;
use udpath_profile::trace::{self, Running, Source, Traces};

/// Rounds that are tried until something was seen that happens by chance.
const ROUNDS: usize = 50;

fn pair(name: &str) -> Lab {
    let builder = LabBuilder::new(name).machine("client").machine("server");
    builder.link("client", "server", &LinkSpec::with_queues(2)).up().unwrap()
}

fn start(source: Source) -> Running {
    trace::start(&BTreeSet::from([source]))
}

fn finish(running: Running) -> Traces {
    let traces = running.finish(&Kernel::running().unwrap(), Rules::built_in());
    assert_eq!(traces.absent, []);
    // What is written can be read again.
    let text = serde_json::to_string(&traces).unwrap();
    assert_eq!(serde_json::from_str::<Traces>(&text).unwrap(), traces);
    traces
}

fn bind(machine: &Machine, address: IpAddr) -> UdpSocket {
    machine.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
}

/// Sends so many datagrams each from two sockets at once.
fn flood(client: &Machine, from: IpAddr, to: SocketAddr, each: usize) {
    thread::scope(|scope| {
        for _ in 0..2 {
            let socket = bind(client, from);
            scope.spawn(move || (0..each).for_each(|_| drop(socket.send_to(&[0; 64], to))));
        }
    });
}

#[test]
fn a_contended_socket_is_named_with_its_locks() {
    let lab = pair("t-trace-locks");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let there = IpAddr::from(lab.address_of("server", "client").unwrap().ipv4);
    let here = IpAddr::from(lab.address_of("client", "server").unwrap().ipv4);
    let socket = bind(server, there);
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let to = socket.local_addr().unwrap();
    let is_ours = |trace: &Traces| {
        let places = &trace.locks.as_ref().unwrap().places;
        places.iter().any(|place| {
            place.owner == "socket-receive-queue"
                && place.socket.as_ref().is_some_and(|lock| {
                    lock.socket.port == to.port()
                        && lock.socket.address == Some(there)
                        && matches!(lock.part, Part::ReceiveQueue | Part::ReaderQueue)
                })
        })
    };
    for round in 0.. {
        let running = start(Source::Locks);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut bytes = [0; 64];
                    while !done.load(Ordering::Relaxed) {
                        let _ = socket.recv(&mut bytes);
                    }
                });
            }
            flood(client, here, to, 50_000);
            done.store(true, Ordering::Relaxed);
        });
        let traces = finish(running);
        if is_ours(&traces) {
            let locks = traces.locks.unwrap();
            for place in &locks.places {
                let lengths: u64 = place.waits.lengths.iter().map(|length| length.waits).sum();
                assert_eq!(lengths, place.waits.waits);
                assert!(place.waits.longest_ns <= place.waits.ns, "{place:?}");
            }
            let begin = traces.costs.iter().find(|cost| cost.at == "contention_begin").unwrap();
            assert!(begin.share < 1.0 && begin.runs_per_second.is_finite(), "{begin:?}");
            break;
        }
        assert!(round < ROUNDS, "{traces:#?}");
    }
    lab.down().unwrap();
}
