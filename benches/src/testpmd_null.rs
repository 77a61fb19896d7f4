//! The limit of one core without device and kernel: a worker on a link within the process, against testpmd on net_null.
//!
//! ```text
//!   ours      64-byte frame ─▸ parse, both checksums, hash, RPS decision, lookup under the epoch,
//!             serve's dispatch ─▸ Service (echo) ─▸ checksums, counters ─▸ link
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
use udpath_protocols::echo::Echo;
use udpath_serve::InProcessWorker;
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::steering::Steering;
use udpath_stack::worker::Parts;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use crate::claim::{Bound, Claim, Unit};
use crate::looped::{Hash, filled, wildcard};
use crate::race::{cpu_time, pin, quantile, race};
use crate::results::Results;
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

pub(crate) fn run(results: &mut Results) -> Result<()> {
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
    for (steered, id, name) in [(true, "steered", "with hash and RPS"), (false, "plain", "without steering")]
    {
        let mut rates = Vec::new();
        let against = format!("the same / testpmd net_null ({what})");
        let ratio = race(
            &against,
            0.02,
            16,
            || forward(&mut testpmd),
            || {
                let rate = transactions(steered)?;
                rates.push(rate);
                Ok(rate)
            },
        )?;
        let (low, rate, high) =
            (quantile(rates.clone(), 0.1), quantile(rates.clone(), 0.5), quantile(rates, 0.9));
        let claimed = format!("a Service on one core, in memory, 64-byte frames, checksums, {name}");
        let claim =
            Claim::new(&format!("testpmd_null.{id}"), claimed, rate, Unit::Rate, Bound::AtLeast(WIRE));
        results.add(&claim.within(low, high));
        let id = format!("testpmd_null.{id}_ratio");
        results.add(&Claim::ratio(&id, against, &ratio, Bound::AtLeast(AT_LEAST)));
    }
    Ok(())
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
        let (port, _) = filled(FRAMES, Hash::Computed)?;
        let domain = Domain::new(1, 8);
        let (binds, locals) = wildcard(FRAMES);
        let groups = Arc::new(Table::new(&domain, Groups::new(&binds, locals)?));
        let rings = mesh(1, mesh::Config { backlog: 64, frames: FRAMES })?.remove(0);
        let reader = domain.register("worker 0")?;
        let steering =
            steered.then(|| Steering::new(Key::microsoft(), RpsMap::new(&[0].into_iter().collect(), None)));
        let parts = Parts { port: Some(port), handler: (), reader, groups, rings, steering };
        let mut worker = InProcessWorker::new(|_| Echo::default(), parts)?;
        let (begin, before) = (Instant::now(), cpu_time());
        while begin.elapsed() < TRIAL {
            for _ in 0..TURNS {
                ensure!(worker.poll() == FRAMES, "a frame was lost in the link");
            }
        }
        let used = cpu_time() - before;
        let counts = worker.counts();
        ensure!(
            counts.answered == counts.received,
            "{} of {} were answered",
            counts.answered,
            counts.received
        );
        Ok(counts.answered as f64 / used.as_secs_f64())
    });
    trial.join().ok().context("the worker panicked")?
}
