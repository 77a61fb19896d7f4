//! Where the level of a series changed: E-divisive means (Matteson and James 2014), as Hunter and Apache Otava use it.
//!
//! ```text
//! values   x x x x x x x x | x x x x x x x       the split with the largest distance between its sides
//!          └─── left ────┘   └── right ──┘
//! distance   2 mean|l - r| - mean|l - l'| - mean|r - r'|, weighted by n m / (n + m)
//! p          share of random orders of the same values whose best split is as far apart: chance alone
//! ```
//! A split that chance explains in at most [`ERROR`] of orders is a change; then each side is searched in the same way.
//! The test makes no assumption about the noise, and compares the best split with best splits, so that looking at every
//! place does no harm: of steady series, one in a hundred shows a change.
//!
//! The orders are pseudo-random with a fixed seed: a series always gives the same answer.

/// A change of level between two neighbours of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Probability of so large a distance by chance, from 1/1000.
    pub p: f64,
}

/// Largest probability of chance that a change may have. Higher: steady series show changes, as every split of every
/// series is a test. Lower: changes need more runs before they are shown.
pub const ERROR: f64 = 0.01;
/// Orders that are compared. Fewer: p is coarse, and changes depend on the seed. More: time, for digits that nobody
/// needs.
const ORDERS: usize = 999;
/// Fewest values on a side. Fewer: one odd run is a level. More: a change is seen later.
const FEWEST: usize = 3;
/// Seed of the orders; any will do.
const SEED: u64 = 0x7564_7061_7468;

/// The changes of level, in order. Values that are not finite are an error of the caller, and end the search without
/// any. Takes time in the square of the number of values, some thousand times over.
#[must_use]
pub fn changes(values: &[f64]) -> Vec<Change> {
    let mut found = Vec::new();
    if values.iter().all(|value| value.is_finite()) {
        search(values, 0, &mut found);
    }
    found.sort_by_key(|change| change.at);
    found
}

/// Searches values that begin at `offset` of the series.
fn search(values: &[f64], offset: usize, found: &mut Vec<Change>) {
    let mut orders: Vec<usize> = (0..values.len()).collect();
    let distances = Distances::new(values);
    let Some(best) = distances.best_split(&orders) else { return };
    // Equal values: the best of many equal distances of 0.
    if best.distance <= 0.0 {
        return;
    }
    let mut random = Random(SEED ^ ((offset as u64) << 32) ^ values.len() as u64);
    let most = (ERROR * (ORDERS + 1) as f64) as usize;
    // The order of the series itself is one of them.
    let mut as_far = 1;
    for _ in 0..ORDERS {
        random.shuffle(&mut orders);
        // Rounding differs between orders of the same values.
        let far = distances.best_split(&orders).is_some_and(|o| o.distance >= best.distance * (1.0 - 1e-9));
        as_far += usize::from(far);
        if as_far > most {
            return;
        }
    }
    found.push(Change { at: offset + best.at, p: as_far as f64 / (ORDERS + 1) as f64 });
    let (left, right) = values.split_at(best.at);
    search(left, offset, found);
    search(right, offset + best.at, found);
}

/// A split and the weighted distance of its sides.
struct Split {
    at: usize,
    distance: f64,
}

/// The distances between all pairs of values.
struct Distances {
    len: usize,
    between: Vec<f64>,
}

impl Distances {
    fn new(values: &[f64]) -> Self {
        let row = |a: &f64| values.iter().map(|b| (a - b).abs()).collect::<Vec<_>>();
        Self { len: values.len(), between: values.iter().flat_map(row).collect() }
    }

