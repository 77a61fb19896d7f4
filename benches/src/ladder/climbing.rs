//! Climbs and races of `udpath boost`, as the benchmark needs them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use udpath_advise::ladder::{Rung, Settings, Step};
use udpath_advise::result::Sides;
use udpath_advise::result::{BoostResult, Ratio, RungResult, Verdict};
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, Event};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;

use crate::bed::udpath;

/// Queues of the link, and workers of the servers.
pub(crate) const QUEUES: u32 = 2;
pub(crate) const WORKERS: usize = 2;
/// Flows, and requests in flight in each: as in `udpath boost`.
pub(crate) const FLOWS: u32 = 64;
pub(crate) const INFLIGHT: u32 = 6;
/// Length of a trial, milliseconds: as in `udpath boost`.
pub(crate) const TRIAL: u64 = 500;

/// How much a climb measures.
pub(crate) struct Effort {
    /// Length of a trial.
    trial: Duration,
    /// Sufficient half-width of an interval, and the most blocks of four trials.
    bound: (f64, usize),
}

impl Effort {
    /// As `udpath boost` climbs, with trials of so many milliseconds.
    pub(crate) const fn usual(trial: u64) -> Self {
        Self { trial: Duration::from_millis(trial), bound: (0.015, 16) }
    }

    /// So many blocks, unless a difference is beyond doubt before.
    pub(crate) const fn blocks(trial: u64, blocks: usize) -> Self {
        Self { trial: Duration::from_millis(trial), bound: (0.001, blocks) }
    }

    /// As few trials as a verdict needs.
    pub(crate) const fn least(trial: u64) -> Self {
        Self { trial: Duration::from_millis(trial), bound: (0.5, 3) }
    }
}

/// Climbs `rungs` over a link with XPS on both ends.
pub(crate) fn climb(rungs: Vec<Rung>, moderation: u32, effort: &Effort) -> Result<BoostResult> {
    run(&config(rungs, moderation, effort)?)
}

/// The same with one queue and one worker, and two rungs at once on these CPUs.
pub(crate) fn climb_in_duets(rungs: Vec<Rung>, sides: Sides, effort: &Effort) -> Result<BoostResult> {
    run(&Config { queues: 1, workers: 1, duet: Some(sides), ..config(rungs, 0, effort)? })
}

fn config(rungs: Vec<Rung>, moderation: u32, effort: &Effort) -> Result<Config> {
    Ok(Config {
        program: udpath()?.into(),
        service: Vec::new(),
        queues: QUEUES,
        xps: true,
        moderation,
        ladder: rungs,
        left_out: Vec::new(),
        workers: WORKERS,
        size: 100,
        flows: FLOWS,
        inflight: INFLIGHT,
        trial: effort.trial,
        bound: Bound::new(effort.bound.0, effort.bound.1)?,
        duet: None,
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    })
}

fn run(config: &Config) -> Result<BoostResult> {
    let mut watch = |event: &Event<'_>| {
        let Event::Done(rung) = event else { return };
        let verdict = match rung.verdict {
            Verdict::Base => "first",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NotShown => "not shown",
            Verdict::Failed => "failed",
        };
        let (tps, ratio, low, high) = (rung.tps, rung.ratio, rung.ratio_low, rung.ratio_high);
        eprintln!("  {:<13} {tps:>8.0} tps  {ratio:.3} ({low:.3}-{high:.3})  {verdict}", rung.name);
        if let (Verdict::Failed, Some(note)) = (rung.verdict, &rung.note) {
            eprintln!("    {note}");
        }
    };
    Ok(udpath_advise::boost(config, &EchoLoad::new(1), &mut watch, &AtomicBool::new(false))?)
}

/// `other` over `one`.
pub(crate) fn race(one: Settings, other: Settings, moderation: u32) -> Result<Ratio> {
    let rung = |name: &'static str, settings| Rung {
        name: name.into(),
        change: "exactly these settings".into(),
        step: Step::Exactly(settings),
    };
    let result = climb(vec![rung("one", one), rung("other", other)], moderation, &Effort::usual(TRIAL))?;
    let raced = result.rungs.get(1).context("two equal settings are not a race")?;
    let note = || raced.note.clone().unwrap_or_else(|| "it failed".into());
    anyhow::ensure!(raced.verdict != Verdict::Failed, "{}", note());
    Ok(ratio(raced))
}

/// The ratio of a rung.
pub(crate) fn ratio(rung: &RungResult) -> Ratio {
    Ratio { ratio: rung.ratio, low: rung.ratio_low, high: rung.ratio_high }
}
