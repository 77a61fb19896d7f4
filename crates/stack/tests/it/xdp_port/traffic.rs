//! Datagrams in both directions; frames left to the kernel; losses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_bpf::Outcome;
use udpath_stack::frame::Burst;
use udpath_stack::port::xdp::{Attach, BusyPoll, Config, XdpDevice, XdpPort};
use udpath_stack::port::{Mode, Port};

use super::support::*;
use super::sys;

/// Sends a numbered datagram from every socket and expects it back, while `ports` echo.
fn exchange(clients: &[UdpSocket], to: IpAddr, ports: &mut [XdpPort], round: usize) {
    for (number, client) in clients.iter().enumerate() {
        client.send_to(format!("{round} {number}").as_bytes(), (to, PORT)).unwrap();
    }
    let wanted = |ports: &[XdpPort]| ports.iter().map(|port| port.counts().transmitted).sum::<u64>();
    let before = wanted(ports);
    echo_until(ports, |ports| wanted(ports) - before == clients.len() as u64);
    let mut bytes = [0; 64];
    for (number, client) in clients.iter().enumerate() {
        let (len, from) = client.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..len], *format!("{round} {number}").as_bytes());
        assert_eq!(from, SocketAddr::new(to, PORT));
    }
}

#[test]
fn datagrams_come_on_every_queue_and_answers_go_back() {
    udpath_lab::needs_root!();
    let lab = lab("x-datapath", 2);
    let mut device = device(&lab, Config::default());
    let mut ports = ports(&lab, &mut device);
    assert_eq!((device.queues(), ports.len(), device.memory()), (2, 2, 2 * Config::default().memory()));
    assert!(ports.iter().all(|port| port.properties().mode == Mode::Copy), "veth has no zero-copy");
    assert_eq!(ports[1].properties().name, "eth0 queue 1");
    assert_eq!(ports[1].properties().max_frame_len, 1522);
    let client = lab.machine("client").unwrap();
    for to in addresses(&lab) {
        let clients: Vec<UdpSocket> = (0..32).map(|_| socket(client, to)).collect();
        for round in 0..8 {
            exchange(&clients, to, &mut ports, round);
        }
    }
    settle(&mut ports);
    let received: Vec<u64> = ports.iter().map(|port| port.counts().received).collect();
    assert_eq!(received.iter().sum::<u64>(), 2 * 8 * 32);
    assert!(received.iter().all(|received| *received > 0), "{received:?}");
    assert_eq!(device.outcomes().of(Outcome::Taken), 2 * 8 * 32);
    for port in &ports {
        let counts = port.counts();
        assert_eq!((counts.received, counts.missed, counts.invalid), (counts.transmitted, 0, 0));
    }
    lab.down().unwrap();
}

#[test]
fn ports_share_registered_memory() {
    udpath_lab::needs_root!();
    let lab = lab("x-shared", 2);
    let mut device = device(&lab, small());
    let server = lab.machine("server").unwrap();
    let mut ports = server.run(|| device.ports_in_shared_memory()).unwrap().unwrap();
    let client = lab.machine("client").unwrap();
    for to in addresses(&lab) {
        let clients: Vec<UdpSocket> = (0..32).map(|_| socket(client, to)).collect();
        for round in 0..8 {
            exchange(&clients, to, &mut ports, round);
        }
    }
    settle(&mut ports);
    assert!(ports.iter().all(|port| port.counts().received > 0));
    // The memory outlives the port that registered it.
    let mut rest = ports.split_off(1);
    drop(ports);
    let clients: Vec<UdpSocket> = (0..32).map(|_| socket(client, addresses(&lab)[0])).collect();
    let before = device.outcomes();
    for client in &clients {
        client.send_to(b"on", (addresses(&lab)[0], PORT)).unwrap();
    }
    let came = rest[0].counts().received;
    let taken = device.outcomes().of(Outcome::Taken) - before.of(Outcome::Taken);
    assert!(taken > 0);
    echo_until(&mut rest, |rest| rest[0].counts().received - came == taken);
    // The queue without a port: its frames go to the kernel, which has no socket for them.
    assert_eq!(device.outcomes().of(Outcome::NoSocket), 32 - taken);
    settle(&mut rest);
}

