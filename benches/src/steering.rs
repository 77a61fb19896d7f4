//! The cost of serving a frame on another core than the one that received it.
//!
//! ```text
//!   served here    worker 0: receive, parse, verify, hash, serve, send                        A
//!   handed over    worker 0: receive, parse, verify, hash ─▸ backlog ─▸ worker 1: parse, serve
//!                  worker 0: send ◂───────────────────────── home ◂────┘                       B
//! ```
//! Both use a link within the process that turns replies into the next requests. Only turns that moved frames are
//! counted, on both cores together: B - A per frame is the cost.
//!
//! Also the saving when frames arrive with a hash: A with the hash given over A with Toeplitz computed. The cost of
//! obtaining the hash from the device is not included.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::steering::Steering;
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use crate::claim::{Bound, Claim, Unit};
use crate::looped::{Hash, echo, filled};
use crate::results::Results;

/// Frames in the link: four bursts, so that both cores have one in progress and one waiting.
const FRAMES: usize = 256;
/// Length of one measurement.
const RUN: Duration = Duration::from_millis(200);
/// Measurements of each kind; the median counts.
const PAIRS: usize = 9;
/// Most nanoseconds of both cores that handing over may cost per frame.
const MOST: f64 = 60.0;
/// Highest relative cost of a frame with a given hash. At 1, there is no reason to request it from the device.
const GIVEN_MOST: f64 = 1.0;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let (mut prices, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let here = cost("0", Hash::Computed)?;
        let over = cost("1", Hash::Computed)?;
        let given = cost("0", Hash::Given)?;
        prices.push(over - here);
        ratios.push(given / here);
    }
    let (price, low, high) = spread(&mut prices);
    let (ratio, least, most) = spread(&mut ratios);
    let what = "steering to another worker, both cores, per frame";
    let claim = Claim::new("steering.price", what, price, Unit::Nanoseconds, Bound::Below(MOST));
    results.add(&claim.within(low, high));
    let what = "a frame steered by a given hash / by a computed one";
    let claim = Claim::new("steering.given", what, ratio, Unit::Ratio, Bound::Below(GIVEN_MOST));
    results.add(&claim.within(least, most));
    Ok(())
}

/// The median, and the range without the lowest and the highest value.
fn spread(measured: &mut [f64]) -> (f64, f64, f64) {
    measured.sort_by(f64::total_cmp);
    (measured[PAIRS / 2], measured[1], measured[PAIRS - 2])
}

/// Nanoseconds of both workers per frame when worker `server` serves the frames of worker 0.
fn cost(server: &str, hash: Hash) -> Result<f64> {
    let (port, binds) = filled(FRAMES, hash)?;
    let domain = Domain::new(2, 8);
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, [])?));
    let map = RpsMap::new(&server.parse()?, None);
    let mut port = Some(port);
    let mut steering = Some(Steering::new(Key::microsoft(), map));
    let workers: Vec<_> = mesh(2, mesh::Config { backlog: 1024, frames: FRAMES })?
        .into_iter()
        .map(|rings| {
            let reader = domain.register(format!("worker {}", rings.index()))?;
            let groups = Arc::clone(&groups);
            let parts =
                Parts { port: port.take(), handler: echo, reader, groups, rings, steering: steering.take() };
            anyhow::Ok(Worker::new(parts))
        })
        .collect::<Result<_>>()?;
    let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
    let stop = AtomicBool::new(false);
    let busy = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (cpu, worker) in workers.into_iter().enumerate() {
            let (stop, busy) = (&stop, &busy);
            scope.spawn(move || {
                let mut only = rustix::thread::CpuSet::new();
                only.set(cpu);
                // On one CPU, the two take turns, and the result shows it.
                let _ = rustix::thread::sched_setaffinity(None, &only);
                busy.fetch_add(work(worker, stop), Relaxed);
            });
        }
        std::thread::sleep(RUN);
        stop.store(true, Relaxed);
    });
    let snapshots: Vec<_> = counters.iter().map(udpath_stack::counters::Counters::snapshot).collect();
    let dropped: u64 = snapshots.iter().map(udpath_stack::counters::Snapshot::dropped_total).sum();
    ensure!(dropped == 0, "{dropped} frames were dropped below the bound");
    let frames = snapshots[0].answered;
    ensure!(frames > 0, "nothing moved");
    Ok(busy.into_inner() as f64 / frames as f64)
}

/// Nanoseconds of the turns that moved frames.
fn work<P: Port, H: udpath_stack::handler::Handler>(mut worker: Worker<P, H>, stop: &AtomicBool) -> u64 {
    let mut busy = Duration::ZERO;
    let mut since = Instant::now();
    while !stop.load(Relaxed) {
        let moved = worker.poll();
        let now = Instant::now();
        if moved > 0 {
            busy += now - since;
        } else {
            std::hint::spin_loop();
        }
        since = now;
    }
    busy.as_nanos() as u64
}
