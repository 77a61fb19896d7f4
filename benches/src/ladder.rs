//! The main claim: the best kernel-socket rung against the first, and AF_XDP against both.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use udpath_advise::ladder::{Rung, Step, ladder};
use udpath_advise::result::{BoostResult, Ratio, Verdict};
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, Event};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;
use udpath_serve::Io;

use crate::Claim;
use crate::bed::udpath;
use crate::race::words;

/// Interrupt moderation of the links, microseconds: as in `udpath boost`, for the same reasons.
const MODERATION: u32 = 75;
/// Best kernel-socket rung over first rung.
const KERNEL_AT_LEAST: f64 = 1.45;
/// Of xdp, over the first rung and over the best kernel-socket rung.
const XDP_AT_LEAST: (f64, f64) = (3.5, 2.5);

/// All kernel-socket rungs.
pub(crate) fn kernel() -> Result<Vec<Claim>> {
    let result = climb(ladder(&Io::KERNEL, 2))?;
    let what = format!("best rung ({}) / first rung, 2 queues, 100 bytes", result.best);
    Ok(vec![claim(what, &result.gain, KERNEL_AT_LEAST)])
}

/// The kernel-socket rungs that have ever won, then xdp on all queues.
pub(crate) fn xdp() -> Result<Vec<Claim>> {
    let wins =
        |step| matches!(step, Step::Base | Step::Batch(_) | Step::Gso | Step::Together | Step::Io(Io::Xdp));
    let rungs = ladder(&Io::ALL, 2).into_iter().filter(|rung| wins(rung.step)).collect();
    let result = climb(rungs)?;
    let xdp = result.rungs.iter().find(|rung| rung.name == Io::Xdp.name()).context("xdp was climbed")?;
    let ratio = Ratio { ratio: xdp.ratio, low: xdp.ratio_low, high: xdp.ratio_high };
    let against = xdp.against.as_deref().unwrap_or("nothing");
    let (first, kernel) = XDP_AT_LEAST;
    Ok(vec![
        claim(format!("xdp / best rung of kernel sockets ({against}), 2 queues"), &ratio, kernel),
        claim(format!("best rung ({}) / first rung, 2 queues", result.best), &result.gain, first),
    ])
}

fn claim(what: String, ratio: &Ratio, at_least: f64) -> Claim {
    Claim { what, measured: words(ratio), bound: format!(">= {at_least}"), holds: ratio.ratio >= at_least }
}

fn climb(ladder: Vec<Rung>) -> Result<BoostResult> {
    let config = Config {
        program: udpath()?.into(),
        queues: 2,
        moderation: MODERATION,
        ladder,
        left_out: Vec::new(),
        workers: 2,
        size: 100,
        flows: 64,
        inflight: 6,
        trial: Duration::from_secs(1),
        bound: Bound::new(0.015, 16)?,
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    };
    let mut watch = |event: &Event<'_>| {
        if let Event::Done(rung) = event {
            let verdict = match rung.verdict {
                Verdict::Base => "first",
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::NotShown => "not shown",
                Verdict::Failed => "failed",
            };
            eprintln!(
                "  {:<10} {:>8.0} tps  {:.3} ({:.3}-{:.3})  {verdict}",
                rung.name, rung.tps, rung.ratio, rung.ratio_low, rung.ratio_high
            );
        }
    };
    Ok(udpath_advise::boost(&config, &EchoLoad::new(1), &mut watch, &AtomicBool::new(false))?)
}