#[test]
fn generic_mode_carries_the_same() {
    udpath_lab::needs_root!();
    let lab = lab("x-generic", 1);
    let config = Config { attach: Attach::Generic, ..small() };
    let mut device = device(&lab, config);
    assert_eq!(device.mode().to_string(), "generic");
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let clients: Vec<UdpSocket> = (0..8).map(|_| socket(lab.machine("client").unwrap(), to)).collect();
    for round in 0..4 {
        exchange(&clients, to, &mut ports, round);
    }
    settle(&mut ports);
}

#[test]
fn a_port_that_is_polled_carries_the_same() {
    udpath_lab::needs_root!();
    let lab = lab("x-poll", 1);
    let mut device = device(&lab, Config { busy_poll: Some(BusyPoll::default()), ..small() });
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[1];
    let clients: Vec<UdpSocket> = (0..8).map(|_| socket(lab.machine("client").unwrap(), to)).collect();
    for round in 0..4 {
        exchange(&clients, to, &mut ports, round);
    }
    settle(&mut ports);
}

#[test]
fn frames_not_taken_reach_the_kernel() {
    udpath_lab::needs_root!();
    let lab = lab("x-kernel", 1);
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    for to in addresses(&lab) {
        let kernel = server.run(|| UdpSocket::bind((to, PORT))).unwrap().unwrap();
        let other = server.run(|| UdpSocket::bind((to, PORT + 1))).unwrap().unwrap();
        for socket in [&kernel, &other] {
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        }
        let sender = socket(client, to);
        let mut bytes = [0; 8192];
        // In three fragments.
        sender.send_to(&[7; 4000], (to, PORT)).unwrap();
        assert_eq!(kernel.recv(&mut bytes).unwrap(), 4000);
        sender.send_to(b"other", (to, PORT + 1)).unwrap();
        assert_eq!(other.recv(&mut bytes).unwrap(), 5);
        // Taken: the kernel's socket does not see it.
        sender.send_to(b"plain", (to, PORT)).unwrap();
        echo_until(&mut ports, |ports| ports[0].counts().transmitted % 2 == 1);
        assert_eq!(sender.recv(&mut bytes).unwrap(), 5);
        kernel.set_nonblocking(true).unwrap();
        assert!(kernel.recv(&mut bytes).is_err());
        kernel.set_nonblocking(false).unwrap();
        // Unbound, the same datagram goes to the kernel.
        let any: IpAddr = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
        assert!(device.unbind((any, PORT).into()));
        sender.send_to(b"plain", (to, PORT)).unwrap();
        assert_eq!(kernel.recv(&mut bytes).unwrap(), 5);
        // Bound to this address only, the port takes it again; without the port's socket the kernel receives it.
        device.bind((to, PORT).into()).unwrap();
        sender.send_to(b"plain", (to, PORT)).unwrap();
        echo_until(&mut ports, |ports| ports[0].counts().transmitted % 2 == 0);
        assert_eq!(sender.recv(&mut bytes).unwrap(), 5);
        device.release(0);
        sender.send_to(b"plain", (to, PORT)).unwrap();
        assert_eq!(kernel.recv(&mut bytes).unwrap(), 5);
        device.hand_to(&mut ports[0]).unwrap();
    }
    // ICMP, with and without an IPv4 option; and datagrams with one.
    let [to, _] = addresses(&lab);
    ping(client, to, false);
    ping(client, to, true);
    // The socket above is closed, but a process that another test is starting may have a copy of it until its exec.
    let bind = || server.run(|| UdpSocket::bind((to, PORT))).unwrap();
    let kernel = udpath_rig::awaited("the port", TIMEOUT, || match bind() {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
        bound => Some(bound.unwrap()),
    });
    kernel.set_read_timeout(Some(TIMEOUT)).unwrap();
    let sender = socket(client, to);
    sys::add_ip_option(&sender).unwrap();
    sender.send_to(b"option", (to, PORT)).unwrap();
    assert_eq!(kernel.recv(&mut [0; 64]).unwrap(), 6);
    let outcomes = device.outcomes();
    assert_eq!(outcomes.of(Outcome::Taken), 4);
    for (outcome, least) in [
        (Outcome::Fragment, 6),
        (Outcome::Options, 2),
        (Outcome::NotUdp, 1),
        (Outcome::OtherPort, 4),
        (Outcome::NoSocket, 2),
    ] {
        assert!(outcomes.of(outcome) >= least, "{outcome:?}: {outcomes:?}");
    }
    settle(&mut ports);
}

