//! Axes: map a value to a position on the chart, and provide its tick marks.
//!
//! ```text
//! linear      0 ----- 200 k ----- 400 k ----- 600 k          steps of 1, 2 or 5 times a power of ten
//! log         10 -- 20 -- 50 -- 100 -- 200 -- 500            the same marks, equal factors at equal distances
//! percentile  0 ---- 90 ---- 99 ---- 99.9 ---- 99.99         -log10(1 - p): each nine takes the same space
//! ```
//! All of them clamp: whatever a file contains, a position is on the chart.

/// A linear axis from 0 to a round number.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    top: f64,
    step: f64,
}

impl Linear {
    /// Covers 0..=`highest` with about `ticks` steps; `highest` at or below 0, or not finite, counts as 1.
    pub(crate) fn to(highest: f64, ticks: u32) -> Self {
        // Beyond these bounds, the steps are no longer finite.
        let highest = if highest.is_finite() && highest > 0.0 { highest.clamp(1e-12, 1e24) } else { 1.0 };
        let rough = highest / f64::from(ticks.max(1));
        let decade = 10.0_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .iter()
            .map(|m| m * decade)
            .find(|s| *s >= rough * 0.999_999)
            .unwrap_or(rough);
        Self { top: (highest / step * 0.999_999).ceil().max(1.0) * step, step }
    }

    /// Position of `value`, 0..=1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        clamp(value / self.top)
    }

    /// The tick values, ascending, both ends included.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        (0..=(self.top / self.step).round() as u32).map(|i| f64::from(i) * self.step).collect()
    }
}

/// A logarithmic axis between two marks of the 1-2-5 series.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    low: f64,
    high: f64,
}

impl Log {
    /// Covers `lowest`..=`highest`; a value that is not positive counts as 1.
    pub(crate) fn between(lowest: f64, highest: f64) -> Self {
        let sane = |v: f64| if v.is_finite() && v > 0.0 { v.clamp(1e-12, 1e24) } else { 1.0 };
        let (lowest, highest) = (sane(lowest.min(highest)), sane(lowest.max(highest)));
        let low = marks(lowest / 10.0, lowest * 1.000_001).last().copied().unwrap_or(lowest);
        let high = marks(highest * 0.999_999, highest * 10.0).first().copied().unwrap_or(highest);
        Self { low, high: if high > low { high } else { low * 2.0 } }
    }

    /// Position of `value`, 0..=1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        clamp((value.max(self.low) / self.low).ln() / (self.high / self.low).ln())
    }

    /// The tick values, ascending, at most `most`: 1-2-5, or powers of ten, or fewer of those.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        let all = marks(self.low, self.high);
        if all.len() <= most {
            return all;
        }
        let is_decade = |v: f64| (v.log10() - v.log10().round()).abs() < 1e-6;
        let decades: Vec<f64> = all.into_iter().filter(|v| is_decade(*v)).collect();
        let every = decades.len().div_ceil(most).max(1);
        decades.into_iter().step_by(every).collect()
    }
}

/// All 1-2-5 marks in `low..=high`.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * 10.0_f64.powi(decade)))
        .filter(|v| (low * 0.999_999..=high * 1.000_001).contains(v))
        .collect()
}

/// The axis of a latency curve: percentiles, each further nine at the same distance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Percentiles {
    nines: u32,
}

impl Percentiles {
    /// As many nines as `count` values support, 2 to 5: of 1,000 values, one is beyond 99.9 %. One in a million depends
    /// more on the machine than on the service, and would squeeze the rest into a corner.
    pub(crate) fn of(count: u64) -> Self {
        Self { nines: count.max(1).ilog10().clamp(2, 5) }
    }

    /// Position of the share `p` of values at or below, 0..=1; p beyond the last nine is at the end.
    pub(crate) fn place(self, p: f64) -> f64 {
        let above = (1.0 - p).clamp(1e-12, 1.0);
        clamp(-above.log10() / f64::from(self.nines))
    }

    /// The ticks: 0, 50 %, 90 %, 99 %, ... each with its label.
    pub(crate) fn ticks(self) -> Vec<(f64, String)> {
        let mut ticks = vec![(0.0, "0 %".to_owned()), (0.5, "50 %".to_owned())];
        ticks.extend((1..=self.nines).map(|n| (1.0 - 0.1_f64.powi(n as i32), crate::units::percentile(n))));
        ticks
    }
}

fn clamp(place: f64) -> f64 {
    if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_cover() {
        assert_eq!(
            Linear::to(869_000.0, 5).ticks(),
            [0.0, 200_000.0, 400_000.0, 600_000.0, 800_000.0, 1_000_000.0]
        );
        assert_eq!(Linear::to(100.0, 4).ticks(), [0.0, 50.0, 100.0]);
        assert_eq!(Linear::to(1.0, 5).ticks().len(), 6);
        for silly in [f64::MAX, f64::MIN_POSITIVE] {
            assert!((2..=7).contains(&Linear::to(silly, 5).ticks().len()));
        }
        for silly in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Linear::to(silly, 5).ticks().last(), Some(&1.0));
        }
        for highest in [1e-9, 0.3, 7.0, 999.0, 123_456.0, 9.9e20] {
            let axis = Linear::to(highest, 5);
            assert!((2..=7).contains(&axis.ticks().len()), "{highest}: {:?}", axis.ticks());
            assert!(*axis.ticks().last().unwrap() >= highest * 0.999_99);
        }
    }

    #[test]
    fn places_stay_within_the_drawing() {
        let (linear, log) = (Linear::to(10.0, 5), Log::between(10.0, 1000.0));
        for value in [-1.0, 0.0, 5.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for place in [linear.place(value), log.place(value), Percentiles::of(1000).place(value)] {
                assert!((0.0..=1.0).contains(&place), "{value} -> {place}");
            }
        }
        assert_eq!(linear.place(5.0), 0.5);
        assert!((log.place(100.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn log_marks_are_one_two_five_until_there_are_too_many() {
        assert_eq!(Log::between(120.0, 900.0).ticks(8), [100.0, 200.0, 500.0, 1000.0]);
        let wide = Log::between(3.0, 4e8).ticks(5);
        assert!(wide.len() <= 5 && wide.iter().all(|v| (v.log10() % 1.0).abs() < 1e-9), "{wide:?}");
        let point = Log::between(500.0, 500.0);
        assert!(point.ticks(5).len() >= 2, "{:?}", point.ticks(5));
        let silly = Log::between(0.0, f64::NAN);
        assert!(silly.ticks(5).iter().all(|v| v.is_finite()));
    }

    #[test]
    fn each_nine_takes_the_same_space() {
        let axis = Percentiles::of(1_500_000);
        assert_eq!(axis.ticks().last().unwrap().1, "99.999 %");
        let step = axis.place(0.99) - axis.place(0.9);
        assert!((axis.place(0.999) - axis.place(0.99) - step).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1.0)), (0.0, 1.0));
        assert_eq!(Percentiles::of(0).ticks().len(), 4);
    }
}
