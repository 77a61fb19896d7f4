//! Requests from addresses where nobody answers ARP or neighbour discovery: the kernel keeps the replies for up to 3 s
//! and charges them to the server's socket. Those to other clients must leave all the same.
//!
//! And requests with somebody else's address, over `xdp`: a reply goes where the kernel would send it. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_lab::Lab;
use udpath_serve::{CheckNeighbours, Config, DropReason, Io, IoChoice, SendError, Status};

use crate::support::{Echo, TIMEOUT, config, ip, link, receive, start_in, stop, wait_until};

/// Addresses that do not answer, on the server's link as far as it knows.
const DEAD: u16 = 100;
/// Requests from them before the client's: the replies fill the send buffers of two sockets, 212,992 bytes of some 770
/// each, even if one socket gets a third of them.
const FILL: usize = 2000;
/// Transactions of the client, each after some requests of the dead addresses.
const TRANSACTIONS: usize = 300;

/// Dead addresses of both families.
fn dead(ipv6: bool, i: u16) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 0x100 + i).into()
    } else {
        Ipv4Addr::new(198, 18, 0, 100 + i as u8).into()
    }
}

/// Gives the client the addresses on its loopback, so that it answers for none of them, and the server routes to its
/// link.
fn prepare(lab: &Lab) {
    for (ipv6, network) in [(false, "198.18.0.0/24"), (true, "2001:db8:dead::/64")] {
        let family = if ipv6 { "-6" } else { "-4" };
        ip(lab, "server", &[family, "route", "add", network, "dev", "eth0"]);
        for i in 0..DEAD {
            let mut add = vec!["addr".to_owned(), "add".to_owned(), dead(ipv6, i).to_string()];
            add.extend(["dev", "lo"].map(str::to_owned));
            add.extend(ipv6.then(|| "nodad".to_owned()));
            ip(lab, "client", &add.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    // 8: answer ARP for no address. The server has a permanent entry for the client's own.
    let ignore = || std::fs::write("/proc/sys/net/ipv4/conf/eth0/arp_ignore", "8");
    lab.machine("client").unwrap().run(ignore).unwrap().unwrap();
}

/// Serves the client while requests come from dead addresses; returns what was counted.
fn served(lab: &Lab, config: &Config) -> Status {
    let server = start_in(lab, config, |_| Echo);
    let there = lab.address_of("server", "client").unwrap();
    let ipv6 = config.binds[0].is_ipv6();
    let target = SocketAddr::new(if ipv6 { there.ipv6.into() } else { there.ipv4.into() }, 7000);
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let open = |address: IpAddr| {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.connect(target).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    let sockets = || -> (Vec<_>, Vec<_>) {
        ((0..DEAD).map(|i| open(dead(ipv6, i))).collect(), (0..8).map(|_| open(any)).collect())
    };
    let (dead, clients) = lab.machine("client").unwrap().run(sockets).unwrap();
    let mut sent = 0;
    for i in 0..FILL {
        dead[i % dead.len()].send(&[7; 100]).unwrap();
        sent += 1;
        // A burst of all of them would not fit the receive buffer.
        if i % 20 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for i in 0..TRANSACTIONS {
        for forged in 0..3 {
            dead[(3 * i + forged) % dead.len()].send(&[7; 100]).unwrap();
            sent += 1;
        }
        let client = &clients[i % clients.len()];
        client.send(&i.to_be_bytes()).unwrap();
        assert_eq!(receive(client), i.to_be_bytes(), "transaction {i}");
    }
    let status = stop(server);
    let total = &status.total;
    let io = &config.io;
    assert!(total.received >= TRANSACTIONS as u64, "{io}: {total:?}");
    assert!(total.received <= (sent + TRANSACTIONS) as u64, "{io}: {total:?}");
    // Frames go back the way they came, whoever answers ARP.
    let as_frames = *io == IoChoice::Only(Io::Xdp);
    assert_eq!(total.send_errors.by(SendError::Neighbour) == 0, as_frames, "{io}: {total:?}");
    assert_eq!(total.dropped.by(DropReason::SendFailed), total.dropped.total(), "{io}: {total:?}");
    status
}

#[test]
fn a_neighbour_that_does_not_answer_keeps_out_nobody_else() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-neighbours", 2);
    prepare(&lab);
    for (io, batch, bind) in [
        (Io::Reuseport, 32, "0.0.0.0:7000"),
        (Io::Reuseport, 1, "[::]:7000"),
        (Io::Shared, 32, "[::]:7000"),
        (Io::Percpu, 1, "0.0.0.0:7000"),
        (Io::Xdp, 32, "0.0.0.0:7000"),
        (Io::Shared, 1, ""),
    ] {
        let there = lab.address_of("server", "client").unwrap();
        let bind = if bind.is_empty() { format!("{}:7000", there.ipv4) } else { bind.to_owned() };
        let config = Config { workers: Some(2), batch, ..config(io, &bind) };
        let status = served(&lab, &config);
        if io == Io::Xdp {
            assert_eq!(status.total.answered, status.total.received, "{:?}", status.total);
            continue;
        }
        let warned = status.warnings.iter().any(|warning| warning.contains("do not answer ARP"));
        assert!(warned, "{io}: {:?}", status.warnings);
    }
    lab.down().unwrap();
}

/// Replies to five requests from `address`.
fn replies(lab: &Lab, address: IpAddr, target: SocketAddr) -> usize {
    let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.connect(target).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    (0..5_u8)
        .filter(|i| {
            socket.send(&[*i; 20]).unwrap();
            socket.recv(&mut [0; 100]).is_ok()
        })
        .count()
}

#[test]
fn a_neighbour_gets_no_reply_to_a_request_with_the_address_of_another() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    for (check, stolen) in [(CheckNeighbours::Off, 5), (CheckNeighbours::On, 0)] {
        let lab = link("serve-forged", 2);
        prepare(&lab);
        // The victim is another machine of the link, as the server's kernel knows.
        for ipv6 in [false, true] {
            let victim = dead(ipv6, 0).to_string();
            let entry = [
                "neigh",
                "replace",
                &victim,
                "lladdr",
                "02:00:00:00:00:99",
                "nud",
                "permanent",
                "dev",
                "eth0",
            ];
            ip(&lab, "server", &entry);
        }
        let mut config = config(Io::Xdp, "0.0.0.0:7000");
        config.binds.push("[::]:7000".parse().unwrap());
        config.xdp.check_neighbours = check;
        let server = start_in(&lab, &config, |_| Echo);
        let there = lab.address_of("server", "client").unwrap();
        let here = lab.address_of("client", "server").unwrap();
        // Replies that left as frames so far. A client may have its reply before the server has counted it.
        let mut frames = 0;
        let all_counted = |frames| {
            wait_until("they left as frames", || server.status().xdp.unwrap().answered == frames);
        };
        for (ipv6, own, to) in
            [(false, here.ipv4.into(), there.ipv4.into()), (true, IpAddr::from(here.ipv6), there.ipv6.into())]
        {
            let target = SocketAddr::new(to, 7000);
            assert_eq!(replies(&lab, own, target), 5, "{check:?}: the client's own address");
            frames += 5;
            all_counted(frames);
            // The replies that the victim gets are the kernel's.
            assert_eq!(replies(&lab, dead(ipv6, 0), target), stolen, "{check:?}: of the victim");
            frames += stolen as u64;
            all_counted(frames);
        }
        // Nobody has asked for this address yet: the kernel resolves it, and then its replies leave as frames.
        let stranger = dead(false, 1).to_string();
        ip(&lab, "client", &["addr", "del", &stranger, "dev", "lo"]);
        ip(&lab, "client", &["addr", "add", &stranger, "dev", "eth0"]);
        let answer = || std::fs::write("/proc/sys/net/ipv4/conf/eth0/arp_ignore", "0");
        lab.machine("client").unwrap().run(answer).unwrap().unwrap();
        let target = SocketAddr::new(there.ipv4.into(), 7000);
        assert_eq!(replies(&lab, dead(false, 1), target), 5, "{check:?}: a stranger");
        let total = stop(server).total;
        assert_eq!((total.received, total.answered), (25, 25), "{check:?}: {total:?}");
        lab.down().unwrap();
    }
}
