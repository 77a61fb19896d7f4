//! What each rule chooses, with sockets and datagrams on loopback. Needs root.

mod program;
mod queries;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use error_reporter::Report;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use udpath_bpf::{Chooser, Installed, ReuseportIterator, Selection, SelectionRule as Rule, detach_selection};
use udpath_lab::online_cpus;
use udpath_rig::{awaited, member};

/// How long a datagram on loopback is waited for. It arrives while it is sent, unless the CPU is busy.
const ARRIVES: Duration = Duration::from_secs(10);
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

/// The sockets of a reuseport group.
struct Group {
    sockets: Vec<UdpSocket>,
    address: SocketAddr,
}

impl Group {
    fn new(host: &str, members: usize) -> Self {
        let free = UdpSocket::bind((host, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        Self { sockets: (0..members).map(|_| member(address)).collect(), address }
    }

    /// A program with `rule`, and each socket in the slot of its index.
    fn select(&self, rule: Rule) -> Selection {
        let mut selection =
            Selection::attach(self.sockets[0].as_fd(), rule, self.sockets.len() as u32).unwrap();
        for (slot, socket) in (0..).zip(&self.sockets) {
            selection.set(slot, Some(socket.as_fd())).unwrap();
        }
        selection
    }

    /// Reads what is queued until all `sent` datagrams have arrived; how many each socket had.
    fn received(&self, sent: usize) -> Vec<usize> {
        let mut counts = vec![0; self.sockets.len()];
        let end = Instant::now() + ARRIVES;
        while counts.iter().sum::<usize>() < sent && Instant::now() < end {
            for (count, socket) in counts.iter_mut().zip(&self.sockets) {
                *count += read(socket, usize::MAX);
            }
        }
        assert_eq!(counts.iter().sum::<usize>(), sent, "none is lost: {counts:?}");
        counts
    }

    /// One datagram of each of `flows` flows; how many each socket had.
    fn of_flows(&self, flows: &[UdpSocket], payload: &[u8]) -> Vec<usize> {
        flows.iter().for_each(|flow| assert_eq!(flow.send(payload).unwrap(), payload.len()));
        self.received(flows.len())
    }

    fn flow(&self) -> UdpSocket {
        let flow = UdpSocket::bind((self.address.ip(), 0)).unwrap();
        flow.connect(self.address).unwrap();
        flow
    }

    fn flows(&self, count: usize) -> Vec<UdpSocket> {
        (0..count).map(|_| self.flow()).collect()
    }
}

/// Reads up to `most` queued datagrams.
fn read(socket: &UdpSocket, most: usize) -> usize {
    let mut bytes = [0; 2048];
    (0..most)
        .take_while(|_| match socket.recv(&mut bytes) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        })
        .count()
}

fn send(flow: &UdpSocket, datagrams: usize) {
    for _ in 0..datagrams {
        assert_eq!(flow.send(b"datagram").unwrap(), 8);
    }
}

/// Each within `tolerance` of an equal part.
fn is_even(counts: &[usize], tolerance: usize) -> bool {
    let part = counts.iter().sum::<usize>() / counts.len();
    counts.iter().all(|count| count.abs_diff(part) <= tolerance)
}

/// Who got something.
fn receivers(counts: &[usize]) -> Vec<usize> {
    (0..counts.len()).filter(|at| counts[*at] > 0).collect()
}

#[test]
fn round_robin_spreads_the_datagrams_of_one_flow() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let group = Group::new(host, 4);
        let flow = group.flow();
        send(&flow, 40);
        assert_eq!(receivers(&group.received(40)).len(), 1, "by the kernel's hash");
        let selection = group.select(Rule::RoundRobin);
        send(&flow, 800);
        let counts = group.received(800);
        // 25 % +- 2; exact on each CPU, and this thread may move.
        assert!(is_even(&counts, 16), "{host}: {counts:?}");
        let counted: Vec<usize> =
            selection.datagrams().unwrap().into_iter().map(|count| count as usize).collect();
        assert_eq!(counted, counts, "{host}");
    }
}

