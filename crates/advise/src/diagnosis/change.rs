//! What changed from one diagnosis to the next: findings that appear, grow twofold, or go.

use super::{Diagnosed, Diagnosis};
use crate::finding::Location;

/// A change between two diagnoses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'a> {
    /// The headline is another one.
    Headline(&'a str),
    /// A finding that was not there before.
    Appeared(&'a Diagnosed),
    /// A finding that is at least twice as large as when it was last reported.
    Grew(&'a Diagnosed),
    /// A finding that is no longer there.
    Went(&'a Diagnosed),
}

/// Growth that is reported. Lower: every second of a varying load is news. Higher: a loss may triple unnoticed.
const TWOFOLD: f64 = 2.0;

/// What changed from `then` to `now`; without `then`, everything is new. A headline is another one if another link is
/// the first saturated one.
#[must_use]
pub fn changes<'a>(then: Option<&'a Diagnosis>, now: &'a Diagnosis) -> Vec<Change<'a>> {
    let first = |diagnosis: &Diagnosis| {
        diagnosis.links.iter().find(|link| link.saturated).map(|link| (link.stage, link.place.clone()))
    };
    let mut all = Vec::new();
    if then.is_none_or(|then| first(then) != first(now)) {
        all.push(Change::Headline(&now.headline));
    }
    let known = then.map_or(&[][..], |then| &then.findings);
    for found in &now.findings {
        match known.iter().find(|was| is_same(was, found)) {
            None => all.push(Change::Appeared(found)),
            Some(was) if has_grown(was, found) => all.push(Change::Grew(found)),
            Some(_) => {}
        }
    }
    let gone = known.iter().filter(|was| !now.findings.iter().any(|found| is_same(was, found)));
    all.extend(gone.map(Change::Went));
    all
}

impl Diagnosis {
    /// This diagnosis after its changes to `now` were reported: a finding that did not grow twofold keeps the size with
    /// which it was reported.
    #[must_use]
    pub fn updated(self, mut now: Self) -> Self {
        for found in &mut now.findings {
            if let Some(was) = self.findings.iter().find(|was| is_same(was, found) && !has_grown(was, found))
            {
                (found.finding.rate, found.finding.share) = (was.finding.rate, was.finding.share);
            }
        }
        now
    }
}

fn is_same(a: &Diagnosed, b: &Diagnosed) -> bool {
    let place = |found: &Diagnosed| -> Option<Location> { found.finding.locations.last().cloned() };
    a.finding.id == b.finding.id && place(a) == place(b)
}

fn has_grown(was: &Diagnosed, now: &Diagnosed) -> bool {
    let twofold = |was: Option<f64>, now: Option<f64>| {
        was.zip(now).is_some_and(|(was, now)| now >= TWOFOLD * was && now > 0.0)
    };
    twofold(was.finding.rate, now.finding.rate) || twofold(was.finding.share, now.finding.share)
}
