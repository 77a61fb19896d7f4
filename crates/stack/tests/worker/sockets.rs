//! Datagrams that go to sockets: what is read, refused and answered, and that every frame comes home.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_stack::counters::{DropReason, Snapshot};
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::{self, Groups};
use udpath_stack::handler::Handler;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::memory::{End, pair};
use udpath_stack::socket::memory::QUANTUM;
use udpath_stack::socket::{
    Config, Egress, Error, MIN_LIMIT, Paths, ReplyError, SendError, Sockets, UdpSocket, Wait, join,
};
use udpath_stack::steering::Steering;
use udpath_stack::tables::{
    Interface, Interfaces, LocalAddress, LocalAddresses, Neighbour, Neighbours, NoPath, Tables,
};
use udpath_stack::wire::{Mac, Packet, Tags};
use udpath_stack::worker::{Parts, Worker};

use super::support::*;

const CHARGE: usize = 2048;
const FREE_FRAMES: usize = 8;

/// Workers with a port each, and sockets.
pub(crate) struct Bed<H: Handler> {
    pub(crate) fars: Vec<End>,
    pub(crate) workers: Vec<Worker<End, H>>,
    pub(crate) sockets: Sockets,
    pub(crate) groups: Arc<Table<Groups>>,
    pub(crate) domain: Domain,
    pub(crate) binds: Vec<SocketAddr>,
}

/// `binds` are served by the handler until sockets are delivered to.
pub(crate) fn bed<H: Handler>(
    binds: &[&str],
    pool: usize,
    backlog: usize,
    mut steering: Vec<Option<Steering>>,
    handler: impl Fn() -> H,
) -> Bed<H> {
    let count = steering.len() as u16;
    let domain = Domain::new(usize::from(count) + 4, 8);
    let binds: Vec<SocketAddr> = binds.iter().map(|bind| bind.parse().unwrap()).collect();
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let mut rings = mesh(count, mesh::Config { backlog, frames: FRAMES }).unwrap();
    let sockets = join(&mut rings, Config { frames: FRAMES, free_frames: FREE_FRAMES, pool }).unwrap();
    assert!(matches!(join(&mut rings, Config::default()), Err(Error::Joined(0))));
    let (mut fars, mut workers) = (Vec::new(), Vec::new());
    for (rings, steering) in rings.into_iter().zip(&mut steering) {
        let (far, near) = pair(FRAMES).unwrap();
        fars.push(far);
        workers.push(Worker::new(Parts {
            port: Some(near),
            handler: handler(),
            reader: domain.register(format!("worker {}", rings.index())).unwrap(),
            groups: Arc::clone(&groups),
            rings,
            steering: steering.take(),
        }));
    }
    Bed { fars, workers, sockets, groups, domain, binds }
}

impl<H: Handler> Bed<H> {
    pub(crate) fn open(&self, bind: &str, limit: usize) -> UdpSocket {
        self.sockets.open(bind.parse().unwrap(), limit).unwrap()
    }

    pub(crate) fn deliver_to(&self, sockets: &[&UdpSocket]) {
        let handles: Vec<_> = sockets.iter().map(|socket| socket.handle()).collect();
        let groups = Groups::new(&self.binds, []).unwrap().delivering(&self.binds, &handles).unwrap();
        assert!(self.groups.publish(groups).is_ok());
    }

    /// Every frame of every port is where it began, but for the stocks.
    pub(crate) fn assert_all_returned(&mut self) {
        run_until_idle(&mut self.workers);
        for (far, worker) in self.fars.iter().zip(&self.workers) {
            assert_eq!(far.outstanding(), 0, "requests' frames");
            assert_eq!(worker.port().unwrap().outstanding(), FREE_FRAMES, "the worker's own frames");
        }
    }

