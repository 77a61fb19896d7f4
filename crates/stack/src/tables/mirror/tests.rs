//! The follower on a socket that is not the kernel's: crafted datagrams, and a socket that closes.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use error_reporter::Report;
use proptest::prelude::*;
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_netlink::flag;
use udpath_netlink::message::encode;
use udpath_netlink::rtnetlink::link::{flags, hardware};
use udpath_netlink::rtnetlink::{Link, Neighbour, neighbour};

use super::*;

/// The follower's own address, carried by the kernel's answers.
const PORT: u32 = 77;

/// A notification.
fn bytes(update: &Update) -> Vec<u8> {
    let (kind, body) = update.encode();
    encode(kind, 0, 0, 0, &body).unwrap()
}

fn new_link(index: u32, mtu: u32) -> Update {
    Update::NewLink(Link {
        index,
        hardware: hardware::ETHERNET,
        flags: flags::UP | flags::RUNNING,
        name: Some(format!("eth{index}")),
        mtu: Some(mtu),
        address: Some(vec![2, 0, 0, 0, 0, index as u8]),
        ..Link::default()
    })
}

fn follower() -> (Follower, UnixDatagram) {
    let (kernel, socket) = UnixDatagram::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let domain = Domain::new(1, 8);
    let now = Instant::now();
    let follower = Follower {
        netlink: Netlink::over(OwnedFd::from(socket), PORT),
        model: Model::default(),
        tables: Arc::new(Tables::new(&domain)),
        domain,
        requests: Arc::new(Requests::new().unwrap()),
        status: Status::default(),
        shown: Arc::new(Mutex::new(Status::default())),
        generation: 0,
        lost: false,
        publish_at: now,
        read_at: now,
    };
    (follower, kernel)
}

/// Sends `datagram` and lets the follower read it.
fn feed(follower: &mut Follower, kernel: &UnixDatagram, datagram: &[u8]) {
    kernel.send(datagram).unwrap();
    assert!(!follower.notices().unwrap());
}

#[test]
fn a_notice_becomes_a_table() {
    let (mut follower, kernel) = follower();
    feed(&mut follower, &kernel, &bytes(&new_link(2, 1500)));
    assert!(follower.model.dirty.interfaces);
    follower.publish();
    assert!(!follower.model.dirty.any());
    let mut reader = follower.domain.register("test").unwrap();
    let guard = reader.pin();
    let interfaces = follower.tables.load(&guard).interfaces;
    assert_eq!(interfaces.by_name("eth2").map(|eth2| (eth2.index, eth2.mtu)), Some((2, 1500)));
    assert_eq!(interfaces.generation(), 1);
    // The same message again changes nothing.
    feed(&mut follower, &kernel, &bytes(&new_link(2, 1500)));
    assert!(!follower.model.dirty.any());
}

