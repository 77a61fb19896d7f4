//! Results of the load against a server whose faults are known exactly.

use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_rig::{beside_each_other, judged};

use crate::known::all_faults::{TIMEOUT, all_faults, compare};
use crate::known::latency::{LONG_TIMEOUT, compare_all, two_delays};
use crate::known::{Faults, Server, near, run};

fn plan(server: &Server, arrivals: Arrivals) -> Plan {
    Plan {
        flows: 4,
        arrivals,
        duration: Duration::from_secs(2),
        timeout: TIMEOUT,
        ..Plan::new(server.address)
    }
}

#[test]
fn open_loop_counts_are_the_truth() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", all_faults());
    let result = run(&plan(&server, Arrivals::Open { rate: 4000.0, process: Process::Poisson }));
    let truth = server.stop();
    compare(&result, &truth);
    near("sent", result.counts.sent, 8000);
}

#[test]
fn closed_loop_counts_are_the_truth() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", all_faults());
    // Many in flight: a lost request keeps its slot for a timeout.
    let result = run(&plan(&server, Arrivals::Closed { inflight: 400 }));
    compare(&result, &server.stop());
}

/// Requests that leave as one message are datagrams of their own, with times of their own.
#[test]
fn counts_with_gso_are_the_truth() {
    let _turn = udpath_rig::together();
    for (bind, arrivals) in [
        ("127.0.0.1:0", Arrivals::Open { rate: 4000.0, process: Process::Burst { len: 100 } }),
        ("[::1]:0", Arrivals::Closed { inflight: 400 }),
    ] {
        let server = Server::start(bind, all_faults());
        let result = run(&Plan { gso: true, ..plan(&server, arrivals) });
        compare(&result, &server.stop());
        assert!(result.warnings.iter().all(|warning| !warning.contains("GSO")), "{:?}", result.warnings);
    }
}

#[test]
fn two_threads_and_ipv6_count_the_same() {
    let _turn = udpath_rig::together();
    let server = Server::start("[::1]:0", all_faults());
    let plan =
        Plan { threads: 2, ..plan(&server, Arrivals::Open { rate: 4000.0, process: Process::Constant }) };
    let result = run(&plan);
    compare(&result, &server.stop());
}

/// Delays that are long and known: every run is within 1 % of the server's own record.
#[test]
fn latencies_are_the_truth() {
    // The server's record begins when it has the request: it needs a CPU at once.
    let _turn = udpath_rig::alone();
    let (open, closed) =
        (Arrivals::Open { rate: 500.0, process: Process::Constant }, Arrivals::Closed { inflight: 50 });
    // At the same time: all sleep through the delays, and hardly need a CPU.
    let run = |(arrivals, gso): (Arrivals, bool)| {
        let server = Server::start("127.0.0.1:0", two_delays());
        let duration = Duration::from_secs(4);
        let result = run(&Plan { timeout: LONG_TIMEOUT, duration, gso, ..plan(&server, arrivals) });
        compare_all(&format!("{arrivals}, gso {gso}"), &result, &server.stop().delays);
    };
    let runs = [(open, false), (closed, false), (closed, true)];
    judged("latencies of the socket engine", || beside_each_other(runs, run));
}

/// The warm-up is sent and answered, but not counted.
#[test]
fn the_warm_up_is_left_out() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", Faults { duplicate: 0.1, ..Faults::default() });
    let base = plan(&server, Arrivals::Open { rate: 2000.0, process: Process::Constant });
    let result = run(&Plan { warmup: Duration::from_secs(1), duration: Duration::from_secs(1), ..base });
    let truth = server.stop();
    assert_eq!(truth.received, 4000);
    assert_eq!(result.counts.sent, 2000);
    assert_eq!((result.counts.ok + result.counts.late, result.counts.lost), (2000, 0));
    // One in ten of 2,000, give or take six standard deviations.
    assert!(result.counts.duplicate.abs_diff(200) < 81, "{}", result.counts.duplicate);
}

/// Replies slower than twice the timeout, during the run: late, not lost and not duplicates.
#[test]
fn very_late_replies_are_late() {
    let _turn = udpath_rig::together();
    let faults = Faults { late: 0.1, late_by: Duration::from_millis(250), ..Faults::default() };
    let server = Server::start("127.0.0.1:0", faults);
    let base = plan(&server, Arrivals::Open { rate: 1000.0, process: Process::Constant });
    let result = run(&Plan { timeout: Duration::from_millis(50), ..base });
    let truth = server.stop();
    // The last ones arrive after the drain: 100 ms after the last request.
    let after_the_end = (truth.late as f64 * 0.15 / 2.0) as u64;
    let c = result.counts;
    assert!(c.late + c.lost >= truth.late && c.lost <= after_the_end * 2 + 10, "{c:?} {}", truth.late);
    assert_eq!(c.duplicate, 0);
}
