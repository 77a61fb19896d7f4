//! Lists recorded from a kernel (Linux 6.18), read whole: `fixtures/*.hex`, from a network namespace with a veth
//! pair.

use std::net::IpAddr;

use super::link::{OPERATIONAL_UP, flags};
use super::{Hop, Link, Neighbour, Qdisc, Route, Update, neighbour, qdisc, route};
use crate::message::{Messages, flag};

/// The bytes of a fixture: hexadecimal lines.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(text).collect()
}

/// The entries of a list that contains nothing else except its end.
fn updates(hex: &str) -> Vec<Update> {
    let bytes = bytes(hex);
    let mut messages = Messages::new(&bytes);
    let mut read: Vec<_> = messages
        .by_ref()
        .map(|message| {
            assert_eq!((message.sequence, message.port), (1, 77));
            assert!(message.flags & flag::MULTI != 0);
            (message.result(), Update::parse(message.kind, message.body).unwrap())
        })
        .collect();
    assert!(messages.rest().is_empty());
    let (result, end) = read.pop().unwrap();
    assert_eq!((result, end), (Ok(()), Update::Other(3)));
    read.into_iter().map(|(_, update)| update).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn links() -> Vec<Link> {
    let link = |update| match update {
        Update::NewLink(link) => link,
        other => panic!("{other:?}"),
    };
    updates(include_str!("../../fixtures/links.hex")).into_iter().map(link).collect()
}

fn index(name: &str) -> u32 {
    links().iter().find(|link| link.name.as_deref() == Some(name)).unwrap().index
}

#[test]
fn links_have_names_queues_and_counters() {
    let links = links();
    let names: Vec<_> = links.iter().filter_map(|link| link.name.as_deref()).collect();
    assert_eq!(names, ["lo", "eth1", "eth0"]);
    let eth0 = &links[2];
    let wanted = Link {
        index: eth0.index,
        hardware: 1,
        flags: flags::UP | flags::LOWER_UP | flags::RUNNING | flags::MULTICAST | 1 << 1,
        name: Some("eth0".into()),
        kind: Some("veth".into()),
        address: Some(vec![2, 0, 0, 0, 0, 1]),
        mtu: Some(9000),
        tx_queue_len: Some(1000),
        tx_queues: Some(4),
        rx_queues: Some(4),
        carrier: Some(true),
        operational_state: Some(OPERATIONAL_UP),
        qdisc: Some("mq".into()),
        link: Some(index("eth1")),
        statistics: eth0.statistics.clone(),
        ..Link::default()
    };
    assert_eq!(*eth0, wanted);
    // Packets and bytes, received and sent.
    assert_eq!((eth0.statistics.len(), &eth0.statistics[..4]), (25, &[6, 6, 516, 516][..]));
}

#[test]
fn addresses_have_peers_and_broadcasts() {
    let addresses = updates(include_str!("../../fixtures/addresses.hex"));
    let found = |address: &str| {
        let own = ip(address);
        let found = addresses.iter().find_map(|update| match update {
            Update::NewAddress(found) if found.local.or(found.address) == Some(own) => Some(*found),
            _ => None,
        });
        found.unwrap()
    };
    let first = found("192.0.2.1");
    assert_eq!((first.interface, first.prefix_len, first.scope), (index("eth0"), 24, 0));
    assert_eq!(first.broadcast, Some(ip("192.0.2.255")));
    assert_eq!(found("192.0.2.9").flags & super::address::flags::SECONDARY, 1);
    let point_to_point = found("198.51.100.1");
    assert_eq!((point_to_point.address, point_to_point.prefix_len), (Some(ip("198.51.100.2")), 32));
    let v6 = found("2001:db8::1");
    assert_eq!((v6.local, v6.prefix_len), (None, 64));
    assert_eq!(found("::1").scope, 254);
}

#[test]
fn neighbours_have_states_and_addresses() {
    let neighbours = updates(include_str!("../../fixtures/neighbours.hex"));
    let mac = Some(vec![2, 0, 0, 0, 0, 2]);
    for (address, state) in
        [("192.0.2.2", neighbour::state::PERMANENT), ("2001:db8::2", neighbour::state::STALE)]
    {
        let wanted = Neighbour { state, address: mac.clone(), ..Neighbour::new(index("eth0"), ip(address)) };
        assert!(neighbours.contains(&Update::NewNeighbour(wanted)), "{neighbours:#?}");
    }
}

#[test]
fn routes_have_one_hop_or_several() {
    let routes = updates(include_str!("../../fixtures/routes.hex"));
    let found = |destination: &str, table: u32| {
        let destination = Some(ip(destination)).filter(|address| !address.is_unspecified());
        let found = routes.iter().find_map(|update| match update {
            Update::NewRoute(found) if (found.destination, found.table) == (destination, table) => {
                Some(found.clone())
            }
            _ => None,
        });
        found.unwrap()
    };
    let [eth0, eth1] = ["eth0", "eth1"].map(index);
    let hop = |interface, gateway: &str| Hop { interface, gateway: Some(ip(gateway)), ..Hop::default() };
    let several = Route {
        metric: Some(7),
        preferred_source: Some(ip("192.0.2.1")),
        mtu: Some(1400),
        hops: vec![hop(eth0, "192.0.2.2"), hop(eth1, "198.51.100.2")],
        ..Route::new(ip("203.0.113.0"), 24)
    };
    assert_eq!(found("203.0.113.0", route::table::MAIN), several);
    let black_hole = found("10.0.0.0", route::table::MAIN);
    assert_eq!((black_hole.kind, black_hole.hops.len()), (route::kind::BLACKHOLE, 0));
    assert_eq!(found("172.16.0.0", route::table::MAIN).hops, [hop(eth0, "2001:db8::2")]);
    assert_eq!(found("0.0.0.0", 1000).hops, [hop(eth0, "192.0.2.2")]);
    assert_eq!(found("192.0.2.1", route::table::LOCAL).kind, route::kind::LOCAL);
}

#[test]
fn qdiscs_have_handles_and_parents() {
    let bytes = bytes(include_str!("../../fixtures/qdiscs.hex"));
    let qdiscs: Vec<_> = Messages::new(&bytes).filter_map(|message| Qdisc::parse(message.body)).collect();
    let root = qdiscs.iter().find(|found| found.interface == index("eth0") && found.kind == "mq").unwrap();
    assert_eq!((root.handle, root.parent), (0x8001_0000, qdisc::ROOT));
    let classes = qdiscs.iter().filter(|found| found.parent & 0xffff_0000 == root.handle).count();
    assert_eq!(classes, 4, "a qdisc for each transmit queue");
}

/// However a list is damaged, the reader reaches its end.
#[test]
fn damaged_lists_are_read_without_panic() {
    for hex in [
        include_str!("../../fixtures/links.hex"),
        include_str!("../../fixtures/routes.hex"),
        include_str!("../../fixtures/addresses.hex"),
    ] {
        let whole = bytes(hex);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            for message in Messages::new(&damaged[..damaged.len() - at % 7]) {
                let _ = (message.result(), Update::parse(message.kind, message.body));
            }
        }
    }
}