#[test]
fn arp_is_the_kernels() {
    udpath_lab::needs_root!();
    let lab = lab("x-arp", 1);
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let client = lab.machine("client").unwrap();
    let to = addresses(&lab)[0];
    printed(client, "ip", &["neigh", "del", &to.to_string(), "dev", "eth0"]);
    exchange(&[socket(client, to)], to, &mut ports, 0);
    // The client's ARP request is a broadcast, and the kernel has answered it.
    assert!(device.outcomes().of(Outcome::Group) >= 1, "{:?}", device.outcomes());
    settle(&mut ports);
}

#[test]
fn the_descriptor_becomes_readable_when_a_frame_comes() {
    udpath_lab::needs_root!();
    let lab = lab("x-sleep", 1);
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let sender = socket(lab.machine("client").unwrap(), to);
    for _ in 0..3 {
        assert!(!readable(ports[0].descriptor().unwrap(), Duration::ZERO));
        sender.send_to(b"wake", (to, PORT)).unwrap();
        assert!(readable(ports[0].descriptor().unwrap(), TIMEOUT));
        assert_eq!(echo(&mut ports[0]), 1);
    }
    settle(&mut ports);
}

#[test]
fn packets_without_a_frame_are_counted_and_the_rest_arrives() {
    udpath_lab::needs_root!();
    let lab = lab("x-flood", 1);
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let sender = socket(lab.machine("client").unwrap(), to);
    for _ in 0..3 {
        for number in 0..200_u32 {
            sender.send_to(&number.to_be_bytes(), (to, PORT)).unwrap();
        }
        let taken = device.outcomes().of(Outcome::Taken);
        // Every taken frame was received or counted as missed, and after the burst frames arrive as before.
        echo_until(&mut ports, |ports| {
            let counts = ports[0].counts();
            counts.received + counts.missed == taken
        });
    }
    let (counts, by_reason) = (ports[0].counts(), ports[0].statistics());
    assert_eq!(device.outcomes().of(Outcome::Taken), 600);
    assert!(counts.received >= 3 * 64 && counts.missed > 0, "{counts:?} {by_reason:?}");
    assert_eq!(counts.missed, by_reason.no_frame + by_reason.receive_ring_full);
    settle(&mut ports);
}

#[test]
fn bursts_of_ones_own_are_sent_whole_whatever_the_batch() {
    udpath_lab::needs_root!();
    use std::net::Ipv4Addr;
    use udpath_stack::wire::ethernet::Mac;
    let lab = lab("x-burst", 1);
    let client = lab.machine("client").unwrap();
    let server = lab.machine("server").unwrap();
    // Without any program: a port that only sends.
    let mut ports = vec![server.run(|| XdpPort::open("eth0", 0, &small())).unwrap().unwrap()];
    let port = &mut ports[0];
    let eth0 = server.interface("eth0").unwrap();
    let sink = client.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7000))).unwrap().unwrap();
    sink.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut bytes = [0; 64];
    for round in 0..50_u32 {
        let mut burst = Burst::new();
        port.supply(&mut burst, 64);
        assert_eq!(burst.len(), 64);
        for (number, frame) in burst.iter_mut().enumerate() {
            let payload = (round * 64 + number as u32).to_be_bytes();
            let from = (eth0.ipv4(), PORT).into();
            let to = (eth0.peer().ipv4[0], 7000).into();
            build(frame, (Mac(eth0.peer().mac.0), Mac(eth0.mac().0)), from, to, &payload);
        }
        port.transmit(&mut burst);
        assert!(burst.is_empty());
        port.flush();
        for number in 0..64 {
            assert_eq!(sink.recv(&mut bytes).unwrap(), 4);
            assert_eq!(bytes[..4], (round * 64 + number).to_be_bytes());
        }
    }
    // A frame of invalid length is refused, and its memory is not lost.
    let mut burst = Burst::new();
    port.supply(&mut burst, 2);
    assert!(burst[1].set_len(1600));
    port.transmit(&mut burst);
    assert!(burst.is_empty());
    assert_eq!((port.counts().transmitted, port.statistics().refused), (3200, 2));
    let kicks = port.statistics().kicks;
    assert!(kicks <= 3 * 50, "{kicks} calls for 50 bursts");
    settle(&mut ports);
}