    fn frames(&self, far: usize) -> &End {
        &self.fars[far]
    }
}

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
    // What does not fit the buffer is left out.
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
fn a_batch_is_answered_in_place_and_goes_home_at_once() {
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
fn a_slow_reader_is_refused_what_it_cannot_hold_and_told_so() {
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
fn sockets_share_a_pool_and_its_end_is_told_apart() {
    // Two quanta of it: each socket takes one.
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
fn a_worker_that_ends_first_leaves_what_can_be_read_and_no_more() {
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
fn a_worker_that_ends_last_takes_its_stock_back() {
    let mut bed = bed(&SERVER, 1 << 20, 64, vec![None], || echo);
    let socket = bed.open(SERVER[0], 1 << 20);
    bed.deliver_to(&[&socket]);
    send(&mut bed.fars[0], &vec![to_one(b"x"); 10]);
    run_until_idle(&mut bed.workers);
    drop(socket);
    // What came home and was not seen by a turn yet goes back to the far end's pool as well.
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
    assert!(error.to_string().contains("192.0.2.1:7 that holds 4095 bytes"), "{error}");
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
fn a_socket_sends_first_as_far_as_the_stock_goes() {
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
        let error = socket.send_to(b"x", wrong.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
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

/// Several workers with a port each fill several sockets, each read by its own thread, one of them slowly. Sockets are
/// closed and opened meanwhile. Everything adds up, and each flow keeps its order.
#[test]
fn threads_that_sleep_read_everything_that_is_not_refused() {
    const PER_FAR: u32 = 12_000;
    const FLOWS: u16 = 16;
    let binds = ["192.0.2.1:7", "192.0.2.1:8", "192.0.2.1:9"];
    let spread = || Some(spread("0-1"));
    let mut bed = bed(&binds, 1 << 20, 256, vec![spread(), spread()], || echo);
    let sockets: Vec<_> = binds.iter().map(|bind| bed.open(bind, 40 * CHARGE)).collect();
    bed.deliver_to(&sockets.iter().collect::<Vec<_>>());
    let counters: Vec<_> = bed.workers.iter().map(Worker::counters).collect();
    let (stop, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(60);
    let workers = std::mem::take(&mut bed.workers);
    let (ends, workers) = std::thread::scope(|scope| {
        let workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if worker.poll() == 0 {
                            worker.wait(Duration::from_millis(20), None).unwrap();
                            std::thread::yield_now();
                        }
                    }
                    worker
                })
            })
            .collect();
        let readers: Vec<_> = sockets
            .into_iter()
            .enumerate()
            .map(|(place, mut socket)| {
                let quiet = &quiet;
                scope.spawn(move || {
                    let mut next: HashMap<u16, u32> = HashMap::new();
                    let (mut stamp, mut turn) = (0, 0_u32);
                    loop {
                        let ending = quiet.load(Ordering::Relaxed);
                        turn += 1;
                        let wait = match turn % 3 {
                            0 => Wait::Sleep(Some(Duration::from_millis(20))),
                            1 => Wait::Poll(Duration::from_micros(20)),
                            _ => Wait::No,
                        };
                        let mut batch = socket.recv_batch(wait).unwrap();
                        if ending && batch.is_empty() {
                            drop(batch);
                            return socket.counts();
                        }
                        for mut datagram in batch.iter_mut() {
                            let number = u32::from_ne_bytes(*datagram.payload().first_chunk().unwrap());
                            let expected = next.entry(datagram.from().port()).or_default();
                            assert!(number >= *expected, "reordered: {number} after {expected}");
                            *expected = number + 1;
                            assert!(
                                datagram.refused_before().wrapping_sub(stamp) < 1 << 31,
                                "stamps went back"
                            );
                            stamp = datagram.refused_before();
                            if number % 2 == 0 {
                                datagram.reply(&number.to_ne_bytes()).unwrap();
                            }
                        }
                        drop(batch);
                        if place == 0 {
                            std::thread::sleep(Duration::from_micros(300));
                        }
                    }
                })
            })
            .collect();
        let (mut sent, mut got) = ([0_u32; 2], 0_u64);
        while sent.iter().any(|sent| *sent < PER_FAR) {
            assert!(Instant::now() < deadline, "{sent:?} sent");
            for (place, far) in bed.fars.iter_mut().enumerate() {
                got += receive(far).len() as u64;
                // No more under way than there is memory for.
                if sent[place] < PER_FAR && far.outstanding() <= FRAMES - 32 {
                    let frames: Vec<_> = (sent[place]..sent[place] + 32)
                        .map(|number| {
                            // The flows of the two ends are different ones.
                            let flow = (number % u32::from(FLOWS)) as u16 + FLOWS * place as u16;
                            let bind = binds[usize::from(flow % 3)];
                            request(Tags::NONE, 6000 + flow, bind, &number.to_ne_bytes())
                        })
                        .collect();
                    send(far, &frames);
                    sent[place] += 32;
                }
            }
        }
        // Until all that was received has found its end.
        loop {
            assert!(Instant::now() < deadline, "never at rest");
            got += bed.fars.iter_mut().map(|far| receive(far).len() as u64).sum::<u64>();
            let mut all = Snapshot::default();
            counters.iter().for_each(|counters| all.add(&counters.snapshot()));
            if all.received == u64::from(2 * PER_FAR) && all.under_way() == 0 {
                break;
            }
        }
        quiet.store(true, Ordering::Relaxed);
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let wanted: u64 = ends.iter().map(|end| end.sent).sum();
        while got < wanted {
            assert!(Instant::now() < deadline, "{got} of {wanted} replies");
            got += bed.fars.iter_mut().map(|far| receive(far).len() as u64).sum::<u64>();
        }
        assert_eq!(got, wanted);
        stop.store(true, Ordering::Relaxed);
        (ends, workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>())
    });
    bed.workers = workers;
    bed.assert_all_returned();
    let sum = sum(&bed.workers);
    let enqueued: u64 = ends.iter().map(|end| end.enqueued).sum();
    let refused: u64 = ends.iter().map(|end| end.refused.total()).sum();
    assert_eq!((sum.received, sum.under_way(), sum.unsent), (u64::from(2 * PER_FAR), 0, 0));
    assert_eq!((sum.delivered, sum.dropped(DropReason::SocketFull)), (enqueued, refused));
    assert_eq!(sum.dropped_total(), refused + sum.dropped(DropReason::BacklogFull));
    assert_eq!(sum.sent, ends.iter().map(|end| end.sent).sum::<u64>());
    assert!(ends.iter().all(|end| end.received == end.enqueued && end.received > 0), "{ends:?}");
    assert!(ends[0].refused.socket_full > 0, "the slow reader was refused nothing: {ends:?}");
    assert!(sum.steered > 0);
    assert_eq!(bed.sockets.memory(), 0);
}

/// A socket is closed and another one opened for the same binding, again and again, while datagrams come.
#[test]
fn sockets_come_and_go_under_load() {
    let spread = || Some(spread("0-1"));
    let mut bed = bed(&SERVER, 1 << 20, 256, vec![spread(), spread()], || echo);
    let workers = std::mem::take(&mut bed.workers);
    let stop = AtomicBool::new(false);
    let read = std::sync::atomic::AtomicU64::new(0);
    let workers = std::thread::scope(|scope| {
        let workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if worker.poll() == 0 {
                            std::thread::yield_now();
                        }
                    }
                    worker
                })
            })
            .collect();
        let bed = &mut bed;
        for round in 0..100_u32 {
            let mut socket = bed.open(SERVER[0], 30 * CHARGE);
            bed.deliver_to(&[&socket]);
            let reader = scope.spawn({
                let read = &read;
                move || {
                    for _ in 0..round % 7 {
                        let mut batch =
                            socket.recv_batch(Wait::Sleep(Some(Duration::from_millis(1)))).unwrap();
                        read.fetch_add(batch.len() as u64, Ordering::Relaxed);
                        batch.iter_mut().step_by(2).for_each(|mut datagram| datagram.reply(b"y").unwrap());
                    }
                }
            });
            while !reader.is_finished() {
                for far in &mut bed.fars {
                    receive(far);
                    if far.outstanding() <= FRAMES - 32 {
                        let frames: Vec<_> =
                            (0..32).map(|flow| request(Tags::NONE, 6000 + flow, SERVER[0], b"x")).collect();
                        send(far, &frames);
                    }
                }
            }
            reader.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    bed.workers = workers;
    run_until_idle(&mut bed.workers);
    for far in &mut bed.fars {
        receive(far);
    }
    bed.assert_all_returned();
    let sum = sum(&bed.workers);
    assert_eq!(sum.under_way(), 0);
    assert!(read.into_inner() > 0 && sum.dropped(DropReason::SocketClosed) > 0, "{sum:?}");
    assert_eq!(bed.sockets.memory(), 0);
}
