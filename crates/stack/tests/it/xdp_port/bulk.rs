//! Many replies at once, sent as live frames.

use std::net::UdpSocket;

use udpath_lab::Lab;
use udpath_stack::port::Port;
use udpath_stack::port::xdp::{Config, XdpPort};

use super::support::*;

const CLIENTS: usize = 32;
/// Datagrams of each client: together more than two calls send, and more than one burst holds.
const EACH: usize = 17;

/// All clients send their datagrams, of all lengths, before `port` begins to echo; every reply arrives, whole and in
/// order.
fn flood(lab: &Lab, port: &mut XdpPort) {
    let client = lab.machine("client").unwrap();
    for to in addresses(lab) {
        let clients: Vec<UdpSocket> = (0..CLIENTS).map(|_| socket(client, to)).collect();
        let payload = |from: usize, number: usize| -> Vec<u8> {
            let len = 2 + (from * 131 + number * 467) % 1400;
            (0..len).map(|at| (from + number * 7 + at * 3) as u8).collect()
        };
        for number in 0..EACH {
            for (from, client) in clients.iter().enumerate() {
                client.send_to(&payload(from, number), (to, PORT)).unwrap();
            }
        }
        let before = port.counts().transmitted;
        echo_until(std::slice::from_mut(port), |ports| {
            ports[0].counts().transmitted - before == (CLIENTS * EACH) as u64
        });
        let mut bytes = [0; 2048];
        for number in 0..EACH {
            for (from, client) in clients.iter().enumerate() {
                let len = client.recv(&mut bytes).unwrap();
                assert_eq!(bytes[..len], payload(from, number), "reply {number} to client {from}");
            }
        }
    }
}

#[test]
fn many_replies_at_once_leave_without_a_buffer_each() {
    udpath_lab::needs_root!();
    let lab = lab("x-bulk", 1);
    let client = lab.machine("client").unwrap().interface("eth0").unwrap();
    // Without it a veth accepts no frames from XDP.
    let _napi = client.ensure_napi().unwrap();
    let mut device = device(&lab, Config { live_frames: true, ..Config::default() });
    let mut ports = ports(&lab, &mut device);
    flood(&lab, &mut ports[0]);
    settle(&mut ports);
    let (port, statistics) = (&ports[0], ports[0].statistics());
    assert_eq!(port.live_frames(), Ok(()));
    let sent = (2 * CLIENTS * EACH) as u64;
    assert!(statistics.live > sent / 2 && statistics.live <= sent, "{statistics:?}");
    assert!(statistics.live_calls < sent / 48, "{statistics:?}");
    assert_eq!((port.counts().transmitted, statistics.dropped_sending, port.outstanding()), (sent, 0, 0));
    lab.down().unwrap();
}

#[test]
fn a_driver_that_takes_none_gets_them_by_the_ring() {
    udpath_lab::needs_root!();
    let lab = lab("x-bulk-none", 1);
    let mut device = device(&lab, Config { live_frames: true, ..Config::default() });
    let mut ports = ports(&lab, &mut device);
    assert_eq!(ports[0].live_frames(), Ok(()), "not tried yet");
    flood(&lab, &mut ports[0]);
    settle(&mut ports);
    let (port, statistics) = (&ports[0], ports[0].statistics());
    assert!(port.live_frames().unwrap_err().contains("accepts no frames from XDP"));
    let sent = (2 * CLIENTS * EACH) as u64;
    assert_eq!((port.counts().transmitted, statistics.live, statistics.dropped_sending), (sent, 0, 0));
    assert_eq!(port.outstanding(), 0);
    lab.down().unwrap();
}
