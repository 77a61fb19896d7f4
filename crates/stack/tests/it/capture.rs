//! Captures replayed through a worker: every format gives the same frames, the replies form a valid capture, and no
//! file causes a panic or a leak.

mod formats;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use udpath_stack::counters::DropReason;
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::frame::Burst;
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::port::capture::{Capture, Error, MAX_FRAME_LEN, Skipped};
use udpath_stack::wire::Packet;
use udpath_stack::worker::{Parts, Worker};

use formats::{Order, pcap, pcapng};

const SERVER: &str = "10.77.0.2:7007";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A frame and its time in nanoseconds.
type Frame = (u64, Vec<u8>);

/// The frames of a little-endian pcap file, parsed independently of the code under test.
fn plainly(file: &[u8]) -> Vec<Frame> {
    let number = |at: &[u8]| u64::from(u32::from_le_bytes(at[..4].try_into().unwrap()));
    let unit = if number(file) == 0xa1b2_3c4d { 1 } else { 1000 };
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((record, behind)) = rest.split_first_chunk::<16>() {
        let (frame, behind) = behind.split_at(number(&record[8..]) as usize);
        frames.push((number(record) * 1_000_000_000 + number(&record[4..]) * unit, frame.to_vec()));
        rest = behind;
    }
    frames
}

/// A writer whose contents can be inspected.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that returns a few bytes at a time.
struct Slowly(Vec<u8>, usize);

impl Read for Slowly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = 7.min(into.len()).min(self.0.len() - self.1);
        into[..count].copy_from_slice(&self.0[self.1..][..count]);
        self.1 += count;
        Ok(count)
    }
}

fn opened(file: Vec<u8>) -> Result<(Capture, Paper), Error> {
    let paper = Paper::default();
    let capture = Capture::new("it", io::Cursor::new(file), Some(paper.clone()))?;
    Ok((capture, paper))
}

/// Receives to the end and retransmits everything; returns what was written.
fn passed_on(mut capture: Capture, paper: &Paper) -> (Vec<Frame>, Capture) {
    let mut burst = Burst::new();
    while capture.receive(&mut burst) > 0 {
        // One by one, so that each keeps its own time.
        capture.transmit(&mut burst);
        assert!(burst.is_empty());
    }
    capture.flush();
    assert!(capture.at_end());
    assert_eq!((capture.outstanding(), capture.counts().received), (0, capture.counts().transmitted));
    (plainly(&paper.0.lock().unwrap()), capture)
}

fn echo(datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
    room[..datagram.payload.len()].copy_from_slice(datagram.payload);
    Outcome::Reply(datagram.payload.len())
}

type Echo = fn(Datagram<'_>, &mut [u8]) -> Outcome;

/// A worker that answers frames for `server`.
fn worker(capture: Capture, server: &str) -> Worker<Capture, Echo> {
    let server: SocketAddr = server.parse().unwrap();
    let domain = Domain::new(1, 8);
    Worker::new(Parts {
        port: Some(capture),
        handler: echo as Echo,
        reader: domain.register("replay").unwrap(),
        groups: Arc::new(Table::new(&domain, Groups::new(&[server], []).unwrap())),
        rings: mesh(1, mesh::Config { backlog: 64, frames: 256 }).unwrap().remove(0),
        steering: None,
    })
}

#[test]
fn the_replies_to_a_kernels_requests_are_the_kernels() {
    for (name, server) in [("ipv4.pcap", SERVER), ("ipv6.pcap", "[2001:db8:77::2]:7007")] {
        let frames = plainly(&bytes(name));
        let folder = tempfile::tempdir().unwrap();
        let replies = folder.path().join("replies.pcap");
        let mut worker = worker(Capture::open(fixture(name), Some(&replies)).unwrap(), server);
        while worker.poll() > 0 {}
        let capture = worker.port().unwrap();
        assert!(capture.at_end() && capture.error().is_none() && capture.outstanding() == 0);
        let counts = worker.counters().snapshot();
        let half = frames.len() as u64 / 2;
        // The other half are the kernel's replies; no socket is bound to their destination.
        assert_eq!(
            (counts.received, counts.answered, counts.dropped(DropReason::Unbound)),
            (2 * half, half, half)
        );
        let replies = plainly(&std::fs::read(&replies).unwrap());
        assert_eq!(replies.len() as u64, half);
        for ((_, reply), pair) in replies.iter().zip(frames.chunks_exact(2)) {
            let (ours, kernels) = (Packet::parse(reply).unwrap(), Packet::parse(&pair[1].1).unwrap());
            assert_eq!(ours, kernels);
            assert_eq!(ours.payload(reply), kernels.payload(&pair[1].1));
            ours.verify(reply).unwrap();
        }
    }
}

/// The frames of the fixture, with times in whole microseconds.
fn frames() -> Vec<Frame> {
    let at = |number: u64| 1_700_000_000_000_000_000 + number * 1_234_567_000;
    (0..).zip(plainly(&bytes("ipv4.pcap"))).map(|(number, (_, frame))| (at(number), frame)).collect()
}

#[test]
fn every_format_gives_the_same_frames() {
    let frames = frames();
    // The first was written by editcap -F pcapng, the second by tcpdump --time-stamp-precision=nano.
    let mut files = vec![bytes("ipv4.pcapng"), bytes("ipv4-nanoseconds.pcap"), bytes("ipv4.pcap")];
    let real = files.len();
    for order in [Order::Little, Order::Big] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            files.push(pcap(order, magic, 1, &frames));
        }
        files.push(pcapng(order, 1, &frames));
    }
    files.push(pcap(Order::Little, 0xa1b2_cd34, 1, &frames));
    // With 4-byte frame check sequences, as some NICs keep them: they follow the IP packet.
    files.push(pcap(Order::Little, 0xa1b2_c3d4, 0x2400_0001, &frames));
    // Two sections, one in each byte order.
    let (half, other) = frames.split_at(frames.len() / 2);
    files.push([pcapng(Order::Big, 1, half), pcapng(Order::Little, 1, other)].concat());
    for (which, file) in files.into_iter().enumerate() {
        let paper = Paper::default();
        let slowly = Capture::new("it", Slowly(file.clone(), 0), Some(paper.clone())).unwrap();
        let (capture, other_paper) = opened(file).unwrap();
        for (capture, paper) in [(slowly, paper), (capture, other_paper)] {
            let (got, capture) = passed_on(capture, &paper);
            assert!(capture.error().is_none(), "{which}: {:?}", capture.error());
            assert_eq!(got.len(), frames.len(), "{which}");
            assert!(got.iter().zip(&frames).all(|(got, frame)| got.1 == frame.1), "{which}");
            let last = if which < real { plainly(&bytes("ipv4.pcap")).pop() } else { frames.last().cloned() };
            assert_eq!(got[0].0, last.unwrap().0, "{which}: the time of what was read last");
        }
    }
}