    /// The best split of the values in this order; none of fewer than two sides of [`FEWEST`].
    fn best_split(&self, order: &[usize]) -> Option<Split> {
        let len = self.len;
        // Sums over pairs: within the left side, within the right side, and all of them.
        let (mut left, mut right) = (0.0, 0.0);
        for (at, of) in order.iter().enumerate() {
            let row = self.between.get(of * len..(of + 1) * len)?;
            right += order[at + 1..].iter().map(|other| row[*other]).sum::<f64>();
        }
        let all = right;
        let mut best: Option<Split> = None;
        for (at, of) in order.iter().enumerate() {
            if at >= FEWEST && len - at >= FEWEST {
                let (n, m) = (at as f64, (len - at) as f64);
                let across = all - left - right;
                let apart =
                    2.0 * across / (n * m) - left * 2.0 / (n * (n - 1.0)) - right * 2.0 / (m * (m - 1.0));
                let distance = apart * n * m / (n + m);
                if best.as_ref().is_none_or(|best| distance > best.distance) {
                    best = Some(Split { at, distance });
                }
            }
            // The value moves from the right side to the left one.
            let row = self.between.get(of * len..(of + 1) * len)?;
            left += order[..at].iter().map(|other| row[*other]).sum::<f64>();
            right -= order[at + 1..].iter().map(|other| row[*other]).sum::<f64>();
        }
        best
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Fisher and Yates. A remainder prefers small numbers by less than one in 2^50.
    fn shuffle(&mut self, list: &mut [usize]) {
        for end in (1..list.len()).rev() {
            list.swap(end, (self.next() % (end as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `lengths.len()` levels, with noise of 1 %.
    fn series(random: &mut Random, levels: &[(usize, f64)], odd: f64) -> Vec<f64> {
        let mut uniform = || (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut value = |level: f64| {
            // Box and Muller; now and then a neighbour takes a tenth.
            let (u, v, w) = (uniform().max(1e-300), uniform(), uniform());
            let noise = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            level.ln() + 0.01 * noise - if w < odd { 0.1 } else { 0.0 }
        };
        levels
            .iter()
            .flat_map(|(len, level)| (0..*len).map(|_| *level).collect::<Vec<_>>())
            .map(&mut value)
            .collect()
    }

    #[test]
    fn a_shift_of_two_per_cent_is_found_at_one_per_cent_of_noise() {
        let mut random = Random(1);
        for (levels, near) in [([(15, 1.0), (15, 1.02)], 3), ([(20, 1.0), (10, 0.98)], 3)] {
            let found = (0..200).filter(|_| {
                let found = changes(&series(&mut random, &levels, 0.0));
                found.iter().any(|change| change.at.abs_diff(levels[0].0) <= near && change.p <= ERROR)
            });
            let found = found.count();
            assert!(found >= 160, "{found} of 200 for {levels:?}");
        }
    }

    #[test]
    fn steady_series_show_nothing() {
        let mut random = Random(2);
        for (len, odd) in [(10, 0.0), (30, 0.0), (30, 0.1), (80, 0.03)] {
            let quiet =
                (0..200).filter(|_| changes(&series(&mut random, &[(len, 1.0)], odd)).is_empty()).count();
            assert!(quiet >= 190, "{quiet} of 200 at {len} runs, {odd} odd ones");
        }
    }

    #[test]
    fn several_changes_are_found_in_order() {
        let mut random = Random(3);
        let values = series(&mut random, &[(20, 1.0), (20, 1.1), (20, 0.95)], 0.0);
        let found = changes(&values);
        assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [20, 40], "{found:?}");
        assert!(found.iter().all(|change| (0.001..=ERROR).contains(&change.p)));
        // The same each time.
        assert_eq!(changes(&values), found);
    }

    #[test]
    fn short_equal_and_odd_series() {
        assert_eq!(changes(&[]), []);
        assert_eq!(changes(&[1.0, 2.0]), []);
        // So few values that every order is as likely as one in twenty.
        assert_eq!(changes(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0]), []);
        assert_eq!(changes(&[4.0; 50]), []);
        assert_eq!(changes(&[f64::NAN; 50]), []);
        let step: Vec<f64> = [1.0; 8].into_iter().chain([2.0; 8]).collect();
        assert_eq!(changes(&step), [Change { at: 8, p: 0.001 }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Places leave three values on each side, ascend, and do not depend on the scale of the series.
        #[test]
        fn changes_are_places_within_the_series(values in prop::collection::vec(0.0..1.0_f64, 0..40)) {
            let found = changes(&values);
            let mut last = 0;
            for change in &found {
                prop_assert!(change.at >= last + FEWEST && change.at + FEWEST <= values.len());
                prop_assert!(change.p > 0.0 && change.p <= ERROR);
                last = change.at;
            }
            // A power of two, so that no digit is lost.
            let scaled: Vec<f64> = values.iter().map(|value| value * 4.0).collect();
            prop_assert_eq!(changes(&scaled), found);
        }

        /// A step far above the noise is found where it is.
        #[test]
        fn a_large_step_is_found(
            left in prop::collection::vec(0.0..1.0_f64, 6..20),
            right in prop::collection::vec(0.0..1.0_f64, 6..20),
            step in 20.0..100.0_f64,
        ) {
            let values: Vec<f64> = left.iter().copied().chain(right.iter().map(|value| value + step)).collect();
            prop_assert!(changes(&values).iter().any(|change| change.at == left.len()), "{:?}", changes(&values));
        }
    }
}
