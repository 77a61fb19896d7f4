//! `udpath boost` in its lab against an exhaustive search: how good is what it finds, and how much does it measure for
//! that?
//!
//! ```text
//! climb       the ladder, as `udpath boost --lab` does it
//! exhaustive  every combination of the settings that the rungs change, each raced against the best so far;
//!             then the best few again, by as many trials as they need
//! race        A B B A: what the climb found / the best of all
//! ```

use std::borrow::Cow;

use anyhow::{Context, Result, ensure};
use udpath_advise::ladder::{Rung, Settings, Step, ladder};
use udpath_advise::result::{BoostResult, Ratio, RungResult, Verdict};
use udpath_serve::Io;

use crate::claim::{Bound, Claim, Unit};
use crate::ladder::climbing::{Effort, FLOWS, INFLIGHT, QUEUES, WORKERS, climb, ratio};
use crate::results::Results;

/// What the climb finds, over the best of all.
const WITHIN: f64 = 0.97;
/// Trials of the climb, over those of the exhaustive search.
const THIRD: f64 = 1.0 / 3.0;
/// Interrupt moderation of the links, microseconds: that of `udpath boost`.
const MODERATION: u32 = 75;
/// Combinations that are raced again, the best first. Fewer: a disturbed trial may hide the best; more: only longer.
const FINALISTS: usize = 8;
/// Length of a trial of both searches, milliseconds.
const TRIAL: u64 = 100;
/// The same of the race at the end: as in `udpath boost`.
const FINAL: u64 = 500;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let base = Settings::base(WORKERS, FLOWS * INFLIGHT);
    let rungs = ladder(&Io::ALL, QUEUES);
    let climbed = climb(rungs.clone(), MODERATION, &Effort::usual(TRIAL))?;
    let found = best_of(&rungs, &climbed, base);

    let space = space(base);
    let all = climb(space.clone(), MODERATION, &Effort::least(TRIAL))?;
    // The base first: it runs where all Ios can be compared with it.
    let best_few = ranked(&all).into_iter().filter(|at| *at != 0).take(FINALISTS);
    let finalists: Vec<Rung> = std::iter::once(0).chain(best_few).map(|at| space[at].clone()).collect();
    let again = climb(finalists.clone(), MODERATION, &Effort::usual(TRIAL))?;
    let best = best_of(&finalists, &again, base);

    let ratio = against(base, best, found)?;
    let what = format!("what the climb finds / the best of {} combinations", space.len());
    let named = |settings: &Settings| {
        settings
            .pairs()
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    eprintln!("  found by the climb: {}", named(&found));
    eprintln!("  best of all:        {}", named(&best));
    let claim = Claim::ratio("exhaustive.within", what, &ratio, Bound::AtLeast(WITHIN)).moderated(MODERATION);
    let enough = space.len() >= 200;
    results.add(&claim.only_if(enough, || format!("only {} combinations", space.len())));

    let (few, many) = (trials(&climbed), trials(&all) + trials(&again));
    let claim = Claim::new(
        "exhaustive.trials",
        "trials of the climb / of the exhaustive search",
        few as f64 / many as f64,
        Unit::Ratio,
        Bound::Below(THIRD),
    );
    results.add(&claim.with(format!("{few} and {many}")).moderated(MODERATION));
    Ok(())
}

/// What was found over the best, each better than the base.
fn against(base: Settings, best: Settings, found: Settings) -> Result<Ratio> {
    if best == found {
        return Ok(Ratio { ratio: 1.0, low: 1.0, high: 1.0 });
    }
    let rungs =
        [("base", base), ("best", best), ("found", found)].map(|(name, settings)| exactly(name, settings));
    let raced = climb(rungs.into(), MODERATION, &Effort::usual(FINAL))?;
    let last = raced.rungs.get(2).context("the base, the best and what was found differ")?;
    ensure!(last.against.as_deref() == Some("best"), "the best was not shown to be faster than the base");
    Ok(ratio(last))
}

fn exactly(name: impl Into<Cow<'static, str>>, settings: Settings) -> Rung {
    Rung { name: name.into(), change: "exactly these settings".into(), step: Step::Exactly(settings) }
}

/// Every combination of what the rungs change, the ladder's first rung first.
fn space(base: Settings) -> Vec<Rung> {
    let mut all = vec![base];
    let switch = [false, true];
    for batch in [1, 8, 32, 128] {
        // GSO joins the replies of a batch.
        for gso in if batch == 1 { &switch[..1] } else { &switch[..] } {
            for pin in switch {
                for (rps, rfs) in [(false, false), (true, false), (true, true)] {
                    let of = Settings { batch, gso: *gso, pin, rps, rfs, ..base };
                    for workers in [1, WORKERS] {
                        all.push(Settings { io: Io::Shared, workers, ..of });
                        all.push(Settings { io: Io::Reuseport, workers, ..of });
                    }
                    if !rps {
                        all.push(Settings { io: Io::Percpu, ..of });
                    }
                }
            }
        }
        for busy_poll in switch {
            for live_frames in switch {
                let of = Settings { io: Io::Xdp, batch, pin: true, busy_poll, live_frames, ..base };
                all.push(of);
                all.push(Settings { one_queue: true, workers: 1, ..of });
                all.push(Settings { one_queue: true, steer: true, ..of });
            }
        }
    }
    // The first rung is one of them.
    let again = all.iter().skip(1).position(|settings| *settings == base).map(|at| at + 1);
    again.map(|at| all.remove(at));
    all.into_iter().enumerate().map(|(number, settings)| exactly(number.to_string(), settings)).collect()
}

/// The settings of the rung that a climb ended with.
fn best_of(rungs: &[Rung], climbed: &BoostResult, base: Settings) -> Settings {
    let mut best = base;
    for result in climbed.rungs.iter().filter(|rung| rung.kept) {
        if let Some(rung) = rungs.iter().find(|rung| rung.name == result.name) {
            best = rung.step.apply(&best, WORKERS);
        }
    }
    best
}

/// Places in the climb by how fast each was: its ratio, times that of what it was raced against.
fn ranked(all: &BoostResult) -> Vec<usize> {
    let mut speeds: Vec<(usize, f64)> = Vec::new();
    for (at, rung) in all.rungs.iter().enumerate() {
        let against = rung.against.as_ref();
        let before = against.and_then(|name| all.rungs.iter().position(|other| other.name == *name));
        let before = before.map_or(1.0, |before| speeds[before].1);
        let failed = rung.verdict == Verdict::Failed;
        speeds.push((at, if failed { 0.0 } else { before * if at == 0 { 1.0 } else { rung.ratio } }));
    }
    speeds.sort_by(|one, other| other.1.total_cmp(&one.1));
    // Names are the places in the space; a climb omits what equals its best.
    speeds.iter().filter_map(|(at, _)| all.rungs[*at].name.parse().ok()).collect()
}

/// Trials of a climb: of each rung, and as many of what it was raced against.
fn trials(climbed: &BoostResult) -> usize {
    let of = |rung: &RungResult| rung.trials.len() * if rung.against.is_some() { 2 } else { 1 };
    climbed.rungs.iter().map(of).sum()
}
