//! The search for the changes that help: over anything that can be measured with some of them in effect.
//!
//! ```text
//!  as found ─▸ screening, one trial of each: A B₁ A B₂ A ... ─▸ the most promising first
//!      │
//!      ├─▸ the next candidate against the best so far ─ better ─▸ the same under another load ─ holds ─▸ kept, and the bed
//!      ▲             A B B A ...                      └ else                                  └ loses     may offer others
//!      │                                                  └─▸ remembered, undone ◂───────────────┘
//!      │
//!      │   no candidate left, or what is left of the budget is needed for the end
//!      │
//!      ├─ each kept candidate left out once: what is not missed goes
//!      └─ as found against what is left: the gain, from trials that chose nothing
//! ```
//! A candidate is a group of settings, not one: RPS alone loses on a shared socket and wins with split ones, so the
//! group that brings its prerequisites along is a candidate of its own. Whatever loses is only undone, never a dead
//! end.
//!
//! A race takes dozens of trials, screening two for each candidate. It decides nothing but the order, so that what
//! gains most is raced before the budget ends; its trials count in no verdict.
//!
//! What gains under one load may lose under another: deferred polls do, with fewer requests in flight. So a candidate
//! is kept only if it does not lose under another load that the bed has.
//!
//! The last race is needed: the best of many candidates was chosen because its trials were good, so those trials
//! overstate it. If it does not show the gain, nothing is kept. So the budget has to hold it, too: about as much time
//! as the longest race that kept something took is left for it, and a race that would need that time is cut. However
//! short the budget is, one candidate is raced, and what it gains is measured, in [`FEWEST_BLOCKS`] blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::statistics::ratio::{Ratio, Verdict};
use crate::statistics::{Bound, Comparison, FEWEST_BLOCKS, State};

/// A candidate, by its place in the bed's list.
pub(crate) type Candidate = usize;

/// Why a trial gave no figure.
#[derive(Debug)]
pub(crate) enum Trouble<E> {
    /// This candidate cannot be measured; the search goes on without it.
    Candidate(String),
    /// The search ends.
    Fatal(E),
}

/// What the search measures.
pub(crate) trait Bed {
    /// What ends a search.
    type Error;

    /// The candidates to race on top of `kept`, the likeliest first; none: the search is over. `raced` are those raced
    /// since the last one was kept, which are not offered again.
    fn offers(
        &mut self,
        kept: &[Candidate],
        raced: &BTreeSet<Candidate>,
    ) -> Result<Vec<Candidate>, Self::Error>;

    /// Makes exactly `on` effective, later ones over earlier ones, and runs one trial under a load: transactions per
    /// second.
    fn trial(&mut self, on: &[Candidate], under: Under) -> Result<f64, Trouble<Self::Error>>;

    /// Whether it has another load.
    fn has_other_load(&self) -> bool;

    /// What is left of the budget for trials.
    fn left(&self) -> Duration;

    /// The screening of a candidate, the first of `left`, begins.
    fn screens(&mut self, _candidate: Candidate, _left: usize) {}

    /// A race begins.
    fn begins(&mut self, _race: &Race) {}

    /// A block of a race is done.
    fn goes_on(&mut self, _race: &Race, _comparison: &Comparison, _bound: Bound) {}

    /// A race is over.
    fn ends(&mut self, _race: &Race) {}
}

/// The load of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Under {
    /// The one that the search is for.
    Load,
    /// Another one of the same server.
    OtherLoad,
}

/// What a race was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A candidate on top of the best so far.
    Try(Candidate),
    /// The same under another load.
    Hold(Candidate),
    /// The best without one that was kept.
    Without(Candidate),
    /// The best against what was found.
    Gain,
}

impl Purpose {
    pub(crate) const fn under(self) -> Under {
        match self {
            Self::Hold(_) => Under::OtherLoad,
            Self::Try(_) | Self::Without(_) | Self::Gain => Under::Load,
        }
    }
}

/// Two sets of candidates, measured in turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Race {
    pub(crate) purpose: Purpose,
    /// In effect on the one side.
    pub(crate) a: Vec<Candidate>,
    /// In effect on the other.
    pub(crate) b: Vec<Candidate>,
    pub(crate) verdict: Verdict,
    /// b over a.
    pub(crate) ratio: Option<Ratio>,
    /// Transactions per second of each side's trials.
    pub(crate) trials: [Vec<f64>; 2],
    /// Why it failed, or was cut.
    pub(crate) note: Option<String>,
    /// The budget ended it before it was decided.
    pub(crate) cut: bool,
    /// How long it took.
    pub(crate) took: Duration,
}