#[test]
fn unknown_and_malformed_messages_are_passed_over() {
    let (mut follower, kernel) = follower();
    let good = bytes(&new_link(3, 9000));
    // An unknown type, then a valid message, in one datagram.
    let mut unknown = vec![20, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    unknown.extend_from_slice(&good);
    feed(&mut follower, &kernel, &unknown);
    assert_eq!(follower.model.interfaces(1).all().len(), 1);
    assert_eq!(follower.status.undecodable, 0);
    // A header with a length beyond the datagram; a length below the header's; a link message without its header.
    feed(&mut follower, &kernel, &[200, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    feed(&mut follower, &kernel, &[3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    feed(&mut follower, &kernel, &[17, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(follower.status.undecodable, 3);
    // Next hop objects: the routes may have changed.
    follower.model.fib = fib::Fib::default();
    feed(&mut follower, &kernel, &[16, 0, 0, 0, 105, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(follower.model.fib.is_unsure());
    // Longer than the buffer: lost.
    feed(&mut follower, &kernel, &vec![0; 70_000]);
    assert!(follower.lost);
    assert_eq!(follower.status.overruns, 1);
}

proptest! {
    /// No bytes after the header of a mirrored type cause a panic.
    #[test]
    fn no_bytes_panic(
        kind in 16_u16..32,
        flags in any::<u16>(),
        body in prop::collection::vec(any::<u8>(), 0..120),
        family in prop_oneof![Just(0_u8), Just(2), Just(10), Just(7)],
        flip in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (mut follower, kernel) = follower();
        let mut datagram = (16 + body.len() as u32).to_ne_bytes().to_vec();
        datagram.extend_from_slice(&kind.to_ne_bytes());
        datagram.extend_from_slice(&flags.to_ne_bytes());
        datagram.extend_from_slice(&[0; 8]);
        datagram.extend_from_slice(&body);
        if let Some(first) = datagram.get_mut(16) {
            *first = family;
        }
        feed(&mut follower, &kernel, &datagram);
        // A valid message with some bytes changed.
        let mut datagram = bytes(&new_link(2, 1500));
        for (at, byte) in flip {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        feed(&mut follower, &kernel, &datagram);
        follower.publish();
    }
}

#[test]
fn when_the_socket_dies_the_tables_stay_and_the_state_says_so() {
    let (mut follower, kernel) = follower();
    feed(&mut follower, &kernel, &bytes(&new_link(2, 1500)));
    let (tables, domain) = (Arc::clone(&follower.tables), follower.domain.clone());
    let (shown, requests) = (Arc::clone(&follower.shown), Arc::clone(&follower.requests));
    follower.publish();
    follower.model.fib = fib::Fib::default();
    // A closed socket appears as an empty datagram.
    kernel.send(&[]).unwrap();
    follower.run();
    let status = lock(&shown).clone();
    assert!(
        matches!(&status.state, State::Ended(why) if why.contains("read rtnetlink's notices")),
        "{:?}",
        status.state
    );
    let mut reader = domain.register("test").unwrap();
    assert!(tables.load(&reader.pin()).interfaces.by_name("eth2").is_some());
    assert!(
        !crate::tables::Resolver::new(requests, tables).ask(2, [10, 0, 0, 1].into()),
        "nobody would hear it"
    );
}

#[test]
fn a_reader_that_stalls_is_named_and_publishing_goes_on_when_it_moves() {
    let (mut follower, kernel) = follower();
    let domain = Domain::new(1, 1);
    follower.tables = Arc::new(Tables::new(&domain));
    follower.domain = domain.clone();
    let mut reader = domain.register("worker 7").unwrap();
    let _ = reader.pin();
    feed(&mut follower, &kernel, &bytes(&new_link(2, 1500)));
    follower.publish();
    assert_eq!(follower.status.state, State::Following, "one may wait");
    feed(&mut follower, &kernel, &bytes(&new_link(2, 1400)));
    follower.publish();
    let State::Held(stalled) = &follower.status.state else { panic!("{:?}", follower.status.state) };
    assert_eq!(stalled.reader, "worker 7");
    assert!(follower.model.dirty.interfaces, "still to be published");
    let _ = reader.pin();
    follower.publish();
    assert_eq!(follower.status.state, State::Following);
    let guard = reader.pin();
    assert_eq!(follower.tables.load(&guard).interfaces.get(2).map(|eth2| eth2.mtu), Some(1400));
}

fn neighbour(last: u8) -> Neighbour {
    Neighbour {
        state: neighbour::state::REACHABLE,
        address: Some(vec![2, 0, 0, 0, 0, last]),
        ..Neighbour::new(2, [10, 0, 0, last].into())
    }
}

/// A kernel message: type, flags and body. Answers also get the request's sequence number.
type Saying = (u16, u16, Vec<u8>);

fn saying(flags: u16, update: &Update) -> Saying {
    let (kind, body) = update.encode();
    (kind, flags, body)
}

/// A part of a list.
fn listed(last: u8) -> Saying {
    saying(flag::MULTI, &Update::NewNeighbour(neighbour(last)))
}

/// The end of a list: 0, or a negative error number.
fn done(code: i32) -> Saying {
    const NLMSG_DONE: u16 = 3;
    (NLMSG_DONE, flag::MULTI, code.to_ne_bytes().to_vec())
}

/// Answers list requests one after another, each with its entry in `answers`, message by message. Messages without
/// the flag of lists are notices.
fn answer(kernel: &UnixDatagram, answers: Vec<Vec<Saying>>) {
    for answer in answers {
        let mut request = [0; 256];
        kernel.recv(&mut request).unwrap();
        let sequence = u32::from_ne_bytes([request[8], request[9], request[10], request[11]]);
        for saying in answer {
            say(kernel, saying, sequence);
        }
    }
}

fn say(kernel: &UnixDatagram, (kind, flags, body): Saying, sequence: u32) {
    let (sequence, port) = if flags & flag::MULTI != 0 { (sequence, PORT) } else { (0, 0) };
    kernel.send(&encode(kind, flags, sequence, port, &body).unwrap()).unwrap();
}

/// The last bytes of the neighbours' addresses after `answers`.
fn neighbours_after(follower: &mut Follower, kernel: &UnixDatagram, answers: Vec<Vec<Saying>>) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(|| answer(kernel, answers));
        assert!(matches!(follower.read(&[Kind::Neighbours]), Read::Done));
    });
    let table = follower.model.neighbours();
    (0..=255).filter(|last| table.get(2, [10, 0, 0, *last].into()).is_some()).collect()
}

#[test]
fn an_entry_that_was_removed_while_the_list_was_copied_does_not_come_back() {
    let (mut follower, kernel) = follower();
    let gone = saying(0, &Update::DelNeighbour(neighbour(7)));
    let new = saying(0, &Update::NewNeighbour(neighbour(8)));
    let seen = neighbours_after(&mut follower, &kernel, vec![vec![gone, new, listed(7), listed(9), done(0)]]);
    assert_eq!(seen, [8, 9]);
    // Objects missing from a new list are gone.
    assert_eq!(neighbours_after(&mut follower, &kernel, vec![vec![listed(9), done(0)]]), [9]);
}

#[test]
fn the_rest_of_an_abandoned_list_is_ignored() {
    let (mut follower, kernel) = follower();
    follower.netlink.list(Kind::Neighbours).unwrap();
    let mut request = [0; 256];
    kernel.recv(&mut request).unwrap();
    say(&kernel, listed(7), 1);
    say(&kernel, done(0), 1);
    assert_eq!(neighbours_after(&mut follower, &kernel, vec![vec![listed(9), done(0)]]), [9]);
    // While the kernel is still dumping, it refuses the next request.
    let answers = vec![vec![done(-libc::EBUSY)]];
    let read = std::thread::scope(|scope| {
        scope.spawn(|| answer(&kernel, answers));
        follower.read(&[Kind::Neighbours])
    });
    assert!(matches!(read, Read::Overrun(_)), "tried again later");
}

#[test]
fn an_interrupted_list_is_read_again() {
    let (mut follower, kernel) = follower();
    let (kind, flags, body) = listed(7);
    let broken = vec![(kind, flags | flag::DUMP_INTR, body), done(0)];
    let seen = neighbours_after(&mut follower, &kernel, vec![broken, vec![listed(8), listed(9), done(0)]]);
    assert_eq!(seen, [8, 9]);
    assert_eq!(follower.status.interrupted, 1);
}

#[test]
fn a_list_that_is_refused_is_an_error_with_its_name() {
    let (mut follower, kernel) = follower();
    let answers = vec![vec![done(-libc::ENOMEM)]];
    let read = std::thread::scope(|scope| {
        scope.spawn(|| answer(&kernel, answers));
        follower.read(&[Kind::Neighbours])
    });
    let Read::Failed(error) = read else { panic!("not refused") };
    let error = Report::new(error).to_string();
    assert!(error.starts_with("cannot read the list of neighbours: "), "{error}");
}

#[test]
fn an_overrun_socket_is_made_good_by_reading_everything() {
    udpath_lab::needs_root!();
    let lab = LabBuilder::new("t-mirror-overrun")
        .machine("client")
        .machine("server")
        .link("client", "server", &LinkSpec::with_queues(1))
        .up()
        .unwrap();
    let client = lab.machine("client").unwrap();
    let (mut follower, _) = follower();
    follower.netlink = client.run(Netlink::open).unwrap().unwrap();
    assert!(matches!(follower.read(&EVERYTHING), Read::Done));
    follower.publish();
    // The kernel's smallest receive buffer: room for two or three notices.
    rustix::net::sockopt::set_socket_recv_buffer_size(&follower.netlink, 0).unwrap();
    for last in 0..50 {
        let prefix = format!("172.16.{last}.0/24");
        let status =
            client.command("ip").args(["route", "add", &prefix, "via", "10.0.0.2"]).status().unwrap();
        assert!(status.success());
    }
    while follower.notices().unwrap() {}
    assert!(follower.lost && follower.status.overruns == 1);
    let known = |follower: &Follower| {
        let routes = follower.model.routes();
        (0..50).filter(|last| routes.get([172, 16, *last, 1].into()).is_some()).count()
    };
    assert!(known(&follower) < 50, "some were lost");
    follower.read_anew().unwrap();
    assert_eq!(known(&follower), 50);
    assert_eq!(
        (follower.lost, follower.status.resyncs, &follower.status.state),
        (false, 1, &State::Following)
    );
}
