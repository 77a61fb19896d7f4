use udpath_host::interfaces::{Napi, Qdisc, Rings};
use udpath_host::queues::{RxQueue, TxQueue};
use udpath_host::sockets::SocketOptions;
use udpath_host::sysctls::{Sysctl, SysctlScope};
use udpath_host::tun::Tun;

use crate::finding::Location;
use crate::rules::testing::{Host, fact, only, set, settings};

#[test]
fn packets_that_a_program_does_not_take_from_its_interface() {
    let mut host = Host::with_queues(1);
    host.map.seconds = Some(5.0);
    host.map.interfaces[0].kind = "tun".into();
    let out = &mut host.map.interfaces[0].out;
    (out.packets, out.dropped) = (Some(5_000), 45_000);
    let tun = Tun { interface: "eth0".into(), pid: 77, program: "openvpn".into() };
    host.snapshot.tuns = vec![Tun { interface: "tun7".into(), pid: 78, ..tun.clone() }, tun];
    let finding = only(&host, "tun-reader-slow");
    assert_eq!(
        finding.evidence,
        "eth0 dropped 45,000 packets that openvpn (pid 77) had to read in 5.0 s; it took 5,000"
    );
    assert_eq!(finding.locations.last(), Some(&Location::Process(77)));
    assert_eq!((host.found("transmit-queue-full"), finding.rate), (vec![], Some(9_000.0)));
    host.map.interfaces[0].out.dropped = 0;
    assert_eq!(host.found("tun-reader-slow"), []);
    host.map.interfaces[0].kind = "device".into();
    host.map.interfaces[0].out.dropped = 45_000;
    assert_eq!(host.found("tun-reader-slow"), []);
    only(&host, "transmit-queue-full");
}

#[test]
fn a_transmit_queue_that_stops() {
    let mut host = Host::with_queues(1);
    host.map.seconds = Some(10.0);
    let out = &mut host.map.interfaces[0].out;
    (out.packets, out.stops) = (Some(1_000_000), Some(4_000));
    host.snapshot.interfaces[0].rings =
        Some(fact(Rings { tx: Some(256), tx_max: Some(4096), ..Rings::default() }));
    let finding = only(&host, "transmit-queue-stops");
    assert_eq!(
        finding.evidence,
        "eth0 stopped its transmit queues 4,000 times in 10.0 s, while it sent 1,000,000 packets"
    );
    assert_eq!(settings(&finding), ["eth0:ring/tx=4096"]);
    host.map.interfaces[0].out.stops = Some(400);
    assert_eq!(host.found("transmit-queue-stops"), [], "now and then");
    host.map.interfaces[0].out.stops = None;
    assert_eq!(host.found("transmit-queue-stops"), [], "not counted");
}

#[test]
fn one_discipline_for_all_queues() {
    let mut host = Host::with_queues(4);
    let root = |kind: &str| {
        let qdisc = serde_json::json!({"interface": 2, "kind": kind, "handle": "0:", "parent": "root"});
        fact(vec![serde_json::from_value::<Qdisc>(qdisc).unwrap()])
    };
    host.snapshot.interfaces[0].qdiscs = Some(root("fq_codel"));
    let finding = only(&host, "one-qdisc");
    assert_eq!(finding.evidence, "eth0: one queueing discipline (fq_codel) in front of 4 transmit queues");
    assert_eq!(settings(&finding), ["eth0:qdisc=mq"]);
    host.snapshot.interfaces[0].qdiscs = Some(root("mq"));
    assert_eq!(host.found("one-qdisc"), []);
}

#[test]
fn no_transmit_mapping() {
    let mut host = Host::with_queues(2);
    host.cpus(4, 1);
    assert_eq!(settings(&only(&host, "no-xps")), ["eth0:xps/tx-0=0,2", "eth0:xps/tx-1=1,3"]);
    host.map.interfaces[0].queues[0].xps = set("0-1");
    assert_eq!(host.found("no-xps"), []);
}

/// A server with two threads and a connected socket that polls the second of two queue pairs.
fn polling() -> Host {
    let mut host = Host::with_queues(2);
    host.serve(2, 0);
    let eth0 = &mut host.snapshot.interfaces[0];
    eth0.rx = (0..2).map(|id| RxQueue { id, ..RxQueue::default() }).collect();
    eth0.tx = (0..2).map(|id| TxQueue { id, ..TxQueue::default() }).collect();
    eth0.napis = Some(fact(vec![Napi { id: 515, ..Napi::default() }, Napi { id: 516, ..Napi::default() }]));
    let socket = &mut host.map.sockets[0];
    socket.peer = Some("192.0.2.7:9".parse().unwrap());
    let options = SocketOptions { busy_poll_us: 50, napi: Some(516), ..SocketOptions::default() };
    socket.options = Some(options);
    host
}

#[test]
fn replies_of_a_poller_leave_by_cpu() {
    let mut host = polling();
    let finding = only(&host, "transmit-by-cpu");
    assert_eq!(
        finding.evidence,
        "0.0.0.0:53 to 192.0.2.7:9 busy-polls eth0, and the sending CPU selects among its 2 transmit queues"
    );
    assert_eq!(settings(&finding), ["eth0:xps-rxqs/tx-0=0", "eth0:xps-rxqs/tx-1=1"]);
    host.snapshot.interfaces[0].tx[0].xps_rxqs = Some(set("0"));
    assert_eq!(settings(&only(&host, "transmit-by-cpu")), ["eth0:xps-rxqs/tx-1=1"]);
    host.snapshot.interfaces[0].tx[1].xps_rxqs = Some(set("1"));
    assert_eq!(host.found("transmit-by-cpu"), []);
    // Both queues' flows on one: not its own.
    host.snapshot.interfaces[0].tx[1].xps_rxqs = Some(set("0-1"));
    assert_eq!(settings(&only(&host, "transmit-by-cpu")), ["eth0:xps-rxqs/tx-1=1"]);
}

#[test]
fn only_connected_pollers_that_may_move_count() {
    let spoils: [fn(&mut Host); 7] = [
        |host| host.map.sockets[0].peer = None,
        |host| host.map.sockets[0].options = None,
        |host| host.map.sockets[0].options.as_mut().unwrap().busy_poll_us = 0,
        |host| host.map.sockets[0].options.as_mut().unwrap().napi = Some(7),
        |host| host.map.processes[0].pinned = 2,
        |host| drop(host.snapshot.interfaces[0].tx.pop()),
        |host| host.snapshot.interfaces[0].napis = None,
    ];
    for (at, spoil) in spoils.iter().enumerate() {
        let mut host = polling();
        spoil(&mut host);
        assert_eq!(host.found("transmit-by-cpu"), [], "{at}");
    }
    // Sockets that are waited for by poll or epoll poll if the sysctl is set.
    let mut host = polling();
    host.map.sockets[0].options.as_mut().unwrap().busy_poll_us = 0;
    let mut set_to = |value: &str| {
        let (name, value) = ("net.core.busy_poll".to_owned(), value.to_owned());
        host.snapshot.sysctls = vec![Sysctl { name, value, scope: SysctlScope::Host }];
        host.found("transmit-by-cpu").len()
    };
    assert_eq!([set_to("50"), set_to("0")], [1, 0]);
}
