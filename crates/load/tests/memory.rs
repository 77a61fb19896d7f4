//! Memory of the load: bounded by the plan, not growing over time. A separate test file, because it measures the memory
//! of its whole process.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::{Engine, Progress};
use udpath_protocols::echo::EchoLoad;

/// The bound for a million transactions per second.
const BOUND: u64 = 64 << 20;

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Memory over the time of a run without replies, so that every request stays in the table for twice the timeout: the
/// worst case.
fn unanswered(timeout: Duration, duration: Duration) -> Vec<(Duration, u64)> {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plan = Plan {
        flows: 16,
        threads: 2,
        arrivals: Arrivals::Open { rate: 1e6, process: Process::Constant },
        timeout,
        duration,
        ..Plan::new(silent.local_addr().unwrap())
    };
    let mut seen = Vec::new();
    let mut look = |p: &Progress| seen.push((p.elapsed, resident()));
    let result =
        udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(1), &mut look, &AtomicBool::new(false));
    let result = result.unwrap();
    result.counts.check().unwrap();
    // A machine that is too slow would not fill the tables.
    assert!(result.counts.sent > 100_000, "{:?}", result.counts);
    seen
}

#[test]
fn a_million_a_second_unanswered_fits_and_does_not_grow() {
    // The tables are traversed cyclically: with this timeout, once in 2 s even at a tenth of the rate.
    let seen = unanswered(Duration::from_millis(100), Duration::from_secs(6));
    let after = |s| seen.iter().find(|(t, _)| *t >= Duration::from_secs(s)).unwrap().1;
    let (early, late) = (after(3), seen.last().unwrap().1);
    assert!(late <= early + (512 << 10), "grew from {early} to {late} bytes in 3 s");
    let seen = unanswered(Duration::from_secs(1), Duration::from_secs(5));
    let most = seen.iter().map(|(_, m)| *m).max().unwrap();
    assert!(most < BOUND, "{most} bytes");
}
