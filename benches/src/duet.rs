//! Trials of two servers at once against trials in turn: how much narrower is the interval after the same time?
//!
//! ```text
//! side 0, one CPU   A B A B ...   equal servers over kernel sockets, each with its load (the in-kernel loop) on its side's CPU
//! side 1, the other B A B A ...
//! ```
//! Each rung is equal to the first, so that every ratio is 1 but for noise. Both intervals are made of the same trials:
//! in duets of both sides of each, in turn of one side of each, A B B A.

use anyhow::{Context, Result};
use udpath_advise::duet::halves;
use udpath_advise::ladder::{Rung, Step};
use udpath_advise::result::Verdict;
use udpath_advise::result::narrower;
use udpath_host::Snapshot;
use udpath_host::source::Folder;

use crate::claim::{Bound, Claim, Unit};
use crate::ladder::climbing::{Effort, climb_in_duets};
use crate::race::{median, quantile};
use crate::results::Results;

/// Rungs. Fewer: their median is noise. More: only longer.
const RUNGS: usize = 12;
/// Blocks of two trials of each. Fewer: the interval in turn is made of too few blocks.
const BLOCKS: usize = 16;
/// Length of a trial, milliseconds.
const TRIAL: u64 = 200;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let cpus = Snapshot::read(&Folder::live()).cpus;
    let sides = halves(&cpus.list, &cpus.online).context("two sides need two cores")?;
    let sides = sides.map(|side| side.iter().take(1).collect());
    let rung = |at: usize| Rung {
        name: if at == 0 { "first".into() } else { format!("equal-{at}").into() },
        change: "nothing".into(),
        step: Step::Base,
    };
    let rungs = (0..=RUNGS).map(rung).collect();
    let climbed = climb_in_duets(rungs, sides, &Effort::blocks(TRIAL, BLOCKS))?;
    let raced = &climbed.rungs[1..];
    let narrower: Vec<f64> = raced.iter().filter_map(narrower).collect();
    let wrong = raced.iter().filter(|rung| rung.verdict != Verdict::NotShown).count();
    let at = |share| quantile(narrower.clone(), share);
    let what = "interval of trials in turn / of duets, equal servers, one CPU each";
    let claim = Claim::new("duet.narrower", what, median(narrower.clone()), Unit::Ratio, Bound::Shown)
        .within(at(0.1), at(0.9));
    results.add(
        &claim.with(format!("of {} rungs; {wrong} of {RUNGS} equal ones got a verdict", narrower.len())),
    );
    Ok(())
}
