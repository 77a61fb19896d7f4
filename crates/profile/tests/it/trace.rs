//! Tracing of this machine while a lab generates the events. Needs root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine};
use udpath_profile::classes::Rules;
use udpath_profile::recorder::{Moment, Wanted, record_with};
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::trace::delays::SocketDelay;
use udpath_profile::trace::drops::{Drop, Way};
use udpath_profile::trace::locks::Part;
use udpath_profile::trace::{self, Running, Source, Traces};

/// Most rounds until an event that depends on chance is seen.
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
    // The written JSON can be read again; fractions may lose their last digit.
    let text = serde_json::to_string(&traces).unwrap();
    let again = Traces { costs: traces.costs.clone(), ..serde_json::from_str(&text).unwrap() };
    assert_eq!(again, traces);
    traces
}

/// Addresses of the programs that trace drops, and their names.
fn tracers_of_drops() -> BTreeMap<u64, String> {
    let text = fs::read_to_string("/proc/kallsyms").unwrap();
    let lines = text.lines().filter(|line| line.ends_with("_kfree_skb\t[bpf]"));
    let entry = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?.to_owned()))
    };
    lines.filter_map(entry).collect()
}

#[test]
fn a_program_that_is_loaded_while_sampling_has_its_name() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let wanted = Wanted {
        cpus: udpath_lab::online_cpus().unwrap(),
        pid: None,
        length: Duration::from_millis(100),
        rate: 99,
    };
    let (mut before, mut running) = (BTreeMap::new(), None);
    let recording = record_with(&wanted, &AtomicBool::new(false), |moment| {
        if matches!(moment, Moment::Begin) {
            before = tracers_of_drops();
            running = Some(start(Source::Drops));
        }
    });
    let (recording, after) = (recording.unwrap(), tracers_of_drops());
    let new: Vec<_> = after.iter().filter(|(address, _)| !before.contains_key(*address)).collect();
    let kernel = recording.samples.kernel();
    let named = |(address, name): &(&u64, &String)| {
        kernel.frame(**address).is_some_and(|frame| frame.function == name.as_str())
    };
    // Other tests may have loaded more since.
    assert!(new.iter().any(named), "none of {new:x?} has a name");
    finish(running.unwrap());
}

fn bind(machine: &Machine, address: IpAddr) -> UdpSocket {
    machine.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
}

/// The addresses of both ends, the client's first.
fn addresses(lab: &Lab) -> (IpAddr, IpAddr) {
    let of = |here, there| lab.address_of(here, there).unwrap().ipv4.into();
    (of("client", "server"), of("server", "client"))
}

/// The inode number of a machine's network namespace.
fn netns(machine: &Machine) -> u32 {
    let inode = machine.run(|| fs::metadata("/proc/thread-self/ns/net").unwrap().ino()).unwrap();
    u32::try_from(inode).unwrap()
}

/// Waits until there is something to read.
fn wait_for(socket: &UdpSocket) {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).unwrap(), 1);
}

/// Sends `each` datagrams from each of two sockets concurrently.
fn flood(client: &Machine, from: IpAddr, to: SocketAddr, each: usize) {
    thread::scope(|scope| {
        for _ in 0..2 {
            let socket = bind(client, from);
            scope.spawn(move || (0..each).for_each(|_| drop(socket.send_to(&[0; 64], to))));
        }
    });
}

