//! The rate of a run over time: how steady it was, and so how exact its mean is.
//!
//! Taken from the reports of progress, which every engine makes a few times per second:
//!
//! ```text
//! warm-up    | window
//! r  r  r    | r    r    r    r    r ...     reports
//!            |   ^    ^    ^    ^            slices: from report to report; the first report of the window ends a slice
//!            |                               that began before it, so it is left out
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Progress;

/// Most slices kept; beyond, neighbours are merged. Higher: an hour's run has a series larger than its histograms.
/// Lower: slices of a long run hide its pauses.
const MAX_SLICES: usize = 600;

/// Transactions per second (one-way modes: sent) in consecutive slices of the window.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Series {
    /// Mean length of a slice, seconds.
    pub slice: f64,
    /// The rate in each slice, in order.
    pub tps: Vec<f64>,
}

impl Series {
    /// Both as one, slice by slice; none if their slices differ in length. They need not start at the same moment:
    /// their sum is as steady as both are.
    #[must_use]
    pub fn merged(self, other: &Self) -> Option<Self> {
        // Slices end at the first wake-up after their time is over.
        let alike = (self.slice / other.slice - 1.0).abs() < 0.2;
        let tps = self.tps.iter().zip(&other.tps).map(|(a, b)| a + b).collect();
        alike.then_some(Self { slice: self.slice, tps })
    }
}

/// Slices of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// Time of the last report in the window, seconds since its beginning.
    last: Option<f64>,
    /// Time that the slices cover, seconds.
    covered: f64,
    /// Reports per slice.
    each: usize,
    /// Rate and length of the reports that do not fill a slice yet.
    rest: Vec<(f64, f64)>,
    tps: Vec<f64>,
}

impl Slices {
    /// Adds a report of progress; those of the warm-up are ignored.
    pub(crate) fn add(&mut self, now: &Progress) {
        let elapsed = now.elapsed.as_secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        let Some(last) = self.last.replace(elapsed) else { return };
        if elapsed <= last || !now.tps.is_finite() {
            return;
        }
        self.rest.push((now.tps, elapsed - last));
        if self.rest.len() >= self.each.max(1) {
            let seconds: f64 = self.rest.iter().map(|(_, seconds)| seconds).sum();
            let done: f64 = self.rest.drain(..).map(|(tps, seconds)| tps * seconds).sum();
            self.tps.push(done / seconds);
            self.covered += seconds;
        }
        if self.tps.len() >= MAX_SLICES {
            self.tps = self.tps.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
            self.each = self.each.max(1) * 2;
        }
    }

    /// The series; none of fewer than two slices.
    pub(crate) fn series(self) -> Option<Series> {
        let slices = self.tps.len();
        (slices >= 2).then(|| Series { slice: self.covered / slices as f64, tps: self.tps })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slices(reports: impl Iterator<Item = (f64, f64)>) -> Option<Series> {
        let mut slices = Slices::default();
        for (elapsed, tps) in reports {
            slices.add(&Progress { elapsed: Duration::from_secs_f64(elapsed), tps, ..Progress::default() });
        }
        slices.series()
    }

    #[test]
    fn the_warm_up_and_what_overlaps_it_are_left_out() {
        let reports = [(0.0, 7.0), (0.0, 7.0), (0.1, 50.0), (0.3, 100.0), (0.5, 102.0), (0.7, 98.0)];
        let series = slices(reports.into_iter()).unwrap();
        let rounded: Vec<f64> = series.tps.iter().map(|tps| tps.round()).collect();
        assert_eq!(rounded, [100.0, 102.0, 98.0]);
        assert!((series.slice - 0.2).abs() < 1e-9);
        assert_eq!(slices(reports.into_iter().take(4)), None);
    }

    #[test]
    fn a_long_run_has_few_slices_of_the_same_mean() {
        let series = slices((1..=100_000).map(|i| (f64::from(i) * 0.2, f64::from(i % 2) * 10.0))).unwrap();
        assert!((MAX_SLICES / 2..MAX_SLICES).contains(&series.tps.len()), "{}", series.tps.len());
        let mean = series.tps.iter().sum::<f64>() / series.tps.len() as f64;
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
        assert!((series.slice * series.tps.len() as f64 / 20_000.0 - 1.0).abs() < 0.02, "{}", series.slice);
    }

    #[test]
    fn clients_of_one_load_add_up() {
        let one = Series { slice: 0.2, tps: vec![1.0, 2.0, 3.0] };
        let other = Series { slice: 0.21, tps: vec![10.0, 20.0] };
        assert_eq!(one.clone().merged(&other).unwrap().tps, [11.0, 22.0]);
        assert_eq!(one.merged(&Series { slice: 0.4, ..other }), None);
    }
}