#[test]
fn a_reply_has_the_time_of_its_request_when_it_comes_alone() {
    for frame in &frames()[..3] {
        for file in [
            pcapng(Order::Big, 1, std::slice::from_ref(frame)),
            pcap(Order::Big, 0xa1b2_3c4d, 1, std::slice::from_ref(frame)),
        ] {
            let (capture, paper) = opened(file).unwrap();
            assert_eq!(passed_on(capture, &paper).0, std::slice::from_ref(frame));
        }
    }
}

#[test]
fn truncated_and_oversized_frames_are_skipped_and_counted() {
    let good = frames().remove(0);
    let (long, longest) = ((1, vec![0; MAX_FRAME_LEN + 1]), (2, vec![0; MAX_FRAME_LEN]));
    let mut file = pcap(Order::Little, 0xa1b2_3c4d, 1, &[good.clone(), long, longest.clone(), good.clone()]);
    // The first was longer on the wire than the captured part.
    file[24 + 12] += 1;
    let (capture, paper) = opened(file).unwrap();
    let (got, capture) = passed_on(capture, &paper);
    assert_eq!(got.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>(), [longest.1, good.1]);
    assert_eq!(capture.skipped(), Skipped { snapped: 1, too_long: 1 });
    assert_eq!((capture.counts().received, capture.counts().invalid), (2, 2));
    assert!(capture.error().is_none());
}

#[test]
fn a_simple_packet_is_as_long_as_its_interface_lets_it_be() {
    let mut file = pcapng(Order::Little, 1, &[]);
    // The limit of the first interface.
    file[28 + 12..28 + 16].copy_from_slice(&5_u32.to_le_bytes());
    for frame in [&b"five."[..], b"seven.."] {
        let mut body = (frame.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&frame[..5]);
        Order::Little.block(&mut file, 3, &body);
    }
    let (capture, paper) = opened(file).unwrap();
    let (got, capture) = passed_on(capture, &paper);
    assert_eq!((got, capture.skipped().snapped), (vec![(0, b"five.".to_vec())], 1));
    assert!(capture.error().is_none());
}

