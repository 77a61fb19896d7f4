//! Segments of a plan: what two machines send together is what one machine sends. The kernel engine's part needs root.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use udpath_load::plan::{Arrivals, Plan, PortRange, Process, Segment};
use udpath_load::result::LoadResult;
use udpath_load::{Engine, Progress};
use udpath_protocols::echo::EchoLoad;

use crate::kernel::Bed;
use crate::known::{self, Answering, Faults, Server};

/// Until the start: time for opening the flows on a busy machine.
const SOON: Duration = Duration::from_secs(3);

fn ports(peers: &[SocketAddr]) -> BTreeSet<u16> {
    peers.iter().map(SocketAddr::port).collect()
}

fn segment(index: u32, of: u32) -> Segment {
    Segment::new(index, of).unwrap()
}

#[test]
fn two_segments_send_the_plan_and_merge_into_its_result() {
    let server = Server::start("127.0.0.1:0", Faults::default());
    let plan = Plan {
        flows: 6,
        arrivals: Arrivals::Open { rate: 2000.0, process: Process::Poisson },
        source_ports: Some(PortRange { first: 21_100, last: 21_199 }),
        duration: Duration::from_secs(1),
        start_at: Some(SystemTime::now() + SOON),
        ..Plan::new(server.address)
    };
    let run = |index| known::run(&Plan { segment: segment(index, 2), ..plan.clone() });
    let (one, two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| run(2));
        (run(1), two.join().unwrap())
    });
    let truth = server.stop();
    assert_eq!(ports(&truth.peers), (21_100..21_106).collect(), "those of one machine");
    for result in [&one, &two] {
        assert_eq!((result.flows, result.offered), (3, Some(1000.0)));
        assert!(result.start.unwrap().skew_ns >= -1_000_000, "{:?}", result.start);
    }
    let sum = LoadResult::merge_segments(vec![("one".into(), one.clone()), ("two".into(), two)]).unwrap();
    assert_eq!((sum.counts.sent, sum.flows), (truth.received, 6));
    let recorded: u64 = sum.sent_latency.unwrap().histogram.iter().map(|(_, count)| count).sum();
    assert_eq!(recorded, sum.counts.ok + sum.counts.late);
    assert_eq!(sum.segments.unwrap().missing.len(), 0);

    // One machine with as many threads intends the same requests.
    let server = Server::start("127.0.0.1:0", Faults::default());
    let start_at = Some(SystemTime::now() + SOON);
    let whole = known::run(&Plan { targets: vec![server.address], threads: 2, start_at, ..plan });
    assert_eq!(server.stop().received, whole.counts.sent);
    assert_eq!(whole.counts.sent, sum.counts.sent, "the same seed is the same plan");
}

#[test]
fn a_segment_of_the_kernel_engine_has_its_own_ports_and_start() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-segments");
    let server = bed.answering(false, Faults::default(), Answering::ECHO);
    let plan = Plan {
        flows: 7,
        arrivals: Arrivals::Closed { inflight: 2 },
        source_ports: Some(PortRange { first: 21_000, last: 21_006 }),
        duration: Duration::from_millis(300),
        timeout: Duration::from_millis(100),
        ..Plan::new(server.address)
    };
    let run = |index| {
        let start_at = Some(SystemTime::now() + SOON);
        let plan = Plan { segment: segment(index, 2), start_at, ..plan.clone() };
        bed.load(&plan, &EchoLoad::new(7)).unwrap()
    };
    let (one, two) = (run(1), run(2));
    assert_eq!((one.flows, two.flows), (4, 3));
    let skew = one.start.unwrap().skew_ns;
    assert!(skew >= -1_000_000, "{skew}");
    assert!(one.counts.ok > 8 && two.counts.ok > 6, "{:?} {:?}", one.counts, two.counts);
    let truth = server.stop();
    assert_eq!(ports(&truth.peers), (21_000..=21_006).collect());
    assert_eq!(truth.peers.len(), 7, "no port of both");
}

#[test]
fn the_latency_of_each_second_is_part_of_that_of_the_run() {
    let server = Server::start("127.0.0.1:0", Faults::default());
    let plan = Plan {
        arrivals: Arrivals::Open { rate: 1000.0, process: Process::Constant },
        duration: Duration::from_millis(2600),
        ..Plan::new(server.address)
    };
    assert_seconds(|progress| {
        let never = AtomicBool::new(false);
        udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(7), progress, &never).unwrap()
    });
    drop(server.stop());
}

#[test]
fn so_is_that_of_the_kernel_engine() {
    udpath_lab::needs_root!();
    let bed = Bed::new("segments-seconds");
    let server = bed.answering(false, Faults::default(), Answering::ECHO);
    let plan = Plan { duration: Duration::from_millis(2600), ..crate::kernel::plan(server.address) };
    assert_seconds(|progress| bed.watched(&plan, &EchoLoad::new(7), progress).unwrap());
    drop(server.stop());
}

/// Runs a load of more than two seconds, and compares the latencies of its seconds with those of the run.
fn assert_seconds(run: impl FnOnce(&mut (dyn FnMut(&Progress) + Send)) -> LoadResult) {
    let mut seconds = Vec::new();
    let result = run(&mut |now: &Progress| seconds.extend(now.interval.clone()));
    assert!(!seconds.is_empty(), "a run of 2.6 s has a first second");
    let sum = seconds.into_iter().reduce(|a, b| a.merged(&b)).unwrap();
    let all = result.intended_latency.unwrap();
    assert!(sum.count <= all.count, "{} of {}", sum.count, all.count);
    for (value, count) in sum.histogram {
        let whole = all.histogram.iter().find(|(of, _)| *of == value).map_or(0, |(_, count)| *count);
        assert!(count <= whole, "{count} of {whole} at {value} ns");
    }
}