#[test]
fn tagged_datagrams_go_there_and_back_between_two_ports() {
    udpath_lab::needs_root!();
    use udpath_stack::wire::{Packet, ethernet::Mac};
    let lab = lab("x-vlan", 1);
    let mut device = device(&lab, small());
    let mut servers = ports(&lab, &mut device);
    let machine = lab.machine("client").unwrap();
    let eth0 = machine.interface("eth0").unwrap();
    let mut there = machine.run(|| XdpDevice::open("eth0", small())).unwrap().unwrap();
    there.bind((eth0.ipv4(), 40_000).into()).unwrap();
    let mut client = machine.run(|| there.port(0)).unwrap().unwrap();
    let (from, to) = ((eth0.ipv4(), 40_000).into(), (eth0.peer().ipv4[0], PORT).into());
    device.set_vlans([(7, 2), (8, 0)]);
    there.set_vlans([(7, 2), (8, 0)]);
    // Requested and replied tags: a VLAN's tag with the priority of replies, none for a priority tag.
    let tags: [(&[u8], &[u8]); 4] = [
        (&[], &[]),
        (&[0x81, 0, 0x60, 7], &[0x81, 0, 0x40, 7]),
        (&[0x81, 0, 0xf0, 8], &[0x81, 0, 0, 8]),
        (&[0x81, 0, 0xe0, 0], &[]),
    ];
    for (tags, answered) in tags {
        let mut burst = Burst::new();
        client.supply(&mut burst, 1);
        build(&mut burst[0], (Mac(eth0.peer().mac.0), Mac(eth0.mac().0)), from, to, b"tagged");
        let mut bytes = burst[0].bytes().to_vec();
        bytes.splice(12..12, tags.iter().copied());
        assert!(burst[0].set_len(bytes.len()));
        burst[0].bytes_mut().copy_from_slice(&bytes);
        client.transmit(&mut burst);
        client.flush();
        assert!(readable(servers[0].descriptor().unwrap(), TIMEOUT));
        assert_eq!(echo(&mut servers[0]), 1);
        assert!(readable(client.descriptor().unwrap(), TIMEOUT));
        assert_eq!(client.receive(&mut burst), 1);
        let reply = Packet::parse(burst[0].bytes()).unwrap();
        reply.verify(burst[0].bytes()).unwrap();
        assert_eq!(burst[0].bytes()[12..12 + answered.len()], *answered);
        assert_eq!((reply.source(), reply.destination(), reply.tags()), (to, from, answered.len() / 4));
        assert_eq!(reply.payload(burst[0].bytes()), b"tagged");
        client.recycle(&mut burst);
        client.flush();
    }
    settle(&mut servers);
    settle(&mut [client]);
}

/// Makes `frame` a datagram, link-layer addresses destination first.
fn build(
    frame: &mut udpath_stack::frame::Frame,
    (to_mac, from_mac): (udpath_stack::wire::ethernet::Mac, udpath_stack::wire::ethernet::Mac),
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
) {
    let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (from, to) else { unreachable!("IPv4 only") };
    let mut bytes = [&to_mac.0[..], &from_mac.0, &[8, 0, 0x45, 0]].concat();
    bytes.extend((28 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(source.ip().octets());
    bytes.extend(destination.ip().octets());
    let mut sum: u32 = bytes[14..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(destination.port().to_be_bytes());
    bytes.extend((8 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0]); // IPv4 may go without a checksum
    bytes.extend(payload);
    assert!(frame.set_len(bytes.len()));
    frame.bytes_mut().copy_from_slice(&bytes);
}
