//! The device's RSS hash: which frames have it, that it is correct, and that it has no side effects. A veth reports
//! its packets' own hash (`skb->hash`), and has none for frames that XDP sent at its other end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{AddressFamily, RecvFlags, SocketType, eth, recv};
use udpath_bpf::{Outcome, RxHash};
use udpath_lab::Machine;
use udpath_rig::Answer;
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::frame::Burst;
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Outcome as Answered};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::port::xdp::{Attach, Config, XdpDevice, XdpPort};
use udpath_stack::steering::Steering;
use udpath_stack::wire::Packet;
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use super::support::*;
use super::sys;

/// Port on which the client's program answers.
const ANSWERING: u16 = 5400;

fn hashed() -> Config {
    Config { rx_hash: true, ..small() }
}

/// A connected socket of `machine`. Such a socket has a hash of its own.
fn connected(machine: &Machine, to: IpAddr) -> UdpSocket {
    let socket = socket(machine, to);
    socket.connect((to, PORT)).unwrap();
    socket
}

/// Receives `count` datagrams; returns the senders' ports and the hashes.
fn hashes(ports: &mut [XdpPort], count: usize) -> Vec<(u16, Option<u32>)> {
    let mut seen = Vec::with_capacity(count);
    let end = Instant::now() + TIMEOUT;
    let mut burst = Burst::new();
    while seen.len() < count {
        assert!(Instant::now() < end, "{} of {count} have come", seen.len());
        for port in ports.iter_mut() {
            port.receive(&mut burst);
            for frame in &burst {
                let sender = Packet::parse(frame.bytes()).unwrap().source_port();
                seen.push((sender, frame.offloads().hash));
            }
            port.recycle(&mut burst);
            port.flush();
        }
    }
    assert_eq!(seen.len(), count);
    seen
}

#[test]
fn all_of_a_flow_have_one_hash_and_flows_differ() {
    udpath_lab::needs_root!();
    let lab = lab("x-hash", 2);
    let mut device = device(&lab, hashed());
    assert_eq!(
        (device.rx_hash(), device.rx_hash().to_string().as_str()),
        (&RxHash::Device, "from the device")
    );
    let mut ports = ports(&lab, &mut device);
    assert!(ports.iter().all(|port| port.properties().hashed));
    let client = lab.machine("client").unwrap();
    for to in addresses(&lab) {
        // For unconnected sockets the kernel hashes addresses and ports.
        let flows: Vec<UdpSocket> = (0..32)
            .map(|flow| if flow % 2 == 0 { connected(client, to) } else { socket(client, to) })
            .collect();
        let mut by_flow: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for round in 0..8_u8 {
            for (flow, sender) in flows.iter().enumerate() {
                let payload = vec![round; flow * 40];
                if flow % 2 == 0 { sender.send(&payload) } else { sender.send_to(&payload, (to, PORT)) }
                    .unwrap();
            }
            for (sender, hash) in hashes(&mut ports, flows.len()) {
                by_flow.entry(sender).or_default().insert(hash.expect("a packet of a socket has a hash"));
            }
        }
        assert_eq!(by_flow.len(), flows.len());
        assert!(by_flow.values().all(|hashes| hashes.len() == 1 && !hashes.contains(&0)), "{by_flow:?}");
        // Two of 32 random hashes collide once in nine million times.
        let different: BTreeSet<u32> = by_flow.values().flatten().copied().collect();
        assert_eq!(different.len(), flows.len(), "{by_flow:?}");
    }
    assert_eq!(device.outcomes().of(Outcome::NoRoom), 0);
}

#[test]
fn it_is_the_hash_that_the_kernel_has_of_the_packet() {
    udpath_lab::needs_root!();
    let lab = lab("x-skb", 1);
    let mut device = device(&lab, hashed());
    let mut ports = ports(&lab, &mut device);
    let client = lab.machine("client").unwrap();
    let to = addresses(&lab)[0];
    let sender = connected(client, to);
    sender.send(b"first").unwrap();
    let (_, hash) = hashes(&mut ports, 1)[0];
    let hash = hash.unwrap();
    // Two sockets that see the client's packets: one if the kernel's buffer has this hash, one if it has another.
    let watch = |hash| {
        let open = || rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, Some(eth::ALL));
        let socket = client.run(open).unwrap().unwrap();
        sys::only_with_hash(&socket, hash).unwrap();
        socket
    };
    let (right, wrong) = (watch(hash), watch(hash ^ 1));
    sender.send(b"second").unwrap();
    assert_eq!(hashes(&mut ports, 1)[0].1, Some(hash));
    // Other packets may have arrived before the filter was set.
    let saw = |socket: &OwnedFd| {
        let mut bytes = [0; 256];
        let next =
            || recv(socket, &mut bytes, RecvFlags::DONTWAIT).ok().map(|(_, len)| bytes[..len].to_vec());
        std::iter::from_fn(next).any(|packet| packet.ends_with(b"second"))
    };
    assert!(saw(&right) && !saw(&wrong));
}

