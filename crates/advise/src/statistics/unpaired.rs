//! The statistics of two measurements that were not interleaved: two files, or the runs before and after a date.
//!
//! ```text
//! samples of A  ─▸ Figure: ln, its error, degrees of freedom ─┐
//! samples of B  ─▸ Figure                                     ┴▸ Unpaired: B / A with its interval (Welch 1947, Yuen 1974)
//! ```
//! A figure's error is what its own measurement shows: the scatter of trials or of slices of a run, the chance of a
//! sampler, the rank of a percentile. What differs from one run to the next - the memory layout of a process, the CPU a
//! flow's hash selects, a neighbour of a virtual machine - is in none of these. So the interval is that of the two
//! measurements, and a verdict asks it to leave 1 by more than two equal runs differ: its [`Allowance`].

use super::ratio::{Ratio, Verdict};

use super::{Estimate, VERDICT_ERROR};

/// Two-sided error of the interval. Nothing here looks at the data repeatedly, so it is the 5 % that it is called.
const INTERVAL_ERROR: f64 = 0.05;
/// Degrees of freedom of an error that is computed and not estimated from a scatter: Student's t is then the normal
/// distribution.
const KNOWN: f64 = 1e6;
/// Most batches that a series is cut into. More: neighbouring slices are alike, and the error comes out too small.
/// Fewer: the quantile of Student's t makes the interval wide.
const MAX_BATCHES: usize = 20;
/// Shortest batch, seconds: a pause of the scheduler or of a neighbour lasts tens to hundreds of milliseconds, and must
/// not reach into many batches.
const SHORTEST_BATCH: f64 = 1.0;

/// By how much a figure of two equal runs may differ, as a share: a verdict needs a larger difference.
///
/// Lower: runs of the same program are called worse. Higher: real losses of that size pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance(pub f64);

/// A positive figure: its logarithm with its error.
#[derive(Debug, Clone, Copy)]
pub struct Figure(Estimate);

impl Figure {
    /// The trimmed mean of independent samples; none of fewer than three, or if one is not positive.
    #[must_use]
    pub fn of_samples(samples: &[f64]) -> Option<Self> {
        let mut logs = samples.iter().map(|value| logarithm(*value)).collect::<Option<Vec<f64>>>()?;
        logs.sort_by(f64::total_cmp);
        Estimate::trimmed(&logs).map(Self)
    }

    /// The mean of a series of slices of `slice` seconds each, by batches of at least a second: slices that follow each
    /// other are alike, batches hardly. None of fewer than three batches.
    #[must_use]
    pub fn of_series(values: &[f64], slice: f64) -> Option<Self> {
        if !(slice > 0.0 && slice.is_finite()) {
            return None;
        }
        let each =
            ((SHORTEST_BATCH / slice).round().max(1.0) as usize).max(values.len().div_ceil(MAX_BATCHES));
        let batches: Vec<f64> =
            values.chunks_exact(each).map(|batch| batch.iter().sum::<f64>() / each as f64).collect();
        Self::of_samples(&batches)
    }

    /// A figure in proportion to a number of independent events, such as a sampler's samples: its relative error is one
    /// over the square root of their number.
    #[must_use]
    pub fn of_events(value: f64, events: f64) -> Option<Self> {
        let error = 1.0 / events.sqrt();
        (error > 0.0 && error.is_finite()).then_some(())?;
        Some(Self(Estimate { middle: logarithm(value)?, error, freedom: KNOWN }))
    }

    /// The quantile `share` (0 to 1) of a histogram (highest value of a bucket, count), values ascending: its error is
    /// half the distance of the values one standard deviation of its rank below and above it. None if so few values lie
    /// beyond that it is no more than the extreme one.
    #[must_use]
    pub fn of_quantile(histogram: &[(u64, u64)], share: f64) -> Option<Self> {
        let count = histogram.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n)) as f64;
        let spread = (count * share * (1.0 - share)).sqrt();
        let rank = count * share;
        if spread < 1.0 || rank + spread >= count {
            return None;
        }
        let at = |rank: f64| {
            let mut seen = 0.0;
            let mut buckets = histogram.iter();
            buckets.find(|(_, n)| {
                seen += *n as f64;
                seen >= rank
            })
        };
        let value = |rank: f64| logarithm(at(rank.max(1.0))?.0 as f64);
        let (low, middle, high) = (value(rank - spread)?, value(rank)?, value(rank + spread)?);
        // A histogram knows a value to the width of its bucket, under 1 %.
        let error = ((high - low) / 2.0).max(0.005);
        Some(Self(Estimate { middle, error, freedom: KNOWN }))
    }

    /// Its standard error, as a share.
    #[must_use]
    pub const fn error(&self) -> f64 {
        self.0.error
    }
}

fn logarithm(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then(|| value.ln())
}

/// B over A.
#[derive(Debug, Clone, Copy)]
pub struct Unpaired(Estimate);

impl Unpaired {
    /// Compares two figures.
    #[must_use]
    pub fn new(a: Figure, b: Figure) -> Self {
        let (Figure(a), Figure(b)) = (a, b);
        let (va, vb) = (a.error.powi(2), b.error.powi(2));
        // Welch and Satterthwaite; without any scatter there is nothing to weigh.
        let freedom = (va + vb).powi(2) / (va.powi(2) / a.freedom + vb.powi(2) / b.freedom);
        let freedom = if freedom.is_finite() { freedom.clamp(1.0, KNOWN) } else { a.freedom.min(b.freedom) };
        Self(Estimate { middle: b.middle - a.middle, error: (va + vb).sqrt(), freedom })
    }

