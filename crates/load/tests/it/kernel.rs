//! The kernel engine against servers with known faults, and in unsupported environments. Needs root.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use error_reporter::Report;
use udpath_bpf::Pass;
use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard};
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_load::{Engine, Error, Progress};
use udpath_protocols::echo::EchoLoad;
use udpath_rig::{beside_each_other, judged};

use crate::known::all_faults::{compare_late, compare_order, compare_rare, rare_faults};
use crate::known::latency::{DELAY, LONG_TIMEOUT, compare};
use crate::known::{Answering, Faults, Server};

/// Runs whose latencies are compared; all of them must agree.
const RUNS: u32 = 3;

/// A client and a server whose end of the link takes frames sent by XDP.
pub(crate) struct Bed {
    pub(crate) lab: Lab,
    _napi: NapiGuard,
}

impl Bed {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_queues(name, 2)
    }

    /// Frames arrive in the order in which they were sent.
    pub(crate) fn in_order(name: &str) -> Self {
        Self::with_queues(name, 1)
    }

    fn with_queues(name: &str, queues: u32) -> Self {
        let lab = LabBuilder::new(name)
            .machine("client")
            .machine("server")
            .link("client", "server", &LinkSpec::with_queues(queues))
            .up()
            .unwrap();
        let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
        Self { lab, _napi: napi }
    }

    fn server(&self, ipv6: bool, faults: Faults) -> Server {
        self.answering(ipv6, faults, Answering::ECHO)
    }

    pub(crate) fn answering(&self, ipv6: bool, faults: Faults, answering: Answering) -> Server {
        let addresses = self.lab.address_of("server", "client").unwrap();
        let bind = if ipv6 { format!("[{}]:0", addresses.ipv6) } else { format!("{}:0", addresses.ipv4) };
        let server = self.lab.machine("server").unwrap();
        server.run(|| Server::answering(&bind, faults, answering)).unwrap()
    }

    fn run(&self, plan: &Plan) -> Result<LoadResult, Error> {
        self.load(plan, &EchoLoad::new(7))
    }

    pub(crate) fn load(&self, plan: &Plan, protocol: &dyn Protocol) -> Result<LoadResult, Error> {
        self.watched(plan, protocol, &mut |_| ())
    }

    pub(crate) fn watched(
        &self,
        plan: &Plan,
        protocol: &dyn Protocol,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<LoadResult, Error> {
        let client = self.lab.machine("client").unwrap();
        let never = AtomicBool::new(false);
        client.run(|| udpath_load::run(plan, Engine::Kernel, protocol, progress, &never)).unwrap()
    }
}

pub(crate) fn plan(target: SocketAddr) -> Plan {
    Plan {
        flows: 8,
        arrivals: Arrivals::Closed { inflight: 4 },
        duration: Duration::from_secs(2),
        timeout: Duration::from_millis(100),
        ..Plan::new(target)
    }
}

#[test]
fn counts_are_the_truth_over_ipv4_and_ipv6() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    for (bed, in_order) in [(Bed::in_order("kernel-order"), true), (Bed::new("kernel-counts"), false)] {
        for ipv6 in [false, true] {
            let server = bed.server(ipv6, rare_faults());
            let result = bed.run(&plan(server.address)).unwrap();
            let truth = server.stop();
            compare_rare(&result, &truth);
            if in_order {
                compare_order(&result, &truth);
            }
        }
    }
}

/// Datagrams by receive queue of the server's end of the link, as ethtool counts them.
fn by_queue(bed: &Bed) -> Vec<u64> {
    let server = bed.lab.machine("server").unwrap();
    let name = server.towards("client").unwrap().name().to_owned();
    let said =
        server.run(|| std::process::Command::new("ethtool").args(["-S", &name]).output()).unwrap().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let count = |line: &str| {
        let (name, count) = line.trim().split_once(": ")?;
        (name.starts_with("rx_queue_") && name.ends_with("_xdp_packets")).then(|| count.parse().unwrap())
    };
    text.lines().filter_map(count).collect()
}

/// All replies come from one CPU, as those of a server with one thread do. The requests still arrive on both queues, as
/// behind a NIC with RSS.
#[test]
fn flows_stay_on_their_queues_wherever_their_replies_come_from() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    judged("flows that stay on their queues", flows_stay);
}