/// What a change may lose under another load, as a share. Less: the noise of a race that shows nothing undoes good
/// changes. More: what was kept for one load costs noticeably under others.
const MAY_LOSE: f64 = 0.05;

impl Race {
    /// Whether its second side loses, or may lose much.
    pub(crate) fn loses(&self) -> bool {
        matches!(self.verdict, Verdict::Worse | Verdict::Failed)
            || self.ratio.is_none_or(|ratio| ratio.ratio < 1.0 - MAY_LOSE)
    }

    /// Whether its second side, which has less, is as good. One that was cut does not know.
    pub(crate) const fn leaves_out(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::NotShown) && !self.cut
    }
}

/// What the search found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// Every race, in order.
    pub(crate) races: Vec<Race>,
    /// What helps, in the order in which it was kept.
    pub(crate) kept: Vec<Candidate>,
    /// What it gains together; none if nothing was kept.
    pub(crate) gain: Option<Ratio>,
    /// Candidates that had their trial of the screening.
    pub(crate) screened: usize,
    /// The budget ended the search.
    pub(crate) out_of_time: bool,
}

/// Searches until the bed proposes nothing more, or no time is left but what the end needs.
pub(crate) fn search<B: Bed>(bed: &mut B, bound: Bound) -> Result<Found, B::Error> {
    let mut found =
        Found { races: Vec::new(), kept: Vec::new(), gain: None, screened: 0, out_of_time: false };
    let (mut raced, mut screened) = (BTreeSet::new(), BTreeMap::new());
    // What the race of the gain is expected to take.
    let mut last = Duration::ZERO;
    loop {
        if bed.left() <= last && !found.races.is_empty() {
            found.out_of_time = true;
            break;
        }
        let offered = bed.offers(&found.kept, &raced)?;
        screen(bed, &found.kept, &offered, &mut screened, last)?;
        found.screened = screened.len();
        let Some(candidate) = most_promising(&offered, &screened) else { break };
        raced.insert(candidate);
        let with = [&found.kept[..], &[candidate]].concat();
        let race = run(bed, bound, Purpose::Try(candidate), [&found.kept, &with], last)?;
        let (better, took) = (race.verdict == Verdict::Better, race.took);
        found.out_of_time |= race.cut;
        found.races.push(race);
        if !better {
            continue;
        }
        let gain = last.max(took);
        if bed.has_other_load() {
            let race = run(bed, bound, Purpose::Hold(candidate), [&found.kept, &with], gain)?;
            let loses = race.loses();
            found.races.push(race);
            if loses {
                continue;
            }
        }
        found.kept.push(candidate);
        raced.clear();
        last = gain;
    }
    leave_out(bed, bound, &mut found, last)?;
    if !found.kept.is_empty() {
        let race = run(bed, bound, Purpose::Gain, [&[], &found.kept], Duration::ZERO)?;
        match race.verdict {
            Verdict::Better => found.gain = race.ratio,
            _ => found.kept.clear(),
        }
        found.races.push(race);
    }
    Ok(found)
}

/// How much two candidates must differ in screening for the better one to come first: about the noise of two trials on
/// a shared machine. Smaller: noise, not the diagnosis, orders them. Larger: what gains a fifth waits for its turn.
const APART: f64 = 0.1;

/// Share of the time left that screening may take. Less: of many candidates the last ones keep the place that the
/// diagnosis gave them. More: what was found to be promising is not raced any more.
const SCREENING: f64 = 0.7;

/// One trial of each offered candidate that has none yet, between two of what is kept: by which factor it differs from
/// their mean. 0 for what cannot be measured. `last` is left for the end.
fn screen<B: Bed>(
    bed: &mut B,
    kept: &[Candidate],
    offered: &[Candidate],
    screened: &mut BTreeMap<Candidate, f64>,
    last: Duration,
) -> Result<(), B::Error> {
    let new: Vec<Candidate> = offered.iter().copied().filter(|at| !screened.contains_key(at)).collect();
    // Nothing to order.
    if offered.len() < 2 || new.is_empty() {
        return Ok(());
    }
    let measure = |bed: &mut B, on: &[Candidate]| match bed.trial(on, Under::Load) {
        Ok(tps) => Ok(tps),
        Err(Trouble::Candidate(_)) => Ok(0.0),
        Err(Trouble::Fatal(error)) => Err(error),
    };
    let mut before = None;
    let enough = last + bed.left().saturating_sub(last).mul_f64(1.0 - SCREENING);
    for (at, candidate) in new.iter().copied().enumerate() {
        if bed.left() <= enough {
            break;
        }
        bed.screens(candidate, new.len() - at);
        let first = match before {
            Some(tps) => tps,
            None => measure(bed, kept)?,
        };
        let with = measure(bed, &[kept, &[candidate]].concat())?;
        let after = measure(bed, kept)?;
        let beside = f64::midpoint(first, after);
        screened.insert(candidate, if beside > 0.0 { with / beside } else { 0.0 });
        before = Some(after);
    }
    Ok(())
}

