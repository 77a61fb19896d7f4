//! A request to a broadcast or multicast address gets no answer, or one if configured, over every Io and with any
//! number of workers. Needs root.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_lab::Lab;
use udpath_serve::{Config, ConfigError, DropReason, Error, Io};

use crate::support::{Echo, TIMEOUT, config, ip, link, start, start_in, stop, wait_until};

const WORKERS: usize = 2;
const PORT: u16 = 7000;
/// How long to wait for an answer that must not come, once the server has ended: longer than a softirq may be deferred.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// Addresses that reach every server of the link: subnet broadcast, limited broadcast, all hosts; all nodes.
fn groups(lab: &Lab) -> Vec<SocketAddr> {
    let net = lab.address_of("server", "client").unwrap().ipv4.octets();
    let subnet = Ipv4Addr::new(net[0], net[1], net[2], 255);
    [
        IpAddr::V4(subnet),
        IpAddr::V4(Ipv4Addr::BROADCAST),
        "224.0.0.1".parse().unwrap(),
        "ff02::1".parse().unwrap(),
    ]
    .map(|group| SocketAddr::new(group, PORT))
    .to_vec()
}

/// A socket in the client's machine, bound to its address on the link.
fn client(lab: &Lab, ipv4: bool) -> UdpSocket {
    let here = lab.address_of("client", "server").unwrap();
    let here = if ipv4 { IpAddr::V4(here.ipv4) } else { IpAddr::V6(here.ipv6) };
    let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind((here, 0))).unwrap().unwrap();
    if ipv4 {
        socket.set_broadcast(true).unwrap();
    }
    socket
}

/// The same address with the client's interface, which an IPv6 multicast address needs.
fn by_interface(lab: &Lab, to: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(mut to) = to else { return to };
    let index = || std::fs::read_to_string("/sys/class/net/eth0/ifindex").unwrap();
    to.set_scope_id(lab.machine("client").unwrap().run(index).unwrap().trim().parse().unwrap());
    SocketAddr::V6(to)
}

#[test]
fn a_request_to_a_group_is_answered_once_if_configured_and_never_otherwise() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-broadcast", WORKERS as u32);
    let own = SocketAddr::new(lab.address_of("server", "client").unwrap().ipv4.into(), PORT);
    let groups = groups(&lab);
    for (io, batch) in Io::ALL.into_iter().flat_map(|io| [1, 32].map(|batch| (io, batch))) {
        for answer_broadcast in [false, true] {
            let case = format!("{io} batch {batch}, answer_broadcast: {answer_broadcast}");
            let mut config = Config { batch, answer_broadcast, ..config(io, "0.0.0.0:7000") };
            config.binds.push("[::]:7000".parse().unwrap());
            config.workers = Some(WORKERS);
            let server = start_in(&lab, &config, |_| Echo);
            let clients: Vec<_> = groups.iter().map(|to| client(&lab, to.is_ipv4())).collect();
            for (client, to) in clients.iter().zip(&groups) {
                client.send_to(b"who is there?", by_interface(&lab, *to)).unwrap();
            }
            let copies = (groups.len() * if io == Io::Shared { 1 } else { WORKERS }) as u64;
            wait_until("every socket has its copies", || server.status().total.received == copies);
            let total = stop(server).total;
            let answers = if answer_broadcast { groups.len() as u64 } else { 0 };
            assert_eq!((total.received, total.answered), (copies, answers), "{case}");
            assert_eq!(total.dropped.by(DropReason::Broadcast), copies - answers, "{case}");
            std::thread::sleep(NO_ANSWER_TIMEOUT);
            for (client, to) in clients.iter().zip(&groups) {
                client.set_nonblocking(true).unwrap();
                let from = || client.recv_from(&mut [0; 64]).ok().map(|(_, from)| from);
                let from: Vec<_> = std::iter::from_fn(from).collect();
                assert_eq!(from.len(), usize::from(answer_broadcast), "{case}, {to}: {from:?}");
                // From an address of the server, and the port the request was sent to.
                assert!(from.iter().all(|from| from.is_ipv6() || *from == own), "{case}, {to}: {from:?}");
            }
        }
    }
    lab.down().unwrap();
}

#[test]
fn a_unicast_request_is_not_taken_for_a_broadcast() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-unicast", WORKERS as u32);
    let address = lab.address_of("server", "client").unwrap();
    // A host address, one of a point-to-point subnet, whose last address is not a broadcast address, and a prefix that
    // a route makes local.
    ip(&lab, "server", &["addr", "add", "10.1.0.1/32", "dev", "eth0"]);
    ip(&lab, "server", &["addr", "add", "10.2.0.1/31", "dev", "eth0"]);
    ip(&lab, "server", &["route", "add", "local", "10.3.0.0/24", "dev", "lo"]);
    for prefix in ["10.1.0.1", "10.2.0.1", "10.3.0.0/24"] {
        ip(&lab, "client", &["route", "add", prefix, "via", &address.ipv4.to_string()]);
    }
    for io in Io::ALL {
        let config = Config { workers: Some(WORKERS), ..config(io, "0.0.0.0:7000") };
        let server = start_in(&lab, &config, |_| Echo);
        let asked =
            ["10.1.0.1", "10.2.0.1", "10.3.0.7", "10.3.0.255"].map(|ip| ip.parse::<Ipv4Addr>().unwrap());
        for to in asked.into_iter().chain([address.ipv4]) {
            let client = client(&lab, true);
            client.connect((to, PORT)).unwrap();
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            client.send(b"you").unwrap();
            assert_eq!(client.recv(&mut [0; 64]).unwrap(), 3, "{io} {to}");
        }
        let total = stop(server).total;
        assert_eq!((total.answered, total.dropped.total()), (5, 0), "{io}");
    }
    lab.down().unwrap();
}

#[test]
fn a_broadcast_address_is_not_served() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-subnet", 1);
    let subnet = groups(&lab)[0];
    for io in Io::ALL {
        let config = config(io, &subnet.to_string());
        let error = lab.machine("server").unwrap().run(|| start(&config, |_| Echo)).unwrap().err();
        assert!(matches!(error, Some(Error::Config(ConfigError::Unservable(_)))), "{io}: {error:?}");
    }
    lab.down().unwrap();
}
