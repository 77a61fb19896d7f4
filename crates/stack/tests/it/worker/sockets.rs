//! Datagrams delivered to sockets: reads, refusals, replies, and that every frame is returned.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use error_reporter::Report;
use udpath_stack::counters::DropReason;
use udpath_stack::epoch::Domain;
use udpath_stack::groups::{self, Groups};
use udpath_stack::socket::memory::QUANTUM;
use udpath_stack::socket::{Egress, Error, MIN_LIMIT, Paths, ReplyError, SendError, Wait};
use udpath_stack::tables::{
    Interface, Interfaces, LocalAddress, LocalAddresses, Neighbour, Neighbours, NoPath, Tables,
};
use udpath_stack::wire::{Mac, Packet, Tags};

use super::bed::*;
use super::support::*;

fn to_one(payload: &[u8]) -> Vec<u8> {
    request(Tags::NONE, 5000, SERVER[0], payload)
}

fn payload(frame: &[u8]) -> &[u8] {
    Packet::parse(frame).unwrap().payload(frame)
}

#[test]
fn a_socket_reads_and_answers_and_the_handler_serves_the_rest() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let mut socket = bed.open(SERVER[0], 1 << 16);
    bed.deliver_to(&[&socket]);
    socket.set_wait(Wait::No);
    let mut buffer = [0; 4];
    assert_eq!(socket.recv_from(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(socket.reply(b"x"), Err(ReplyError::NoRequest));

    send(
        &mut bed.fars[0],
        &[to_one(b"one"), request(Tags::NONE, 5000, SERVER[1], b"handler"), to_one(b"two 2")],
    );
    run_until_idle(&mut bed.workers);
    let replies = receive(&mut bed.fars[0]);
    assert_eq!(replies.iter().map(|frame| payload(frame)).collect::<Vec<_>>(), [b"handler"]);

    let peer = "192.0.2.9:5000".parse().unwrap();
    assert_eq!(socket.local_addr(), SERVER[0].parse().unwrap());
    assert_eq!(socket.waiting(), 2);
    assert_eq!(socket.recv_from(&mut buffer).unwrap(), (3, peer));
    assert_eq!(&buffer[..3], b"one");
    let long = [7; 1600];
    assert!(matches!(socket.reply(&long), Err(ReplyError::TooLong { len: 1600, most: 1472 })));
    socket.reply(b"a longer reply").unwrap();
    assert_eq!(socket.reply(b"x"), Err(ReplyError::Answered));
    // Data that does not fit the buffer is truncated.
    assert_eq!(socket.recv_from(&mut buffer).unwrap(), (4, peer));
    assert_eq!(&buffer, b"two ");
    socket.reply(b"").unwrap();
    run_until_idle(&mut bed.workers);
    let replies = receive(&mut bed.fars[0]);
    assert_eq!(replies.len(), 2);
    for (reply, expected) in replies.iter().zip([&b"a longer reply"[..], b""]) {
        let headers = Packet::parse(reply).unwrap();
        headers.verify(reply).unwrap();
        assert_eq!(headers.payload(reply), expected);
        assert_eq!((headers.source(), headers.destination()), (SERVER[0].parse().unwrap(), peer));
    }
    let sum = sum(&bed.workers);
    assert_eq!((sum.received, sum.answered, sum.delivered, sum.sent), (3, 1, 2, 2));
    assert_eq!((sum.under_way(), sum.unsent), (0, 0));
    let counts = socket.counts();
    assert_eq!((counts.enqueued, counts.received, counts.sent, counts.refused.total()), (2, 2, 2, 0));
    bed.assert_all_returned();
}

#[test]
fn a_batch_is_answered_in_place_and_returned_at_once() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let mut socket = bed.open(SERVER[0], 1 << 20);
    bed.deliver_to(&[&socket]);
    let requests: Vec<_> = (0..100_u8).map(|number| to_one(&[number, 1])).collect();
    send(&mut bed.fars[0], &requests);
    run_until_idle(&mut bed.workers);
    let mut next = 0;
    while next < 100 {
        let mut batch = socket.recv_batch(Wait::No).unwrap();
        assert!(!batch.is_empty());
        for mut datagram in batch.iter_mut() {
            assert_eq!(datagram.payload(), [next, 1]);
            assert_eq!(datagram.to(), SERVER[0].parse().unwrap());
            // Two of three are answered, one of those by rewriting the payload.
            match next % 3 {
                0 => datagram
                    .reply_with(|room| {
                        room[1] = 2;
                        room[2] = 3;
                        3
                    })
                    .unwrap(),
                1 => {
                    let most = ReplyError::TooLong { len: 9000, most: 1472 };
                    assert_eq!(datagram.reply_with(|_| 9000), Err(most));
                    datagram.reply(&[next]).unwrap();
                    assert_eq!(datagram.reply(b"x"), Err(ReplyError::Answered));
                }
                _ => {}
            }
            next += 1;
        }
    }
    assert!(socket.recv_batch(Wait::Poll(Duration::from_micros(10))).unwrap().is_empty());
    run_until_idle(&mut bed.workers);
    let got: Vec<Vec<u8>> = receive(&mut bed.fars[0]).iter().map(|frame| payload(frame).to_vec()).collect();
    let expected: Vec<Vec<u8>> = (0..100_u8)
        .filter_map(|number| match number % 3 {
            0 => Some(vec![number, 2, 3]),
            1 => Some(vec![number]),
            _ => None,
        })
        .collect();
    assert_eq!(got, expected);
    bed.assert_all_returned();
}