#[test]
fn frames_of_which_the_device_has_no_hash_have_none() {
    udpath_lab::needs_root!();
    let lab = lab("x-nohash", 1);
    let mut device = device(&lab, hashed());
    let mut ports = ports(&lab, &mut device);
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let to = addresses(&lab)[0];
    let from = lab.address_of("client", "server").unwrap().ipv4;
    // The client's program sends back the frames for its port, as XDP frames.
    let _answer = client.run(|| Answer::attach("eth0", ANSWERING)).unwrap().unwrap();
    let asking = server.run(|| UdpSocket::bind((to, PORT))).unwrap().unwrap();
    let sender = connected(client, to);
    // In turn, and more often than there are frames: each chunk has held a hash before.
    for _ in 0..device.config().frames {
        asking.send_to(b"without", (from, ANSWERING)).unwrap();
        sender.send(b"with").unwrap();
        for (port, hash) in hashes(&mut ports, 2) {
            assert_eq!(hash.is_none(), port == ANSWERING, "from port {port}: {hash:?}");
        }
    }
}

#[test]
fn stale_bytes_before_a_frame_have_no_effect() {
    udpath_lab::needs_root!();
    let lab = lab("x-whole", 2);
    let mut device = device(&lab, hashed());
    let mut ports = ports(&lab, &mut device);
    let client = lab.machine("client").unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut answered = 0;
    for to in addresses(&lab) {
        let longest = if to.is_ipv4() { 1472 } else { 1452 };
        let senders: Vec<UdpSocket> = (0..8).map(|_| connected(client, to)).collect();
        for round in 0..600 {
            let len = match round {
                0 => 0,
                1 => longest,
                _ => next() as usize % (longest + 1),
            };
            // Every third payload is full of the bytes that mark a hash.
            let payload: Vec<u8> = if round % 3 == 0 {
                b"hash".iter().copied().cycle().take(len).collect()
            } else {
                (0..len).map(|_| next() as u8).collect()
            };
            let sender = &senders[round % senders.len()];
            sender.send(&payload).unwrap();
            echo_until(&mut ports, |ports| {
                ports.iter().map(|port| port.counts().transmitted).sum::<u64>() > answered
            });
            answered += 1;
            let mut reply = [0; 2048];
            let got = sender.recv(&mut reply).unwrap();
            assert_eq!(reply[..got], payload, "round {round}, {len} bytes");
        }
    }
    settle(&mut ports);
}

#[test]
fn frames_are_steered_by_it_and_flows_stay_with_their_worker() {
    udpath_lab::needs_root!();
    const WORKERS: u16 = 3;
    let lab = lab("x-steered", 2);
    let mut device = device(&lab, hashed());
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let flows: Vec<UdpSocket> = (0..32).map(|_| connected(lab.machine("client").unwrap(), to)).collect();
    flows.iter().for_each(|flow| assert_eq!(flow.send(b"hash?").unwrap(), 5));
    let known: BTreeMap<u16, u32> =
        hashes(&mut ports, flows.len()).into_iter().map(|(port, hash)| (port, hash.unwrap())).collect();

    let domain = Domain::new(WORKERS.into(), 8);
    let groups = Arc::new(Table::new(&domain, Groups::new(&[(to, PORT).into()], []).unwrap()));
    let map = RpsMap::new(&(0..u32::from(WORKERS)).collect(), None).unwrap();
    let mut ports = ports.into_iter();
    let mut workers: Vec<_> = mesh(WORKERS, mesh::Config { backlog: 256, frames: 256 })
        .unwrap()
        .into_iter()
        .map(|rings| {
            let index = rings.index();
            let handler = move |_: Datagram<'_>, room: &mut [u8]| {
                room[0] = index as u8;
                Answered::Reply(1)
            };
            let reader = domain.register(format!("worker {index}")).unwrap();
            let steering = Some(Steering::new(Key::microsoft(), Some(map.clone())));
            let groups = Arc::clone(&groups);
            Worker::new(Parts { port: ports.next(), handler, reader, groups, rings, steering })
        })
        .collect();
    let mut used = BTreeSet::new();
    for _ in 0..16 {
        for flow in &flows {
            flow.send(b"who?").unwrap();
            flow.set_nonblocking(true).unwrap();
        }
        for flow in &flows {
            let hash = known[&flow.local_addr().unwrap().port()];
            let mut reply = [0; 8];
            let end = Instant::now() + TIMEOUT;
            while flow.recv(&mut reply).is_err() {
                assert!(Instant::now() < end, "no answer");
                workers.iter_mut().for_each(|worker| _ = worker.poll());
            }
            assert_eq!(u16::from(reply[0]), map.cpu(hash), "the worker of hash {hash:#x}");
            used.insert(reply[0]);
        }
    }
    assert_eq!(used.len(), usize::from(WORKERS));
}

#[test]
fn without_it_the_plain_program_runs_and_says_why() {
    udpath_lab::needs_root!();
    let lab = lab("x-unhashed", 1);
    let server = lab.machine("server").unwrap();
    printed(server, "ip", &["tuntap", "add", "tap0", "mode", "tap"]);
    let open = |interface: &str, config| server.run(|| XdpDevice::open(interface, config)).unwrap().unwrap();
    for (interface, config, said) in [
        ("eth0", small(), "computed (not requested from the device)"),
        ("eth0", Config { attach: Attach::Generic, ..hashed() }, "computed (not available in generic mode)"),
        ("tap0", hashed(), "computed (the driver does not report a hash to XDP programs)"),
    ] {
        let mut device = open(interface, config);
        assert_eq!(device.rx_hash().to_string(), said);
        if interface == "eth0" {
            device.bind((addresses(&lab)[0], PORT).into()).unwrap();
            let mut ports = ports(&lab, &mut device);
            assert!(!ports[0].properties().hashed);
            connected(lab.machine("client").unwrap(), addresses(&lab)[0]).send(b"plain").unwrap();
            assert_eq!(hashes(&mut ports, 1)[0].1, None);
        }
    }
}
