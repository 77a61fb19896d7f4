//! Slots that are held: their sockets get queries, and nothing else.

use super::*;

#[test]
fn a_held_slot_gets_queries_only() {
    udpath_lab::needs_root!();
    for host in LOOPBACK {
        let group = Group::new(host, 2);
        let mut selection = Selection::load_for_queries(Rule::Hash, 2).unwrap();
        selection.set(0, Some(group.sockets[0].as_fd())).unwrap();
        selection.hold(1, group.sockets[1].as_fd()).unwrap();
        selection.attach_to(group.sockets[0].as_fd()).unwrap();
        let flows = group.flows(50);
        assert_eq!(group.of_flows(&flows, b"datagram"), [50, 0]);
        // Also the one that would reach another socket by its hash, and only that port.
        let (query, other) = (group.flow(), group.flow());
        selection.ask(1, query.local_addr().unwrap().port()).unwrap();
        send(&query, 7);
        send(&other, 5);
        assert_eq!(group.received(12), [5, 7]);
        assert_eq!(selection.datagrams().unwrap(), [55, 0], "queries are not counted");
        selection.admit(1).unwrap();
        assert_eq!(receivers(&group.of_flows(&flows, b"datagram")), [0, 1]);
        selection.retire(1).unwrap();
        assert_eq!(group.of_flows(&flows, b"datagram"), [50, 0]);
        // Another port replaces the earlier one.
        selection.ask(1, other.local_addr().unwrap().port()).unwrap();
        send(&query, 3);
        send(&other, 4);
        assert_eq!(group.received(7), [3, 4]);
    }
}

#[test]
fn a_query_to_a_closed_socket_reaches_no_other() {
    udpath_lab::needs_root!();
    let mut group = Group::new("127.0.0.1", 2);
    let mut selection = Selection::load_for_queries(Rule::Hash, 2).unwrap();
    for (slot, socket) in (0..).zip(&group.sockets) {
        selection.set(slot, Some(socket.as_fd())).unwrap();
    }
    selection.attach_to(group.sockets[0].as_fd()).unwrap();
    let (query, flow) = (group.flow(), group.flow());
    selection.ask(1, query.local_addr().unwrap().port()).unwrap();
    drop(group.sockets.pop());
    // Refused or dropped, but not given to the other one, which gets what comes later.
    let _ = query.send(b"query");
    send(&flow, 1);
    assert_eq!(group.received(1), [1]);
}
