//! The AF_XDP engine with live frames: the same results as through its rings, and the fallback if the driver does not
//! accept them. Needs root.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{RwLockWriteGuard, mpsc};
use std::time::{Duration, Instant};

use udpath_bpf::{LiveFrames, Pass};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::LoadResult;
use udpath_load::{Engine, Error};
use udpath_protocols::echo::EchoLoad;

use crate::known::{Faults, Server, near, run_xdp};

const TIMEOUT: Duration = Duration::from_millis(500);
/// Requests due at once: sent as live frames, in one call.
const BURST: u32 = 200;
/// No run of these tests may take longer.
const MAX_RUN_TIME: Duration = Duration::from_secs(20);

struct Bed {
    /// With it, the server's end of the link accepts XDP frames.
    pass: Option<Pass>,
    lab: Lab,
    /// The tracepoint is global to the machine, and a delayed server's record differs.
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Bed {
    fn new(name: &str, queues: u32) -> Self {
        let alone = udpath_rig::alone();
        let lab = LabBuilder::new(name).machine("client").machine("server");
        let lab = lab.link("client", "server", &LinkSpec::with_queues(queues)).up().unwrap();
        let pass = lab.machine("server").unwrap().run(|| Pass::attach("eth0").unwrap()).unwrap();
        Self { pass: Some(pass), lab, _alone: alone }
    }

    fn server(&self, ipv6: bool, faults: Faults) -> Server {
        let addresses = self.lab.address_of("server", "client").unwrap();
        let bind = if ipv6 { format!("[{}]:0", addresses.ipv6) } else { format!("{}:0", addresses.ipv4) };
        self.lab.machine("server").unwrap().run(|| Server::start(&bind, faults)).unwrap()
    }

    fn run(&self, plan: &Plan) -> LoadResult {
        self.lab.machine("client").unwrap().run(|| run_xdp(plan)).unwrap().unwrap()
    }
}

fn plan(target: SocketAddr) -> Plan {
    let process = Process::Burst { len: BURST };
    let arrivals = Arrivals::Open { rate: 4000.0, process };
    Plan { flows: 4, arrivals, duration: Duration::from_secs(2), timeout: TIMEOUT, ..Plan::new(target) }
}

/// The number of requests reported as sent by live frames, and the number of calls.
fn live(result: &LoadResult) -> Option<(u64, u64)> {
    let note = result.generator.notes.iter().find(|note| note.contains("as live frames"))?;
    let mut numbers = note.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[test]
fn counts_are_the_truth() {
    udpath_lab::needs_root!();
    let bed = Bed::new("live-counts", 2);
    let late_by = TIMEOUT * 3 / 2;
    let faults = Faults {
        drop: 0.03,
        duplicate: 0.04,
        late: 0.02,
        late_by,
        corrupt: 0.03,
        misdirect: 0.02,
        ..Faults::default()
    };
    for (ipv6, threads) in [(false, 1), (true, 1), (false, 2)] {
        let server = bed.server(ipv6, faults);
        let result = bed.run(&Plan { threads, ..plan(server.address) });
        let (truth, c) = (server.stop(), result.counts);
        assert_eq!((c.sent, truth.received), (8000, 8000), "{:?}", result.generator.notes);
        near("lost", c.lost, truth.dropped + truth.corrupted + truth.misdirected);
        near("duplicate", c.duplicate, truth.duplicated);
        near("late", c.late, truth.late);
        near("corrupt", c.corrupt, truth.corrupted);
        near("wrong flow", c.wrong_flow, truth.misdirected);
        assert!(truth.dropped > 50 && truth.corrupted > 50 && truth.late > 50 && truth.duplicated > 50);
        let (sent, calls) = live(&result).expect("200 due at once go as live frames");
        assert!(sent > 7000 && calls >= sent / LiveFrames::MOST as u64, "{sent} in {calls} calls");
    }
}

/// Every byte arrives as sent: the echo's check detects any that does not.
#[test]
fn sizes_from_the_smallest_to_a_full_frame() {
    udpath_lab::needs_root!();
    let bed = Bed::new("live-sizes", 1);
    for (ipv6, most) in [(false, 1472), (true, 1452)] {
        let server = bed.server(ipv6, Faults::default());
        for size in [18, 19, 100, 1023, most] {
            let result =
                bed.run(&Plan { size, duration: Duration::from_millis(200), ..plan(server.address) });
            let c = result.counts;
            assert_eq!((c.sent, c.ok, c.corrupt), (800, 800, 0), "{size} bytes: {:?}", result.warnings);
            assert!(live(&result).is_some_and(|(sent, _)| sent >= 600), "{:?}", result.generator.notes);
        }
        server.stop();
    }
}

/// A veth end without NAPI accepts none of them; apart from the note, the result must not differ.
#[test]
fn where_the_driver_takes_none_the_rings_send_them() {
    udpath_lab::needs_root!();
    let mut bed = Bed::new("live-none", 2);
    bed.pass = None;
    let server = bed.server(false, Faults::default());
    let result = bed.run(&plan(server.address));
    assert_eq!(server.stop().received, 8000);
    let c = result.counts;
    assert_eq!((c.sent, c.ok + c.late, c.lost), (8000, 8000, 0), "{:?}", result.warnings);
    assert_eq!(live(&result), Some((0, 0)));
    let notes = &result.generator.notes;
    assert!(notes.iter().any(|note| note.contains("accepts no frames from XDP")), "{notes:?}");
}

#[test]
fn few_at_once_and_the_rings_alone_send_none() {
    udpath_lab::needs_root!();
    let bed = Bed::new("live-few", 1);
    let server = bed.server(false, Faults::default());
    let few = Arrivals::Open { rate: 2000.0, process: Process::Constant };
    let result = bed.run(&Plan { arrivals: few, ..plan(server.address) });
    assert_eq!((result.counts.ok, live(&result)), (4000, None));
    let client = bed.lab.machine("client").unwrap();
    let rings = client.run(|| {
        let (echo, stop) = (EchoLoad::new(1), AtomicBool::new(false));
        udpath_load::run(&plan(server.address), Engine::XdpRings, &echo, &mut |_| (), &stop)
    });
    let rings = rings.unwrap().unwrap();
    assert_eq!((rings.counts.ok, live(&rings)), (8000, None));
    server.stop();
}

/// The other end goes down in the middle of a run: waiting requests go to the rings, and every request has an outcome.
#[test]
fn a_link_that_goes_down_is_reported() {
    udpath_lab::needs_root!();
    let bed = Bed::new("live-cut", 1);
    let server = bed.server(false, Faults::default());
    let plan = Plan {
        duration: Duration::from_secs(5),
        timeout: Duration::from_millis(100),
        ..plan(server.address)
    };
    let began = Instant::now();
    let (sender, flowing) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        let bed = &bed;
        scope.spawn(move || {
            if flowing.recv().is_ok() {
                let mut ip = bed.lab.machine("server").unwrap().command("ip");
                assert!(ip.args(["link", "set", "eth0", "down"]).status().unwrap().success());
            }
        });
        bed.lab.machine("client").unwrap().run(move || {
            let mut progress = |p: &udpath_load::Progress| {
                if p.sent > 1000 {
                    let _ = sender.send(());
                }
            };
            let (echo, stop) = (EchoLoad::new(1), AtomicBool::new(false));
            udpath_load::run(&plan, Engine::Xdp, &echo, &mut progress, &stop)
        })
    });
    assert!(began.elapsed() < MAX_RUN_TIME, "{:?}", began.elapsed());
    // A link that stays down ends a run early.
    let result = match outcome.unwrap() {
        Ok(result) => result,
        Err(Error::Cut { result, .. }) => *result,
        Err(error) => panic!("{error:?}"),
    };
    result.counts.check().unwrap();
    let (c, notes) = (result.counts, &result.generator.notes);
    assert!(c.ok > 0 && c.lost > 0 && c.ok + c.late <= server.stop().received, "{c:?}");
    assert!(live(&result).is_some_and(|(sent, _)| sent >= 600), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("its link is down")), "{notes:?}");
}