/// Two threads read a socket as fast as they can while two others send to it.
fn read_under_flood(socket: &UdpSocket, client: &Machine, from: IpAddr) {
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
        flood(client, from, socket.local_addr().unwrap(), 50_000);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_contended_socket_is_named_with_its_locks() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-trace-locks");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = addresses(&lab);
    let netns = netns(server);
    let socket = bind(server, there);
    // Readers that never sleep take its lock repeatedly.
    socket.set_nonblocking(true).unwrap();
    let to = socket.local_addr().unwrap();
    let is_ours = |trace: &Traces| {
        let places = &trace.locks.as_ref().unwrap().places;
        places.iter().any(|place| {
            place.owner == "socket-receive-queue"
                && place.socket.as_ref().is_some_and(|lock| {
                    lock.socket.port == to.port()
                        && lock.socket.address == Some(there)
                        && lock.socket.netns == Some(netns)
                        && matches!(lock.part, Part::ReceiveQueue | Part::ReaderQueue)
                })
        })
    };
    for round in 0.. {
        let running = start(Source::Locks);
        read_under_flood(&socket, client, here);
        let traces = finish(running);
        if is_ours(&traces) {
            let locks = traces.locks.unwrap();
            for place in &locks.places {
                let lengths: u64 = place.waits.lengths.iter().map(|length| length.count).sum();
                assert_eq!(lengths, place.waits.count);
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

#[test]
fn drops_are_reported_by_reason_and_port() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-trace-drops");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = addresses(&lab);
    // A port that is closed again, and an unread socket with a tiny buffer.
    let nobody = bind(server, there).local_addr().unwrap();
    let full = bind(server, there);
    set_socket_recv_buffer_size(&full, 1).unwrap();
    let to = full.local_addr().unwrap();
    let running = start(Source::Drops);
    flood(client, here, nobody, 50);
    flood(client, here, to, 50);
    let drops = finish(running).drops.unwrap();
    let of = |reason: &str, port: u16| {
        let same =
            |drop: &&Drop| drop.reason == reason && drop.port == Some(port) && drop.way == Way::Received;
        drops.lines.iter().filter(same).collect::<Vec<_>>()
    };
    let packets = |lines: &[&Drop]| lines.iter().map(|drop| drop.packets).sum::<u64>();
    let no_socket = of("NO_SOCKET", nobody.port());
    assert_eq!(packets(&no_socket), 100, "{drops:#?}");
    assert!(no_socket.iter().all(|drop| drop.function.as_deref().is_some_and(|name| name.contains("udp"))));
    let no_room = packets(&of("SOCKET_RCVBUFF", to.port()));
    assert!((1..=100).contains(&no_room), "{drops:#?}");
    // Those that were not dropped are still queued.
    full.set_nonblocking(true).unwrap();
    let mut bytes = [0; 64];
    assert_eq!(no_room + std::iter::from_fn(|| full.recv(&mut bytes).ok()).count() as u64, 100);
    assert_eq!(drops.no_room, 0);
    lab.down().unwrap();
}

#[test]
fn a_sleeping_reader_is_seen_in_the_delay() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    const SLEEP: Duration = Duration::from_millis(20);
    let lab = pair("t-trace-delays");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = addresses(&lab);
    let (reader, sender) = (bind(server, there), bind(client, here));
    let (to, netns) = (reader.local_addr().unwrap(), netns(server));
    for round in 0.. {
        let running = start(Source::Delays);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let begin = Instant::now();
            sender.send_to(&[0; 64], to).unwrap();
            wait_for(&reader);
            thread::sleep(SLEEP);
            reader.recv(&mut [0; 64]).unwrap();
            waits.push(begin.elapsed());
        }
        let delays = finish(running).delays.unwrap();
        let ours = delays.sockets.iter().find(|delay| {
            let socket = delay.socket;
            (socket.port, socket.address, socket.netns) == (to.port(), Some(there), Some(netns))
        });
        // While other programs on this machine send a lot, some are not tracked.
        if let Some(found) = ours {
            assert!((1..=10).contains(&found.to_reader.count), "{delays:#?}");
            let (least, most) = (SLEEP.as_nanos() as u64, waits.iter().max().unwrap().as_nanos() as u64);
            assert!(found.to_reader.ns >= least * found.to_reader.count, "{delays:#?}");
            assert!((least..=most).contains(&found.to_reader.longest_ns), "{delays:#?}");
            // A range is at most 1/16 of its value wide.
            let median = found.to_reader.quantile_ns(0.5).unwrap();
            assert!((least..=most / 16 * 17).contains(&median), "{delays:#?}");
            assert_eq!(found.to_socket.count, found.to_reader.count);
            assert!(found.to_socket.longest_ns < most, "{delays:#?}");
            break;
        }
        assert!(round < ROUNDS, "{delays:#?}");
    }
    lab.down().unwrap();
}

#[test]
fn delays_of_a_crowded_queue_are_believable() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-trace-crowd");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = addresses(&lab);
    let (socket, netns) = (bind(server, there), netns(server));
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let to = socket.local_addr().unwrap();
    let begin = Instant::now();
    let running = start(Source::Delays);
    // The memory of one reader's datagrams is reused while the other still reads.
    read_under_flood(&socket, client, here);
    let delays = finish(running).delays.unwrap();
    let whole = u64::try_from(begin.elapsed().as_nanos()).unwrap();
    let followed: u64 = delays.sockets.iter().map(|delay| delay.to_reader.count).sum();
    assert!(followed + delays.dropped + delays.no_room + delays.missed <= delays.sampled, "{delays:?}");
    assert!(delays.sampled <= delays.seen && delays.every() >= Some(1.0));
    let ours = |delay: &&SocketDelay| (delay.socket.port, delay.socket.netns) == (to.port(), Some(netns));
    let ours = delays.sockets.iter().find(ours).expect("some are followed");
    for times in [&ours.to_socket, &ours.to_reader] {
        assert_eq!(times.lengths.iter().map(|length| length.count).sum::<u64>(), times.count);
        assert!(times.longest_ns < whole && times.ns / times.count <= times.longest_ns, "{times:?}");
    }
    lab.down().unwrap();
}

#[test]
fn softirqs_polls_and_wakeups_are_counted() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    const DATAGRAMS: u64 = 1000;
    let lab = pair("t-trace-softirqs");
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let (here, there) = addresses(&lab);
    let (reader, sender) = (bind(server, there), bind(client, here));
    let to = reader.local_addr().unwrap();
    let running = start(Source::Softirqs);
    thread::scope(|scope| {
        // One at a time, so that the reader sleeps before each.
        let (asked, told) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for () in told {
                sender.send_to(&[0; 64], to).unwrap();
            }
        });
        for _ in 0..DATAGRAMS {
            asked.send(()).unwrap();
            reader.recv(&mut [0; 64]).unwrap();
        }
    });
    let softirqs = finish(running).softirqs.unwrap();
    let net_rx = softirqs.of("NET_RX");
    let runs: u64 = net_rx.iter().map(|softirq| softirq.runs).sum();
    assert!(runs > 0 && net_rx.iter().all(|softirq| softirq.ns > 0), "{softirqs:#?}");
    for softirq in &softirqs.vectors {
        let late: u64 = softirq.late.lengths.iter().map(|length| length.count).sum();
        assert_eq!(late, softirq.late.count, "{softirq:?}");
    }
    let packets: u64 = softirqs.polls.iter().map(|polls| polls.packets).sum();
    assert!(packets >= DATAGRAMS, "{softirqs:#?}");
    for polls in &softirqs.polls {
        assert_eq!(polls.sizes.iter().map(|size| size.polls).sum::<u64>(), polls.polls, "{polls:?}");
    }
    assert!(softirqs.wakeups.iter().sum::<u64>() > 0);
    lab.down().unwrap();
}

#[test]
fn disabled_sources_are_absent() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let traces = finish(trace::start(&BTreeSet::new()));
    assert_eq!(traces, Traces::default());
}
