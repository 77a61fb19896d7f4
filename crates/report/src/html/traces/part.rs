//! The elements of a trace's part of the page: charts of durations, tables of counts.

use std::collections::BTreeMap;

use udpath_profile::trace::Times;

use crate::svg::histogram::{self, Bar, Chart, Row};
use crate::{svg, units};

/// The result of one source.
pub(in crate::html) struct TracePart {
    pub(in crate::html) title: &'static str,
    pub(in crate::html) about: String,
    /// Each chart drawn for a wide page and for a phone.
    pub(in crate::html) charts: Vec<String>,
    pub(in crate::html) tables: Vec<TraceTable>,
}

pub(in crate::html) struct TraceTable {
    pub(in crate::html) caption: &'static str,
    pub(in crate::html) headings: Vec<TraceCell>,
    pub(in crate::html) rows: Vec<Vec<TraceCell>>,
}

/// A cell: text is left-aligned, figures are right-aligned.
pub(in crate::html) struct TraceCell {
    pub(in crate::html) text: String,
    pub(in crate::html) is_text: bool,
}

/// Most rows of a chart. Higher: a chart of many CPUs is longer than a screen; the table has all of them.
pub(super) const ROWS: usize = 8;

impl TracePart {
    /// Replaces everything by a sentence if there is nothing to show.
    pub(super) fn or_nothing(self, nothing: bool, sentence: &str) -> Self {
        if !nothing {
            return self;
        }
        Self { title: self.title, about: sentence.to_owned(), charts: Vec::new(), tables: Vec::new() }
    }
}

pub(super) fn text(text: String) -> TraceCell {
    TraceCell { text, is_text: true }
}

pub(super) fn figure(text: String) -> TraceCell {
    TraceCell { text, is_text: false }
}

/// Headings of rows that contain [`spread`].
pub(super) fn headings(first: &[(&str, bool)], sums: &[&str], last: &[(&str, bool)]) -> Vec<TraceCell> {
    let cell =
        |(heading, is_text): &(&str, bool)| TraceCell { text: (*heading).to_owned(), is_text: *is_text };
    let figures = ["p50", "p99", "longest"].iter().chain(sums).map(|heading| figure((*heading).to_owned()));
    first.iter().map(cell).chain(figures).chain(last.iter().map(cell)).collect()
}

/// Median, 99th percentile and maximum.
pub(super) fn spread(times: &Times) -> [TraceCell; 3] {
    let [half, most] = [0.5, 0.99].map(|share| {
        figure(times.quantile_ns(share).map_or_else(|| units::NONE.to_owned(), |ns| units::time(ns as f64)))
    });
    [half, most, figure(units::time(times.longest_ns as f64))]
}

/// Both drawings; empty if there is nothing to draw.
pub(super) fn picture(chart: &Chart<'_>, rows: impl Iterator<Item = Row>) -> Vec<String> {
    let rows: Vec<Row> = rows.filter(|row| !row.bars.is_empty()).take(ROWS).collect();
    if rows.is_empty() { Vec::new() } else { vec![svg::both(|paper| histogram::draw(chart, &rows, paper))] }
}

pub(super) fn timed(name: String, times: &Times) -> Row {
    let marks: Vec<u64> = [0.5, 0.99].into_iter().filter_map(|share| times.quantile_ns(share)).collect();
    let note = match marks.as_slice() {
        [half, most] => format!("p50 {}, p99 {}", units::time(*half as f64), units::time(*most as f64)),
        _ => String::new(),
    };
    Row { name, note, bars: doublings(times), marks: marks.into_iter().map(|ns| ns as f64).collect() }
}

/// Durations as bars of one doubling each, since some sources have finer buckets. An open bucket ends at the maximum.
fn doublings(times: &Times) -> Vec<Bar> {
    let mut bars: BTreeMap<u32, u64> = BTreeMap::new();
    for length in &times.lengths {
        let below = length.below_ns.min(times.longest_ns.max(1));
        let exponent = u64::BITS - below.saturating_sub(1).leading_zeros();
        let count = bars.entry(exponent).or_default();
        *count = count.saturating_add(length.count);
    }
    let bar = |(exponent, count): (u32, u64)| {
        let to = 2.0_f64.powi(exponent.cast_signed());
        Bar { from: to / 2.0, to, count }
    };
    bars.into_iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use udpath_profile::trace::Length;

    use super::*;

    fn times(lengths: &[(u64, u64)], longest_ns: u64) -> Times {
        let lengths: Vec<Length> =
            lengths.iter().map(|&(below_ns, count)| Length { below_ns, count }).collect();
        let count = lengths.iter().map(|length| length.count).sum();
        Times { count, ns: 0, longest_ns, lengths }
    }

    #[test]
    fn finer_lengths_are_joined_to_doublings() {
        let bars = doublings(&times(&[(136, 1), (256, 2), (272, 4), (512, 8)], 500));
        let told: Vec<_> = bars.iter().map(|bar| (bar.from, bar.to, bar.count)).collect();
        // 256 and below belong to 128..256.
        assert_eq!(told, [(128.0, 256.0, 3), (256.0, 512.0, 12)]);
    }

    #[test]
    fn an_open_bucket_ends_at_the_maximum() {
        let bars = doublings(&times(&[(u64::MAX, 3)], 1000));
        assert_eq!(bars, [Bar { from: 512.0, to: 1024.0, count: 3 }]);
        assert_eq!(doublings(&times(&[(1, 1)], 0))[0].to, 1.0);
    }
}
