//! The search for the changes that help: over anything that can be measured with some of them in effect.
//!
//! ```text
//!  as found ─▸ the next candidate against the best so far ─ better ─▸ kept, and the bed may propose others
//!      ▲             A B B A ...                          └ else ──▸ remembered, undone
//!      │
//!      │   no candidate left, or the budget is spent
//!      │
//!      ├─ each kept candidate left out once: what is not missed goes
//!      └─ as found against what is left: the gain, from trials that chose nothing
//! ```
//! A candidate is a group of settings, not one: RPS alone loses on a shared socket and wins with split ones, so the group
//! that brings its prerequisites along is a candidate of its own. Whatever loses is only undone, never a dead end.
//!
//! The last race is needed: the best of many candidates was chosen because its trials were good, so those trials overstate
//! it. If it does not show the gain, nothing is kept.

use std::collections::BTreeSet;

use crate::result::{Ratio, Verdict};
use crate::statistics::{Bound, Comparison, State};

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

    /// The next candidate to race on top of `kept`, which was not raced on top of the same set before; none: the search is
    /// over. `raced` are the candidates raced since the last one was kept.
    fn propose(
        &mut self,
        kept: &[Candidate],
        raced: &BTreeSet<Candidate>,
    ) -> Result<Option<Candidate>, Self::Error>;

    /// Makes exactly `on` effective, later ones over earlier ones, and runs one trial: transactions per second.
    fn trial(&mut self, on: &[Candidate]) -> Result<f64, Trouble<Self::Error>>;

    /// Whether there is time for another race.
    fn has_time(&self) -> bool;

    /// A race begins.
    fn begins(&mut self, _race: &Race) {}

    /// A block of a race is done.
    fn goes_on(&mut self, _race: &Race, _comparison: &Comparison, _bound: Bound) {}

    /// A race is over.
    fn ends(&mut self, _race: &Race) {}
}

/// What a race was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A candidate on top of the best so far.
    Try(Candidate),
    /// The best without one that was kept.
    Without(Candidate),
    /// The best against what was found.
    Gain,
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
    /// Why it failed.
    pub(crate) note: Option<String>,
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
    /// The budget ended the search.
    pub(crate) out_of_time: bool,
}

/// Searches until the bed proposes nothing more, or has no time left.
pub(crate) fn search<B: Bed>(bed: &mut B, bound: Bound) -> Result<Found, B::Error> {
    let mut found = Found { races: Vec::new(), kept: Vec::new(), gain: None, out_of_time: false };
    let mut raced = BTreeSet::new();
    loop {
        if !bed.has_time() {
            found.out_of_time = true;
            break;
        }
        let Some(candidate) = bed.propose(&found.kept, &raced)? else { break };
        raced.insert(candidate);
        let with = [&found.kept[..], &[candidate]].concat();
        let race = run(bed, bound, Purpose::Try(candidate), found.kept.clone(), with)?;
        if race.verdict == Verdict::Better {
            found.kept.push(candidate);
            raced.clear();
        }
        found.races.push(race);
    }
    leave_out(bed, bound, &mut found)?;
    if !found.kept.is_empty() {
        let race = run(bed, bound, Purpose::Gain, Vec::new(), found.kept.clone())?;
        match race.verdict {
            Verdict::Better => found.gain = race.ratio,
            _ => found.kept.clear(),
        }
        found.races.push(race);
    }
    Ok(found)
}

/// Removes what is not missed. With one candidate there is nothing to tell apart.
fn leave_out<B: Bed>(bed: &mut B, bound: Bound, found: &mut Found) -> Result<(), B::Error> {
    // The last one was kept on top of all others: it was measured so already.
    for candidate in found.kept.clone().into_iter().rev().skip(1).rev() {
        if found.kept.len() < 2 {
            break;
        }
        if !bed.has_time() {
            found.out_of_time = true;
            break;
        }
        let without: Vec<Candidate> =
            found.kept.iter().copied().filter(|other| *other != candidate).collect();
        let race = run(bed, bound, Purpose::Without(candidate), found.kept.clone(), without.clone())?;
        if matches!(race.verdict, Verdict::Better | Verdict::NotShown) {
            found.kept = without;
        }
        found.races.push(race);
    }
    Ok(())
}

/// Measures two sets in turn until their comparison is decided.
fn run<B: Bed>(
    bed: &mut B,
    bound: Bound,
    purpose: Purpose,
    a: Vec<Candidate>,
    b: Vec<Candidate>,
) -> Result<Race, B::Error> {
    let mut race =
        Race { purpose, a, b, verdict: Verdict::Failed, ratio: None, trials: Default::default(), note: None };
    bed.begins(&race);
    let mut comparison = Comparison::new(bound);
    // Within a block A B B A: an even drift weighs on both sides alike.
    'race: loop {
        let mut block = [0.0; 4];
        for (tps, side) in block.iter_mut().zip([0, 1, 1, 0]) {
            let on = if side == 0 { &race.a } else { &race.b };
            match bed.trial(on) {
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
    }
    bed.ends(&race);
    Ok(race)
}

#[cfg(test)]
mod tests;
