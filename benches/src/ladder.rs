//! The main job: the best kernel-socket rung against the first.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use udpath_advise::ladder::ladder;
use udpath_advise::result::Verdict;
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, Event, Io};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;

use crate::Claim;
use crate::bed::udpath;
use crate::race::words;

/// Best rung over first rung.
const AT_LEAST: f64 = 1.45;

pub(crate) fn run() -> Result<Vec<Claim>> {
    let config = Config {
        program: udpath()?.into(),
        queues: 2,
        moderation: 100,
        ladder: ladder(&Io::KERNEL, 2),
        workers: 2,
        size: 100,
        flows: 64,
        inflight: 4,
        trial: Duration::from_secs(1),
        bound: Bound::new(0.015, 16)?,
        engine: Engine::Kernel,
        ipv6: false,
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
    let result = udpath_advise::boost(&config, &EchoLoad::new(1), &mut watch, &AtomicBool::new(false))?;
    Ok(vec![Claim {
        what: format!("best rung ({}) / first rung, 2 queues, 100 bytes", result.best),
        measured: words(&result.gain),
        bound: format!(">= {AT_LEAST}"),
        holds: result.gain.ratio >= AT_LEAST,
    }])
}