#[test]
fn a_closed_socket_and_an_emptied_slot_are_replaced_by_the_others() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let mut group = Group::new(host, 4);
        let mut selection = group.select(Rule::RoundRobin);
        let flow = group.flow();
        drop(group.sockets.remove(1));
        // Once no CPU reads the socket (RCU).
        awaited("the kernel to empty its slot", ARRIVES, || {
            selection.sockets().unwrap()[1].is_none().then_some(())
        });
        send(&flow, 300);
        let counts = group.received(300);
        assert!(is_even(&counts, 10), "{host}: {counts:?}");

        // What is queued is read after the slot is empty.
        send(&flow, 30);
        selection.set(3, None).unwrap();
        send(&flow, 100);
        let queued = group.received(130);
        assert!((8..=12).contains(&queued[2]) && is_even(&queued[..2], 5), "{host}: {queued:?}");

        // Another socket takes the slot of the closed one.
        group.sockets.push(member(group.address));
        selection.set(1, Some(group.sockets[3].as_fd())).unwrap();
        send(&flow, 300);
        let counts = group.received(300);
        assert_eq!(counts[2], 0, "{host}: {counts:?}");
        assert!(is_even(&[counts[0], counts[1], counts[3]], 10), "{host}: {counts:?}");

        // Without any, the kernel's hash chooses among all.
        (0..4).for_each(|slot| selection.set(slot, None).unwrap());
        let counts = group.of_flows(&group.flows(200), b"datagram");
        assert_eq!(receivers(&counts), [0, 1, 2, 3], "{host}: {counts:?}");
    }
}

#[test]
fn the_hash_keeps_each_flow_on_one_socket() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let mut group = Group::new(host, 4);
        let mut selection = group.select(Rule::Hash);
        let flows = group.flows(64);
        let places: Vec<Vec<usize>> = flows
            .iter()
            .map(|flow| {
                send(flow, 5);
                receivers(&group.received(5))
            })
            .collect();
        assert!(places.iter().all(|at| at.len() == 1), "{host}: {places:?}");
        assert!((0..4).all(|at| places.contains(&vec![at])), "{host}: {places:?}");

        // Those of a closed socket go to the next, the others stay.
        drop(group.sockets.remove(2));
        for (flow, before) in flows.iter().zip(&places) {
            send(flow, 1);
            // The one at 3 is at 2 now.
            let expected = if before[0] < 2 { before[0] } else { 2 };
            assert_eq!(receivers(&group.received(1)), [expected], "{host}");
        }
        // With the slot emptied, over the others.
        selection.set(2, None).unwrap();
        let counts = group.of_flows(&flows, b"datagram");
        assert_eq!(receivers(&counts), [0, 1, 2], "{host}: {counts:?}");
    }
}

#[test]
fn the_receiving_cpu_chooses() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let group = Group::new(LOOPBACK[0], 2);
    let _selection = group.select(Rule::Cpu);
    let flow = group.flow();
    for cpu in online_cpus().unwrap().iter().take(4) {
        let one = [cpu].into_iter().collect();
        // On loopback the sender's CPU receives.
        udpath_lab::confined(&one, || send(&flow, 20)).unwrap();
        assert_eq!(receivers(&group.received(20)), [cpu as usize % 2], "CPU {cpu}");
    }
}

#[test]
fn the_shortest_queue_gets_the_datagram() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let group = Group::new(host, 3);
        let mut selection = Selection::attach(group.sockets[0].as_fd(), Rule::LeastLoaded, 3).unwrap();
        selection.set(0, Some(group.sockets[0].as_fd())).unwrap();
        let flow = group.flow();
        send(&flow, 20);
        arrive(&selection, 20);
        for slot in [1, 2] {
            selection.set(slot, Some(group.sockets[slot as usize].as_fd())).unwrap();
        }
        // Until the others have as many; of equal ones in turn.
        send(&flow, 20);
        arrive(&selection, 40);
        assert_eq!(selection.datagrams().unwrap(), [20, 10, 10], "{host}");
        send(&flow, 20 + 30);
        arrive(&selection, 90);
        assert_eq!(selection.datagrams().unwrap(), [30, 30, 30], "{host}");

        // What a reader has taken does not count, also while the kernel still accounts it: one is left in this queue.
        assert_eq!(read(&group.sockets[1], 29), 29);
        send(&flow, 29);
        arrive(&selection, 119);
        assert_eq!(selection.datagrams().unwrap(), [30, 59, 30], "{host}");

        // Equal, because empty: in turn.
        assert_eq!(group.received(90), [30, 30, 30]);
        selection.set(2, None).unwrap();
        for _ in 0..50 {
            send(&flow, 1);
            group.received(1);
        }
        let counts = selection.datagrams().unwrap();
        assert!((20..=30).contains(&(counts[0] - 30)) && counts[2] == 30, "{host}: {counts:?}");
    }
}