/// The best in screening; of those that do not differ, the first.
fn most_promising(offered: &[Candidate], screened: &BTreeMap<Candidate, f64>) -> Option<Candidate> {
    let step = |at: &Candidate| {
        let ratio = screened.get(at).copied().unwrap_or(1.0).max(1e-3);
        (ratio.ln() / APART).round() as i64
    };
    // `min_by_key` returns the first of equals.
    offered.iter().copied().min_by_key(|at| -step(at))
}

/// Removes what is not missed. With one candidate there is nothing to tell apart.
fn leave_out<B: Bed>(bed: &mut B, bound: Bound, found: &mut Found, last: Duration) -> Result<(), B::Error> {
    // The last one was kept on top of all others: it was measured so already.
    for candidate in found.kept.clone().into_iter().rev().skip(1).rev() {
        if found.kept.len() < 2 {
            break;
        }
        if bed.left() <= last {
            found.out_of_time = true;
            break;
        }
        let without: Vec<Candidate> =
            found.kept.iter().copied().filter(|other| *other != candidate).collect();
        let race = run(bed, bound, Purpose::Without(candidate), [&found.kept, &without], last)?;
        found.out_of_time |= race.cut;
        if race.leaves_out() {
            found.kept = without;
        }
        found.races.push(race);
    }
    Ok(())
}

/// Measures two sets in turn until their comparison is decided, or no more than `last` and what the race itself calls
/// for is left.
fn run<B: Bed>(
    bed: &mut B,
    bound: Bound,
    purpose: Purpose,
    [a, b]: [&[Candidate]; 2],
    last: Duration,
) -> Result<Race, B::Error> {
    let mut race = Race {
        purpose,
        a: a.to_vec(),
        b: b.to_vec(),
        verdict: Verdict::Failed,
        ratio: None,
        trials: Default::default(),
        note: None,
        cut: false,
        took: Duration::ZERO,
    };
    let begin = bed.left();
    bed.begins(&race);
    let mut comparison = Comparison::new(bound);
    // Within a block A B B A: an even drift weighs on both sides alike.
    'race: loop {
        let mut block = [0.0; 4];
        for (tps, side) in block.iter_mut().zip([0, 1, 1, 0]) {
            let on = if side == 0 { &race.a } else { &race.b };
            match bed.trial(on, purpose.under()) {
                Ok(measured) => *tps = measured,
                Err(Trouble::Candidate(why)) => {
                    race.note = Some(why);
                    break 'race;
                }
                Err(Trouble::Fatal(error)) => return Err(error),
            }
            race.trials[side].push(*tps);
        }
        if let Err(error) = comparison.push_block(block) {
            race.note = Some(error.to_string());
        }
        race.ratio = comparison.interval();
        bed.goes_on(&race, &comparison, bound);
        if let State::Done(verdict) = comparison.state() {
            race.verdict = verdict;
            break;
        }
        let took = begin.saturating_sub(bed.left());
        let blocks = comparison.blocks();
        let another = took / blocks as u32;
        if blocks >= FEWEST_BLOCKS && bed.left() <= after(purpose, took, last, bed.has_other_load()) + another
        {
            race.verdict = comparison.cut();
            race.note = Some(format!("the budget ended this comparison after {blocks} blocks"));
            race.cut = true;
            break;
        }
    }
    race.took = begin.saturating_sub(bed.left());
    bed.ends(&race);
    Ok(race)
}

/// What the races after one of this purpose, which took so long, are expected to take. A gain calls for two more: under
/// the other load, and of what was found. They have more to show, so they take no longer.
fn after(purpose: Purpose, took: Duration, last: Duration, other_load: bool) -> Duration {
    match purpose {
        Purpose::Try(_) if other_load => last.max(took) + took,
        Purpose::Try(_) => last.max(took),
        Purpose::Hold(_) | Purpose::Without(_) => last,
        Purpose::Gain => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
