//! Percentiles of two latency distributions.

use udpath_load::result::Latency;

use super::{Better, Figure, MEDIAN, TAIL, Unit};
use crate::statistics::unpaired;

/// A percentile: its name, its share, its value in a result, whether it has a verdict.
type Percentile = (&'static str, f64, fn(&Latency) -> u64, bool);

/// The percentiles compared. Beyond the 99th, equal runs differ by any factor: a single pause of the machine is in them.
const PERCENTILES: [Percentile; 5] = [
    ("p50", 0.5, |l| l.p50, true),
    ("p90", 0.9, |l| l.p90, false),
    ("p99", 0.99, |l| l.p99, true),
    ("p99.9", 0.999, |l| l.p99_9, false),
    ("p99.99", 0.9999, |l| l.p99_99, false),
];

/// Adds a row for each percentile; none if either has no latency. `decisive`: the median and the 99th count for the verdict.
pub(super) fn add(
    figures: &mut Vec<Figure>,
    group: &str,
    a: Option<&Latency>,
    b: Option<&Latency>,
    decisive: bool,
) {
    let Some((a, b)) = a.zip(b) else { return };
    for (name, share, of, verdict) in PERCENTILES {
        let value = |latency: &Latency| Some(of(latency) as f64);
        let mut figure = Figure::new(group, name, Unit::Nanoseconds, value(a), value(b));
        let quantile = |latency: &Latency| unpaired::Figure::of_quantile(&latency.histogram, share);
        let allowance = if share > 0.5 { TAIL } else { MEDIAN };
        figure = figure.judged(quantile(a), quantile(b), allowance, Better::Lower);
        if verdict {
            figure.decisive = decisive;
        } else {
            figure.verdict = None;
        }
        figures.push(figure);
    }
}
