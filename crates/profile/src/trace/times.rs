//! Counts and durations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Durations of one kind: count, total and distribution. Two can be added.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Times {
    /// Count.
    pub count: u64,
    /// Total, nanoseconds.
    pub ns: u64,
    /// The longest, nanoseconds.
    pub longest_ns: u64,
    /// By duration, shortest first; empty ranges are left out.
    pub lengths: Vec<Length>,
}

/// Durations in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Length {
    /// Upper bound of the range, nanoseconds, exclusive; the lower bound is half of it or, for delays, 15/16. The first
    /// range has all shorter durations, the last one all longer ones.
    pub below_ns: u64,
    /// Count.
    pub count: u64,
}

impl Times {
    /// From buckets and the end of each.
    pub(super) fn new(count: u64, ns: u64, longest_ns: u64, buckets: &[u64], end: fn(usize) -> u64) -> Self {
        let filled = buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let lengths = filled.map(|(at, count)| Length { below_ns: end(at), count: *count }).collect();
        Self { count, ns, longest_ns, lengths }
    }

    /// Adds others of the same kind.
    pub fn add(&mut self, other: &Self) {
        // A file may contain any values.
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for length in &other.lengths {
            match self.lengths.binary_search_by_key(&length.below_ns, |known| known.below_ns) {
                Ok(at) => {
                    let count = &mut self.lengths[at].count;
                    *count = count.saturating_add(length.count);
                }
                Err(at) => self.lengths.insert(at, *length),
            }
        }
    }

    /// Those that were added after `earlier`, a reading of the same counts. The longest of them is only known to a
    /// range's width.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |below: u64| {
            earlier.lengths.iter().find(|length| length.below_ns == below).map_or(0, |of| of.count)
        };
        let lengths = self.lengths.iter().filter_map(|length| {
            let count = length.count.saturating_sub(before(length.below_ns));
            (count > 0).then_some(Length { count, ..*length })
        });
        let lengths: Vec<Length> = lengths.collect();
        Self {
            count: self.count.saturating_sub(earlier.count),
            ns: self.ns.saturating_sub(earlier.ns),
            longest_ns: lengths.last().map_or(0, |last| last.below_ns.min(self.longest_ns)),
            lengths,
        }
    }

    /// The mean, nanoseconds; 0 if empty.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.ns as f64 / self.count as f64 }
    }

    /// The duration that this share of the durations (0 to 1) does not exceed, nanoseconds, to the width of a range;
    /// `None` if empty.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let all = self.lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(length.count));
        let wanted = (share.clamp(0.0, 1.0) * all as f64).ceil().max(1.0) as u64;
        let mut counted = 0_u64;
        let found = self.lengths.iter().find(|length| {
            counted = counted.saturating_add(length.count);
            counted >= wanted
        });
        found.map(|length| length.below_ns.min(self.longest_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(buckets: &[u64], ns: u64, longest: u64) -> Times {
        Times::new(buckets.iter().sum(), ns, longest, buckets, |at| 100 << at)
    }

    #[test]
    fn times_are_added_by_length() {
        let mut sum = times(&[1, 0, 2], 700, 350);
        sum.add(&times(&[0, 3, 1], 900, 300));
        assert_eq!((sum.count, sum.ns, sum.longest_ns), (7, 1600, 350));
        let lengths: Vec<_> = sum.lengths.iter().map(|length| (length.below_ns, length.count)).collect();
        assert_eq!(lengths, [(100, 1), (200, 3), (400, 3)]);
    }

    #[test]
    fn what_was_added_since_is_the_rest() {
        let earlier = times(&[1, 0, 2], 700, 350);
        let mut later = earlier.clone();
        later.add(&times(&[2, 3], 500, 180));
        assert_eq!(later.since(&earlier), times(&[2, 3], 500, 200));
        assert_eq!(later.since(&later), Times::default());
    }

    #[test]
    fn quantiles_are_of_the_lengths() {
        let found = times(&[5, 4, 1], 1700, 390);
        assert_eq!(found.quantile_ns(0.5), Some(100));
        assert_eq!(found.quantile_ns(0.51), Some(200));
        assert_eq!(found.quantile_ns(0.0), Some(100));
        assert_eq!(found.quantile_ns(1.0), Some(390));
        assert!((found.mean_ns() - 170.0).abs() < 1e-9);
        assert_eq!((Times::default().quantile_ns(0.5), Times::default().mean_ns()), (None, 0.0));
    }
}