fn flows_stay() {
    let bed = Bed::new("kernel-homes");
    let mut only = rustix::thread::CpuSet::new();
    only.set(1);
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    // Its thread inherits the CPU.
    let server = bed.server(false, Faults::default());
    rustix::thread::sched_setaffinity(None, &before).unwrap();
    let result = bed.run(&plan(server.address)).unwrap();
    let truth = server.stop();
    let queues = by_queue(&bed);
    assert_eq!(queues.len(), 2, "{queues:?}");
    let sum: u64 = queues.iter().sum();
    assert!(sum >= truth.received && truth.received > 1000, "{queues:?} of {}", truth.received);
    // Four of eight flows each. How fast a flow is depends on its CPU.
    for queue in &queues {
        assert!(*queue as f64 > 0.2 * sum as f64, "{queues:?}");
    }
    assert_eq!((result.drifted, result.counts.lost), (None, 0), "{:?}", result.counts);
    assert!(
        !result.warnings.iter().any(|warning| warning.contains("did not spread")),
        "{:?}",
        result.warnings
    );
}

#[test]
fn late_replies_are_distinguished_from_lost_ones() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-late");
    let faults = Faults { late: 0.01, late_by: Duration::from_millis(130), drop: 0.005, ..Faults::default() };
    let server = bed.server(false, faults);
    let mut plan = plan(server.address);
    plan.timeout = Duration::from_millis(60);
    let result = bed.run(&plan).unwrap();
    compare_late(&result, &server.stop(), plan.timeout);
}

/// Delays that are long and known: every run is within 1 % of the server's own record.
#[test]
fn latencies_are_the_truth() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    // Each in its own lab. All slots send at once, then wait for the delay: the runs start apart, so that one is busy
    // while the others wait.
    let run = |run: u32| {
        std::thread::sleep(DELAY / RUNS * run);
        let bed = Bed::new(&format!("kernel-latency-{run}"));
        let server = bed.server(false, Faults { delayed: 1.0, delay: DELAY, ..Faults::default() });
        // Every slot has two replies in the window; the third request has no latency.
        let arrivals = Arrivals::Closed { inflight: 32 };
        let duration = DELAY * 5 / 2;
        let plan = Plan { arrivals, duration, timeout: LONG_TIMEOUT, ..plan(server.address) };
        let result = bed.run(&plan).unwrap();
        let latency = result.sent_latency.as_ref().unwrap();
        assert!(latency.count >= 500, "run {run}: {} latencies", latency.count);
        compare(&format!("run {run}"), latency, &server.stop().delays);
    };
    judged("latencies of the kernel engine", || beside_each_other(0..RUNS, run));
}

#[test]
fn sizes_from_the_smallest_to_a_full_frame() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-sizes");
    let server = bed.server(false, Faults::default());
    for size in [udpath_bpf::MIN_SIZE, 33, 39, 40, 100, 1471, 1472] {
        let result = bed
            .run(&Plan { size, duration: Duration::from_millis(100), ..plan(server.address) })
            .unwrap_or_else(|error| panic!("{size} bytes: {error:?}"));
        result.counts.check().unwrap();
        assert!(result.counts.ok > 100 && result.counts.corrupt == 0, "{size} bytes: {:?}", result.counts);
    }
    for (size, words) in [(udpath_bpf::MIN_SIZE - 1, "too small"), (1473, "does not fit one frame")] {
        let error = bed.run(&Plan { size, ..plan(server.address) }).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    server.stop();
}

#[test]
fn a_server_that_vanishes_is_lost_transactions() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-vanish");
    let server = bed.server(false, Faults { vanish_after: Some(20_000), ..Faults::default() });
    let result = bed.run(&plan(server.address)).unwrap();
    server.stop();
    result.counts.check().unwrap();
    assert!(result.counts.ok > 10_000 && result.counts.lost > 32, "{:?}", result.counts);
}

#[test]
fn a_missing_server_is_reported() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-nobody");
    let address = bed.lab.address_of("server", "client").unwrap().ipv4;
    let target = SocketAddr::new(address.into(), 9);
    let plan = Plan { duration: Duration::from_millis(300), ..plan(target) };
    let error = bed.run(&plan).unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
}

#[test]
fn unsupported_plans_are_rejected_with_a_reason() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("kernel-cannot");
    let server = bed.server(false, Faults::default());
    let good = plan(server.address);
    let open = Arrivals::Open { rate: 1000.0, process: Process::Constant };
    for (spoilt, words) in [
        (Plan { arrivals: open, ..good.clone() }, "--inflight"),
        (Plan { targets: vec!["127.0.0.1:7".parse().unwrap()], ..good.clone() }, "loopback"),
    ] {
        let error = Report::new(bed.run(&spoilt).unwrap_err()).to_string();
        assert!(error.contains(words), "{error}");
    }
    // Does not touch another program on the interface.
    let client = bed.lab.machine("client").unwrap();
    let interface = client.towards("server").unwrap().name();
    let other = client.run(|| Pass::attach(interface).unwrap()).unwrap();
    let error = Report::new(bed.run(&good).unwrap_err()).to_string();
    assert!(error.contains("another XDP program"), "{error}");
    drop(other);
    let result = bed.run(&Plan { duration: Duration::from_millis(100), ..good }).unwrap();
    assert!(result.counts.ok > 0);
    server.stop();
}