#[test]
fn a_full_socket_refuses_and_counts_it() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let mut socket = bed.open(SERVER[0], 10 * CHARGE);
    bed.deliver_to(&[&socket]);
    let numbered = |from: u8, to: u8| (from..to).map(|number| to_one(&[number])).collect::<Vec<_>>();
    send(&mut bed.fars[0], &numbered(0, 30));
    run_until_idle(&mut bed.workers);
    assert_eq!(socket.recv_batch(Wait::No).unwrap().len(), 10);
    send(&mut bed.fars[0], &numbered(30, 32));
    run_until_idle(&mut bed.workers);
    socket.set_wait(Wait::No);
    let mut number = [0];
    socket.recv_from(&mut number).unwrap();
    assert_eq!((number, socket.refused_before()), ([30], 20));
    let sum = sum(&bed.workers);
    assert_eq!(
        (sum.received, sum.delivered, sum.dropped(DropReason::SocketFull), sum.under_way()),
        (32, 12, 20, 0)
    );
    assert_eq!(socket.counts().refused.socket_full, 20);
    drop(socket);
    bed.assert_all_returned();
    assert_eq!(bed.sockets.memory(), 0);
}

#[test]
fn sockets_share_a_pool_and_its_limit_is_counted_separately() {
    // Two quanta: each socket takes one.
    let mut bed = bed(&SERVER, 2 * QUANTUM, 64, vec![None], || echo);
    let (first, second) = (bed.open(SERVER[0], 1 << 16), bed.open(SERVER[1], 1 << 16));
    bed.deliver_to(&[&first, &second]);
    let both: Vec<_> = (0..40).map(|i| request(Tags::NONE, 5000, SERVER[i % 2], b"x")).collect();
    send(&mut bed.fars[0], &both);
    run_until_idle(&mut bed.workers);
    let sum = sum(&bed.workers);
    assert_eq!((sum.delivered, sum.dropped(DropReason::PoolFull), sum.under_way()), (16, 24, 0));
    let refused = [&first, &second].map(|socket| socket.counts().refused.pool_full);
    assert_eq!(refused.iter().sum::<u64>(), 24);
    drop((first, second));
    bed.assert_all_returned();
}

#[test]
fn a_socket_that_closes_gives_everything_back_and_is_refused_from_then_on() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None, None], || echo);
    let mut socket = bed.open(SERVER[0], 1 << 20);
    bed.deliver_to(&[&socket]);
    for far in &mut bed.fars {
        send(far, &vec![to_one(b"x"); 100]);
    }
    run_until_idle(&mut bed.workers);
    // Some are read, one is answered, most wait.
    let mut buffer = [0; 8];
    for _ in 0..3 {
        socket.recv_from(&mut buffer).unwrap();
    }
    socket.reply(b"y").unwrap();
    socket.recv_from(&mut buffer).unwrap();
    drop(socket);
    for far in &mut bed.fars {
        send(far, &[to_one(b"x")]);
    }
    run_until_idle(&mut bed.workers);
    let replies: usize = bed.fars.iter_mut().map(|far| receive(far).len()).sum();
    let sum = sum(&bed.workers);
    assert_eq!((replies, sum.sent, sum.delivered), (1, 1, 200));
    assert_eq!((sum.dropped(DropReason::SocketClosed), sum.under_way()), (2, 0));
    bed.assert_all_returned();
    assert_eq!(bed.sockets.memory(), 0);
}

#[test]
fn a_worker_that_ends_first_leaves_only_readable_datagrams() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None, None], || echo);
    let mut socket = bed.open(SERVER[0], 1 << 20);
    bed.deliver_to(&[&socket]);
    for far in &mut bed.fars {
        send(far, &vec![to_one(b"x"); 10]);
    }
    run_until_idle(&mut bed.workers);
    drop(bed.workers.remove(0));
    let (mut answered, mut buffer) = (0, [0; 8]);
    socket.set_wait(Wait::No);
    while let Ok((len, _)) = socket.recv_from(&mut buffer) {
        assert_eq!(buffer[..len], *b"x");
        match socket.reply(b"y") {
            Ok(()) => answered += 1,
            Err(error) => assert_eq!(error, ReplyError::WorkerEnded(0)),
        }
    }
    assert_eq!((answered, socket.counts().orphaned), (10, 10));
    run_until_idle(&mut bed.workers);
    assert_eq!(receive(&mut bed.fars[1]).len(), 10);
    drop(socket);
    run_until_idle(&mut bed.workers);
    assert_eq!(bed.workers[0].port().unwrap().outstanding(), FREE_FRAMES);
    assert_eq!(bed.frames(1).outstanding(), 0);
}

