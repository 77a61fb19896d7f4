//! The limit of one core without device and kernel: a worker on a link within the process, against testpmd on net_null.
//!
//! ```text
//!   ours      64-byte frame ─▸ parse, both checksums, hash, RPS decision, lookup under the epoch, echo, checksums ─▸ link
//!   testpmd   64-byte buffer ─▸ 5tswap ─▸ freed
//! ```
//! testpmd has far less to do: its frames are all zeros, an EtherType that it does not know, so 5tswap only swaps the
//! MAC addresses; nothing is verified, looked up or computed. The ratio is the part of a core's packet rate that
//! remains with a whole UDP transaction per packet.
//!
//! Both run on the same CPU, alternating, and the rate is packets per second of the forwarding thread's CPU time, so
//! that other load on the machine does not count. The baseline is the best of testpmd's bursts (32, 64) and modes of
//! net_null (with and without copying).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::steering::Steering;
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use crate::Claim;
use crate::looped::{Hash, echo, filled};
use crate::race::{cpu_time, pin, quantile, race, words};
use crate::testpmd::{CPU, Testpmd, cpu_time_of};

/// Transactions per second: 64-byte frames on a wire of 10 Gbit/s.
const WIRE: f64 = 14.88e6;
/// Relative to testpmd's forwarding rate.
const AT_LEAST: f64 = 0.45;
/// Frames in the link: as many as fit in a burst.
const FRAMES: usize = 64;
/// Length of one trial.
const TRIAL: Duration = Duration::from_millis(300);
/// Turns between two clock reads: about ten microseconds.
const TURNS: usize = 8;

pub(crate) fn run() -> Result<Vec<Claim>> {
    let mut best: Option<(f64, Testpmd, String)> = None;
    for copy in [0, 1] {
        for burst in [32, 64] {
            let device = format!("net_null0,size=64,copy={copy}");
            let mut testpmd = Testpmd::start(None, &device, burst)?;
            let rates = (0..3).map(|_| forward(&mut testpmd)).collect::<Result<_>>()?;
            let rate = quantile(rates, 0.5);
            let what = format!("burst {burst}, copy={copy}");
            eprintln!("  testpmd, {what}: {:.1} M/s", rate / 1e6);
            if best.as_ref().is_none_or(|(most, ..)| rate > *most) {
                best = Some((rate, testpmd, what));
            }
        }
    }
    let (_, mut testpmd, what) = best.context("four were tried")?;
    let mut claims = Vec::new();
    for (steered, name) in [(true, "with hash and RPS"), (false, "without steering")] {
        let mut rates = Vec::new();
        let ratio = race(
            0.02,
            16,
            || forward(&mut testpmd),
            || {
                let rate = transactions(steered)?;
                rates.push(rate);
                Ok(rate)
            },
        )?;
        let rate = quantile(rates, 0.5);
        claims.push(Claim {
            what: format!("one core, 64-byte frames, echo, {name}"),
            measured: format!("{:.1} M/s", rate / 1e6),
            bound: format!(">= {:.2} M/s", WIRE / 1e6),
            holds: rate >= WIRE,
        });
        claims.push(Claim {
            what: format!("the same / testpmd net_null ({what})"),
            measured: words(&ratio),
            bound: format!(">= {AT_LEAST}"),
            holds: ratio.ratio >= AT_LEAST,
        });
    }
    Ok(claims)
}

/// Packets that testpmd forwards per second of its CPU time.
fn forward(testpmd: &mut Testpmd) -> Result<f64> {
    let before = cpu_time_of(testpmd.pid())?;
    testpmd.begin()?;
    thread::sleep(TRIAL);
    let packets = testpmd.end()?;
    let used = cpu_time_of(testpmd.pid())? - before;
    ensure!(packets > 0, "testpmd forwarded nothing");
    Ok(packets as f64 / used.as_secs_f64())
}

/// Transactions of one worker per second of its CPU time.
fn transactions(steered: bool) -> Result<f64> {
    let trial = thread::spawn(move || -> Result<f64> {
        pin(CPU)?;
        let (port, binds) = filled(FRAMES, Hash::Computed)?;
        let domain = Domain::new(1, 8);
        let groups = Arc::new(Table::new(&domain, Groups::new(&binds, [])?));
        let rings = mesh(1, mesh::Config { backlog: 64, frames: FRAMES })?.remove(0);
        let reader = domain.register("worker 0")?;
        let steering =
            steered.then(|| Steering::new(Key::microsoft(), RpsMap::new(&[0].into_iter().collect(), None)));
        let parts = Parts { port: Some(port), handler: echo, reader, groups, rings, steering };
        let mut worker = Worker::new(parts);
        let counters = worker.counters();
        let (begin, before) = (Instant::now(), cpu_time());
        while begin.elapsed() < TRIAL {
            for _ in 0..TURNS {
                ensure!(worker.poll() == FRAMES, "a frame was lost in the link");
            }
        }
        let used = cpu_time() - before;
        Ok(counters.snapshot().answered as f64 / used.as_secs_f64())
    });
    trial.join().ok().context("the worker panicked")?
}