fn refused(file: Vec<u8>) -> Error {
    match opened(file) {
        Err(error) => error,
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn unsupported_captures_are_rejected_by_name() {
    // tcpdump's "any" interface, and a raw tunnel.
    let sll = refused(pcap(Order::Big, 0xa1b2_c3d4, 113, &[]));
    assert!(matches!(&sll, Error::LinkType { link_type: 113, .. }), "{sll}");
    assert_eq!(
        sll.to_string(),
        "cannot replay it: link type 113 is not supported, only Ethernet (1); capture on one Ethernet interface, not on \"any\", or convert it (tcprewrite --dlt=enet)"
    );
    let raw = refused(pcapng(Order::Little, 101, &frames()));
    assert!(matches!(raw, Error::LinkType { link_type: 101, .. }), "{raw}");
    assert!(matches!(refused(Vec::new()), Error::NoBytes { .. }));
    let cut = refused(b"\xd4\xc3\xb2\xa1\x02".to_vec());
    assert!(matches!(cut, Error::CutHeader { len: 5, .. }), "{cut}");
    for file in [&b"\xd4\xc3"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 100], &[0xff; 100]] {
        let error = refused(file.to_vec());
        assert!(matches!(error, Error::NotACapture { .. }), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (here, gone) = (folder.path().join("here.pcap"), folder.path().join("gone/there.pcap"));
    let before = bytes("ipv4.pcap");
    std::fs::write(&here, &before).unwrap();
    assert!(matches!(Capture::open(&gone, None), Err(Error::Open { .. })));
    assert!(matches!(Capture::open(&here, Some(&gone)), Err(Error::Create { .. })));
    assert!(matches!(Capture::open(&here, Some(&here)), Err(Error::SameFile { .. })));
    assert_eq!(std::fs::read(&here).unwrap(), before, "not overwritten");
}

#[test]
fn unwritable_replies_are_reported_and_not_counted_as_answered() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(
        Capture::new("it", io::Cursor::new(bytes("ipv4.pcap")), Some(Full(10))),
        Err(Error::Write { .. })
    ));
    // Room for the header and some frames: the error appears when the buffer is flushed.
    let many: Vec<Frame> = std::iter::repeat_with(|| frames().remove(0)).take(1000).collect();
    let file = pcap(Order::Little, 0xa1b2_3c4d, 1, &many);
    let mut worker = worker(Capture::new("it", io::Cursor::new(file), Some(Full(5000))).unwrap(), SERVER);
    while worker.poll() > 0 {}
    let (counts, capture) = (worker.counters().snapshot(), worker.port().unwrap());
    assert!(matches!(capture.error(), Some(Error::Write { .. })), "{:?}", capture.error());
    assert_eq!((counts.received, counts.under_way(), capture.outstanding()), (1000, 0, 0));
    assert!(counts.dropped(DropReason::TransmitFull) > 0 && counts.answered < 1000, "{counts:?}");
}

/// Replays an arbitrary file, and checks the invariants. Returns the number of frames.
fn replayed(file: Vec<u8>) -> u64 {
    let len = file.len();
    let Ok((capture, paper)) = opened(file) else { return 0 };
    let mut worker = worker(capture, SERVER);
    let mut polls = 0;
    while worker.poll() > 0 {
        polls += 1;
        assert!(polls <= len, "it goes on for ever");
    }
    let (counts, capture) = (worker.counters().snapshot(), worker.port().unwrap());
    assert!(capture.at_end());
    assert_eq!(
        (counts.received, counts.under_way(), capture.outstanding()),
        (capture.counts().received, 0, 0)
    );
    assert_eq!(plainly(&paper.0.lock().unwrap()).len() as u64, counts.answered);
    if let Some(error) = capture.error() {
        assert!(!error.to_string().is_empty());
    }
    counts.received
}

#[test]
fn a_file_cut_short_gives_the_frames_before_the_cut() {
    let frames = &frames()[..4];
    for (header, extra, file) in [
        (24, 16, pcap(Order::Little, 0xa1b2_c3d4, 1, frames)),
        (24, 16, pcap(Order::Big, 0xa1b2_3c4d, 1, frames)),
    ] {
        let mut whole = 0;
        let mut end = header;
        for cut in header..file.len() {
            if whole < frames.len() && cut == end + extra + frames[whole].1.len() {
                end = cut;
                whole += 1;
            }
            let (capture, paper) = opened(file[..cut].to_vec()).unwrap();
            let (got, capture) = passed_on(capture, &paper);
            assert_eq!(got.len(), whole, "cut at {cut}");
            match capture.error() {
                None => assert_eq!(cut, end),
                Some(Error::Cut { at, .. }) => assert_eq!(*at, end as u64),
                Some(error) => panic!("{error:?}"),
            }
        }
    }
    let file = pcapng(Order::Big, 1, frames);
    assert_eq!(replayed(file.clone()), 4);
    for cut in 0..file.len() {
        assert!(replayed(file[..cut].to_vec()) < 4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_end_and_lose_nothing(
        format in 0..6_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (order, frames) = ([Order::Little, Order::Big][format % 2], &frames()[..6]);
        let mut file = match format / 2 {
            0 => pcap(order, 0xa1b2_c3d4, 1, frames),
            1 => pcap(order, 0xa1b2_3c4d, 1, frames),
            _ => pcapng(order, 1, frames),
        };
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        replayed(file);
    }
}