#[test]
fn a_worker_that_ends_last_recycles_its_free_frames() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let socket = bed.open(SERVER[0], 1 << 20);
    bed.deliver_to(&[&socket]);
    send(&mut bed.fars[0], &vec![to_one(b"x"); 10]);
    run_until_idle(&mut bed.workers);
    drop(socket);
    // Frames returned but not polled yet go back to the far end's pool as well.
    bed.workers.clear();
    assert_eq!(bed.fars[0].outstanding(), 0);
}

#[test]
fn tables_that_make_no_sense_are_refused() {
    let bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let (socket, other) = (bed.open(SERVER[0], MIN_LIMIT), bed.open("192.0.2.7:7", MIN_LIMIT));
    let groups = || Groups::new(&bed.binds, []).unwrap();
    let error = groups().delivering(&bed.binds, &[other.handle()]).unwrap_err();
    assert_eq!(error, groups::Error::NoBinding(other.local_addr()));
    let error = groups().delivering(&bed.binds, &[socket.handle(), socket.handle()]).unwrap_err();
    assert_eq!(error, groups::Error::TwoSockets(socket.local_addr()));
    let error = bed.sockets.open(bed.binds[0], MIN_LIMIT - 1).unwrap_err();
    assert!(error.to_string().contains("192.0.2.1:7 with a limit of 4095 bytes"), "{error}");
    assert!(matches!(bed.sockets.open(bed.binds[0], usize::MAX), Err(Error::Queue { .. })));
}

fn paths(domain: &Domain) -> Paths {
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    let tables = Arc::new(Tables::new(domain));
    let interface = Interface {
        index: 2,
        name: "eth0".into(),
        mac: Some(OWN),
        mtu: 1500,
        up: true,
        running: true,
        rx_queues: 1,
        tx_queues: 1,
        vlan: None,
    };
    let ip = |text: &str| text.parse().unwrap();
    let local = LocalAddress::new(2, ip("192.0.2.1"), 24);
    let routes = udpath_stack::tables::Routes::new([(
        ip("192.0.2.0"),
        24,
        udpath_stack::tables::Route::Hop(udpath_stack::tables::Hop {
            interface: 2,
            gateway: None,
            source: None,
            mtu: None,
        }),
    )]);
    assert!(tables.interfaces.publish(Interfaces::new([interface], 1)).is_ok());
    assert!(tables.addresses.publish(LocalAddresses::new([local], [])).is_ok());
    let neighbour = (2, ip("192.0.2.9"), Neighbour::Usable(Mac([2, 0, 0, 0, 0, 9])));
    assert!(tables.neighbours.publish(Neighbours::new([neighbour])).is_ok());
    assert!(tables.routes.publish(routes).is_ok());
    let reader = domain.register("sender").unwrap();
    Paths::new(tables, reader, None, [Egress { interface: 2, worker: 0 }])
}

#[test]
fn a_socket_sends_first_while_there_are_free_frames() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let mut socket = bed.open(SERVER[0], 1 << 16);
    let to: SocketAddr = "192.0.2.9:99".parse().unwrap();
    assert_eq!(socket.send_to(b"x", to), Err(SendError::NoPaths(to)));
    socket.set_paths(paths(&bed.domain));
    for (wrong, expected) in [
        ("[2001:db8::9]:99", "different IP versions"),
        ("192.0.2.9:0", "port 0"),
        ("192.0.2.8:99", "MAC address of 192.0.2.8"),
        ("198.51.100.1:99", "no route"),
    ] {
        let error = Report::new(socket.send_to(b"x", wrong.parse().unwrap()).unwrap_err()).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let unknown = NoPath::NeighbourUnknown { interface: 2, next_hop: [192, 0, 2, 8].into() };
    let to_unknown = "192.0.2.8:99".parse().unwrap();
    assert_eq!(socket.send_to(b"x", to_unknown), Err(SendError::NoPath { to: to_unknown, cause: unknown }));
    let too_long = SendError::TooLong { to, len: 1473, most: 1472 };
    assert_eq!(socket.send_to(&[0; 1473], to), Err(too_long));
    assert_eq!(socket.send_to(&[0; 1472], to), Ok(()));
    for number in 1..FREE_FRAMES {
        socket.send_to(&[number as u8], to).unwrap();
    }
    assert_eq!(socket.send_to(b"x", to), Err(SendError::NoFrame { to, worker: 0 }));
    run_until_idle(&mut bed.workers);
    assert_eq!(socket.send_to(b"again", to), Ok(()));
    run_until_idle(&mut bed.workers);
    let sent = receive(&mut bed.fars[0]);
    assert_eq!(sent.len(), FREE_FRAMES + 1);
    for frame in &sent {
        let headers = Packet::parse(frame).unwrap();
        headers.verify(frame).unwrap();
        assert_eq!((headers.source(), headers.destination()), (SERVER[0].parse().unwrap(), to));
    }
    assert_eq!(payload(&sent[FREE_FRAMES]), b"again");
    let sum = sum(&bed.workers);
    assert_eq!((sum.sent, socket.counts().sent), (FREE_FRAMES as u64 + 1, FREE_FRAMES as u64 + 1));
    drop(socket);
    bed.assert_all_returned();
}