#[test]
fn of_empty_queues_the_one_whose_reader_waits_gets_the_datagram() {
    udpath_lab::needs_root!();
    const DATAGRAMS: usize = 12;
    for host in LOOPBACK {
        let group = Group::new(host, 3);
        let selection = group.select(Rule::LeastLoaded);
        let flow = group.flow();
        let reader = group.sockets[1].try_clone().unwrap();
        reader.set_nonblocking(false).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            for _ in 0..DATAGRAMS {
                reader.recv(&mut [0; 16]).unwrap();
            }
        });
        let thread = told.recv().unwrap();
        for _ in 0..DATAGRAMS {
            waits_to_receive(thread);
            send(&flow, 1);
        }
        reading.join().unwrap();
        assert_eq!(selection.datagrams().unwrap(), [0, DATAGRAMS as u64, 0], "{host}");
    }
}

/// Waits until the thread sleeps in recvfrom (proc(5), /proc/PID/syscall).
fn waits_to_receive(thread: rustix::thread::Pid) {
    let call = format!("{} ", libc::SYS_recvfrom);
    let path = format!("/proc/self/task/{}/syscall", thread.as_raw_nonzero());
    let end = Instant::now() + ARRIVES;
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(&call)) {
        assert!(Instant::now() < end, "{path} never shows recvfrom");
    }
}

/// Waits until as many datagrams have been given to sockets.
fn arrive(selection: &Selection, datagrams: u64) {
    let end = Instant::now() + ARRIVES;
    while selection.datagrams().unwrap().iter().sum::<u64>() < datagrams {
        assert!(Instant::now() < end, "{:?} of {datagrams}", selection.datagrams());
    }
}

#[test]
fn a_field_of_the_payload_chooses() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let group = Group::new(host, 4);
        let _selection = group.select(Rule::Field { offset: 3, length: 4 });
        let flows = group.flows(12);
        let mut places = Vec::new();
        for id in 0..64_u32 {
            let mut payload = *b"abcIIIIxyz";
            payload[3..7].copy_from_slice(&id.to_be_bytes());
            // The bytes around it do not matter, nor does the flow.
            let mut counts = group.of_flows(&flows[..6], &payload);
            (payload[2], payload[7]) = (b'?', b'!');
            let other = group.of_flows(&flows[6..], &payload);
            counts.iter_mut().zip(other).for_each(|(count, more)| *count += more);
            assert_eq!(receivers(&counts).len(), 1, "{host}: {id}: {counts:?}");
            places.extend(receivers(&counts));
        }
        // Of 64, one socket gets fewer than 4 or more than 32 in one of 10,000 draws; the hash is always the same.
        let shares: Vec<usize> =
            (0..4).map(|at| places.iter().filter(|place| **place == at).count()).collect();
        assert!(shares.iter().all(|share| (4..=32).contains(share)), "{host}: {shares:?}");

        // Exactly as long as needed, and one byte shorter: by flow.
        let places = |payload: &[u8]| {
            let of = |flow: &UdpSocket| {
                (0..3).for_each(|_| assert_eq!(flow.send(payload).unwrap(), payload.len()));
                receivers(&group.received(3))
            };
            flows.iter().map(of).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(places(b"abcIIII").len(), 1, "{host}");
        let by_flow = places(b"abcIII");
        assert!(by_flow.len() > 1 && by_flow.iter().all(|at| at.len() == 1), "{host}: {by_flow:?}");
    }
}
