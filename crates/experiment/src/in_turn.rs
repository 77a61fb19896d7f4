//! Many cases measured in turn, forwards and backwards, so that any two of them make interleaved blocks A B B A.
//!
//! ```text
//!   round      a b c d   d c b a     a b c d   d c b a ...
//!   block of a and c:  a   c c   a   ...               one pass forwards and one backwards
//! ```
//! Two cases far apart in the list drift more within a block than two in turn would; their intervals show it.

use std::collections::BTreeMap;

use udpath_advise::result::Ratio;
use udpath_advise::statistics::{Bound, Comparison, FEWEST_BLOCKS, median};

use crate::description::Description;
use crate::entry::{CaseFound, Error, RatioFound};
use crate::outcome::Measured;
use crate::threads::quantile;

/// What the trials of all cases gave: two figures per block of each. Larger is better.
#[derive(Debug, Default)]
pub(crate) struct Trials(BTreeMap<String, Vec<[f64; 2]>>);

/// Measures every case `blocks` times forwards and backwards.
///
/// # Errors
/// The first error of a measurement.
pub(crate) fn in_turn(
    cases: &[&str],
    blocks: usize,
    mut measure: impl FnMut(&str, usize) -> Result<f64, Error>,
) -> Result<Trials, Error> {
    let mut trials = Trials::default();
    for block in 0..blocks {
        let mut forwards = Vec::with_capacity(cases.len());
        for (place, case) in cases.iter().enumerate() {
            forwards.push(measure(case, 2 * block * cases.len() + place)?);
        }
        for (place, case) in cases.iter().enumerate().rev() {
            let back = measure(case, (2 * block + 2) * cases.len() - 1 - place)?;
            trials.0.entry((*case).to_owned()).or_default().push([forwards[place], back]);
        }
    }
    Ok(trials)
}

impl Trials {
    /// All figures of a case.
    fn figures(&self, case: &str) -> Vec<f64> {
        self.0.get(case).into_iter().flatten().flatten().copied().collect()
    }

    /// The median of a case's trials.
    #[must_use]
    pub(crate) fn median(&self, case: &str) -> Option<f64> {
        median(self.figures(case))
    }

    /// A case's figure with its quartiles.
    #[must_use]
    pub(crate) fn measured(&self, case: &str) -> Option<Measured> {
        let figures = self.figures(case);
        let [low, high] = [0.25, 0.75].map(|at| quantile(figures.clone(), at));
        Some(Measured { median: median(figures.clone())?, low, high, trials: figures.len() })
    }

    /// `of` over `to`, with its 95 % interval; with too few blocks for one, the range of the blocks.
    #[must_use]
    pub(crate) fn ratio(&self, of: &str, to: &str) -> Option<Ratio> {
        let (ofs, tos) = (self.0.get(of)?, self.0.get(to)?);
        let blocks = ofs.len().min(tos.len());
        let mut comparison = Comparison::new(Bound::new(0.01, blocks.max(FEWEST_BLOCKS)).ok()?);
        let mut alone = Vec::new();
        for ([b1, b2], [a1, a2]) in ofs.iter().zip(tos) {
            // A figure that is not a number is a mistake of the meter: the block is not used.
            if comparison.push_block([*a1, *b1, *b2, *a2]).is_ok() {
                alone.push(((b1 * b2) / (a1 * a2)).sqrt());
            }
        }
        comparison.interval().or_else(|| {
            let [low, ratio, high] = [0.0, 0.5, 1.0].map(|at| quantile(alone.clone(), at));
            ratio.is_finite().then_some(Ratio { ratio, low, high })
        })
    }

    /// The cases of a description that were measured, each with what `limited_by` knows.
    pub(crate) fn cases(
        &self,
        description: &Description,
        mut limited_by: impl FnMut(&str) -> Option<String>,
    ) -> BTreeMap<String, CaseFound> {
        let found = description.cases.iter().filter_map(|case| {
            let measured = self.measured(&case.id)?;
            let limited_by = limited_by(&case.id);
            Some((case.id.clone(), CaseFound { measured, cpu: None, limited_by }))
        });
        found.collect()
    }

    /// The comparisons of a description whose cases were measured, each with the cause that `cause` measured.
    pub(crate) fn ratios(
        &self,
        description: &Description,
        mut cause: impl FnMut(&str, &str) -> Option<String>,
    ) -> BTreeMap<(String, String), RatioFound> {
        let found = description.comparisons.iter().filter_map(|pair| {
            let ratio = self.ratio(&pair.of, &pair.to)?;
            let cause = cause(&pair.of, &pair.to);
            Some(((pair.of.clone(), pair.to.clone()), RatioFound { ratio, cause }))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_cases_make_blocks() {
        let mut turns = String::new();
        let trials = in_turn(&["a", "b", "c"], 3, |case, turn| {
            assert_eq!(turn, turns.len());
            turns.push_str(case);
            // An even drift, and three cases with ratios of 2.
            let drift = 1.0 + turn as f64 / 100.0;
            Ok(drift
                * match case {
                    "a" => 100.0,
                    "b" => 200.0,
                    _ => 400.0,
                })
        })
        .unwrap();
        assert_eq!(turns, "abccbaabccbaabccba");
        for (of, to, wanted) in [("b", "a", 2.0), ("c", "a", 4.0), ("a", "c", 0.25)] {
            let ratio = trials.ratio(of, to).unwrap();
            assert!((ratio.ratio / wanted - 1.0).abs() < 0.01, "{of}/{to} {ratio:?}");
            assert!(ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
        }
        assert_eq!(trials.measured("a").unwrap().trials, 6);
        assert!(trials.ratio("a", "d").is_none() && trials.measured("d").is_none());
    }

    #[test]
    fn one_block_has_a_ratio_without_an_interval() {
        let trials = in_turn(&["a", "b"], 1, |case, _| Ok(if case == "a" { 10.0 } else { 5.0 })).unwrap();
        assert_eq!(trials.ratio("b", "a"), Some(Ratio { ratio: 0.5, low: 0.5, high: 0.5 }));
    }
}
