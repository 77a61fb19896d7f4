//! Replies go back to the sender of a request only if the kernel would send them there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Handler, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::memory::pair;
use udpath_stack::tables::{Hop, Interface, Interfaces, Neighbour, Neighbours, Route, Routes, Tables, Vlan};
use udpath_stack::wire::vlan::Control;
use udpath_stack::wire::{Mac, Tags};
use udpath_stack::worker::{NeighbourCheck, Parts, Worker};

use super::support::*;

/// The interface of the port, and a VLAN device over it.
const PORT: u32 = 2;
const VLAN: u32 = 3;
const ID: u16 = 7;
/// The sender of `request`.
const SENDER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 8]);

/// Network, prefix length, interface, gateway.
type Routed = (&'static str, u8, u32, Option<&'static str>);
/// Interface, address, state.
type Known = (u32, &'static str, Neighbour);

/// Echoes, and takes over replies that must not leave as frames.
struct Echo;

impl Handler for Echo {
    fn handle(&mut self, datagram: Datagram<'_>, buffer: &mut [u8]) -> Outcome {
        match datagram.payload {
            b"probe" => Outcome::Unchecked(0),
            _ => echo(datagram, buffer),
        }
    }

    fn send_otherwise(&mut self, _: Datagram<'_>, reply: &[u8]) -> bool {
        reply == b"ask"
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn interface(index: u32, vlan: Option<Vlan>) -> Interface {
    let (name, mac) = (format!("eth{index}"), Some(Mac([2, 0, 0, 0, 0, 1])));
    Interface { index, name, mac, mtu: 1500, up: true, running: true, rx_queues: 1, tx_queues: 1, vlan }
}

/// Whether the reply to a request of `payload` from 192.0.2.9 or 2001:db8::9, with these tags, leaves as a frame;
/// `worker` served it.
fn leaves(
    routes: &[Routed],
    neighbours: &[Known],
    (tags, to, payload): (Tags, &str, &[u8]),
    steered: bool,
) -> bool {
    let domain = Domain::new(2, 8);
    let tables = Arc::new(Tables::new(&domain));
    let routes = routes.iter().map(|(network, len, interface, gateway)| {
        let hop = Hop { interface: *interface, gateway: gateway.map(ip), source: None, mtu: None };
        (ip(network), *len, Route::Hop(hop))
    });
    assert!(tables.routes.publish(Routes::new(routes)).is_ok());
    let neighbours = neighbours.iter().map(|(interface, address, state)| (*interface, ip(address), *state));
    assert!(tables.neighbours.publish(Neighbours::new(neighbours)).is_ok());
    let vlan = Vlan { lower: PORT, id: ID, service: false, priority: 0 };
    let interfaces = [interface(PORT, None), interface(VLAN, Some(vlan))];
    assert!(tables.interfaces.publish(Interfaces::new(interfaces, 1)).is_ok());
    let check = NeighbourCheck::new(tables, Arc::from([PORT]));
    let binds: Vec<SocketAddr> = SERVER.iter().map(|bind| bind.parse().unwrap()).collect();
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let (mut far, near) = pair(FRAMES).unwrap();
    let mut near = Some(near);
    let rings = mesh(2, mesh::Config { backlog: 64, frames: FRAMES }).unwrap();
    let mut workers: Vec<_> = rings
        .into_iter()
        .map(|rings| {
            let reader = domain.register(format!("worker {}", rings.index())).unwrap();
            let steering = (steered && near.is_some()).then(|| spread("1"));
            let groups = Arc::clone(&groups);
            let parts = Parts { port: near.take(), handler: Echo, reader, groups, rings, steering };
            Worker::new(parts).checking_neighbours(check.clone())
        })
        .collect();
    send(&mut far, &[request(tags, 5000, to, payload)]);
    run_until_idle(&mut workers);
    let left = receive(&mut far).len();
    let sum = sum(&workers);
    assert_eq!((sum.answered, sum.declined, sum.dropped_total()), (left as u64, 1 - left as u64, 0));
    left == 1
}

#[test]
fn a_reply_goes_back_only_to_the_next_hop() {
    let ask = (Tags::NONE, SERVER[0], &b"ask"[..]);
    let ask_v6 = (Tags::NONE, SERVER[1], &b"ask"[..]);
    let tagged = (Tags::one(Control::new(ID, 0)), SERVER[0], &b"ask"[..]);
    let on_link = [("192.0.2.0", 24, PORT, None), ("2001:db8::", 64, PORT, None)];
    let routed = [("0.0.0.0", 0, PORT, Some("10.0.0.1"))];
    let elsewhere = [("192.0.2.0", 24, 5, None)];
    let over_vlan = [("192.0.2.0", 24, VLAN, None)];
    let usable = Neighbour::Usable(SENDER);
    let cases: [(&str, &[Routed], &[Known], _, bool); 13] = [
        ("its address", &on_link, &[(PORT, "192.0.2.9", usable)], ask, true),
        ("unconfirmed", &on_link, &[(PORT, "192.0.2.9", Neighbour::Stale(SENDER))], ask, true),
        ("IPv6", &on_link, &[(PORT, "2001:db8::9", usable)], ask_v6, true),
        ("another's address", &on_link, &[(PORT, "192.0.2.9", Neighbour::Usable(OTHER))], ask, false),
        ("another's IPv6", &on_link, &[(PORT, "2001:db8::9", Neighbour::Usable(OTHER))], ask_v6, false),
        ("unknown", &on_link, &[], ask, false),
        ("failed", &on_link, &[(PORT, "192.0.2.9", Neighbour::Failed)], ask, false),
        ("no route", &[], &[(PORT, "192.0.2.9", usable)], ask, false),
        ("the router", &routed, &[(PORT, "10.0.0.1", usable)], ask, true),
        // An entry for the source itself, made by a forged ARP request.
        (
            "not the router",
            &routed,
            &[(PORT, "10.0.0.1", Neighbour::Usable(OTHER)), (PORT, "192.0.2.9", usable)],
            ask,
            false,
        ),
        ("another link", &elsewhere, &[(5, "192.0.2.9", usable), (PORT, "192.0.2.9", usable)], ask, false),
        ("its VLAN", &over_vlan, &[(VLAN, "192.0.2.9", usable)], tagged, true),
        ("another VLAN", &on_link, &[(PORT, "192.0.2.9", usable)], tagged, false),
    ];
    for (name, routes, neighbours, request, expected) in cases {
        for steered in [false, true] {
            assert_eq!(leaves(routes, neighbours, request, steered), expected, "{name}, steered: {steered}");
        }
    }
    assert!(leaves(&[], &[], (Tags::NONE, SERVER[0], b"probe"), false), "unchecked");
}