    /// The ratio with its 95 % interval.
    #[must_use]
    pub fn interval(&self) -> Ratio {
        self.0.ratio(INTERVAL_ERROR)
    }

    /// [`Verdict::Better`] if B is shown to be higher by more than the allowance, [`Verdict::Worse`] if lower. For a
    /// cost, see [`of_cost`].
    #[must_use]
    pub fn verdict(&self, allowance: Allowance) -> Verdict {
        self.0.verdict_beyond(allowance.0, VERDICT_ERROR)
    }
}

/// The verdict on a figure of which less is better.
#[must_use]
pub const fn of_cost(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Better => Verdict::Worse,
        Verdict::Worse => Verdict::Better,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Random;
    use super::*;

    /// A run of `seconds` at 1000 per second: slices of 0.2 s with 2 % of noise, half of it kept from slice to slice.
    fn run(random: &mut Random, seconds: usize, rate: f64) -> Figure {
        let mut drift = 0.0;
        let slices: Vec<f64> = (0..seconds * 5)
            .map(|_| {
                drift = 0.5 * drift + 0.02 * random.normal();
                rate * (1.0 + drift)
            })
            .collect();
        Figure::of_series(&slices, 0.2).unwrap()
    }

    #[test]
    fn intervals_of_a_series_hold_the_truth() {
        let mut random = Random(7);
        for seconds in [5, 10, 60] {
            let covered = (0..500).filter(|_| {
                let compared =
                    Unpaired::new(run(&mut random, seconds, 1000.0), run(&mut random, seconds, 1100.0));
                let Ratio { low, high, .. } = compared.interval();
                (low..=high).contains(&1.1)
            });
            let covered = covered.count();
            assert!(covered >= 460, "{covered} of 500 at {seconds} s");
        }
    }

    #[test]
    fn equal_runs_are_not_told_apart_and_a_tenth_less_is() {
        let mut random = Random(8);
        let mut verdict = |b: f64| {
            let compared = Unpaired::new(run(&mut random, 10, 1000.0), run(&mut random, 10, b));
            compared.verdict(Allowance(0.03))
        };
        assert!((0..500).all(|_| verdict(1000.0) == Verdict::NotShown));
        let worse = (0..500).filter(|_| verdict(900.0) == Verdict::Worse).count();
        assert!(worse >= 400, "{worse} of 500");
        let better = (0..500).filter(|_| verdict(1150.0) == Verdict::Better).count();
        assert!(better >= 400, "{better} of 500");
    }

    #[test]
    fn a_percentile_is_as_exact_as_its_rank() {
        let uniform: Vec<(u64, u64)> = (1_000..2_000).map(|value| (value, 10)).collect();
        let median = Figure::of_quantile(&uniform, 0.5).unwrap();
        assert!((median.0.middle.exp() - 1500.0).abs() < 2.0);
        // Of 10,000 values, the rank of the median varies by 50: 5 of 1500 in value, below a bucket's width.
        assert!((median.0.error - 0.005).abs() < 1e-9);
        let few: Vec<(u64, u64)> = (1_000..2_000).step_by(10).map(|value| (value, 1)).collect();
        assert!((Figure::of_quantile(&few, 0.5).unwrap().0.error - 50.0 / 1500.0).abs() < 0.005);
        // One value of a hundred lies beyond the 99th percentile: that is an extreme, not a figure.
        assert!(Figure::of_quantile(&few, 0.99).is_none());
        assert!(Figure::of_quantile(&[], 0.5).is_none());
        assert!(Figure::of_quantile(&[(0, 100)], 0.5).is_none());
    }

    #[test]
    fn events_err_by_their_square_root() {
        let (a, b) = (Figure::of_events(100.0, 400.0).unwrap(), Figure::of_events(150.0, 400.0).unwrap());
        let Ratio { ratio, low, .. } = Unpaired::new(a, b).interval();
        assert!((ratio - 1.5).abs() < 1e-9);
        assert!((1.5_f64.ln() - low.ln() - 1.96 * (2.0_f64 / 400.0).sqrt()).abs() < 1e-3, "{low}");
        assert!(Figure::of_events(100.0, 0.0).is_none());
    }

    #[test]
    fn figures_that_are_none_give_no_verdict() {
        for bad in [&[1.0, 2.0][..], &[0.0, 0.0, 0.0], &[1.0, f64::NAN, 1.0], &[-1.0, 1.0, 1.0]] {
            assert!(Figure::of_samples(bad).is_none(), "{bad:?}");
        }
        assert!(Figure::of_series(&[1.0; 100], 0.0).is_none());
        assert!(Figure::of_series(&[1.0; 10], 0.2).is_none());
        // Equal to the last digit: no scatter, and no verdict of it.
        let same = Figure::of_samples(&[5.0; 4]).unwrap();
        assert_eq!(Unpaired::new(same, same).verdict(Allowance(0.0)), Verdict::NotShown);
    }
}
