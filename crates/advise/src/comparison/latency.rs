//! Percentiles of two latency distributions.

use udpath_load::result::Latency;

use super::{Allowance, Better, Figure, MEDIAN, TAIL, Unit, are_steady};
use crate::statistics::unpaired;

/// A percentile: its name, its share, its value in a result, and its allowance if it is judged.
type Percentile = (&'static str, f64, fn(&Latency) -> u64, Option<Allowance>);

/// The percentiles compared. Beyond the 99th, equal runs differ by any factor: a single pause of the machine is in
/// them.
const PERCENTILES: [Percentile; 5] = [
    ("p50", 0.5, |l| l.p50, Some(MEDIAN)),
    ("p90", 0.9, |l| l.p90, None),
    ("p99", 0.99, |l| l.p99, Some(TAIL)),
    ("p99.9", 0.999, |l| l.p99_9, None),
    ("p99.99", 0.9999, |l| l.p99_99, None),
];

/// Adds a row for each percentile; none if either has no latency. Judged only if `rates`, the rates of A and B, are
/// known to be steady.
pub(super) fn add(
    figures: &mut Vec<Figure>,
    group: &str,
    [a, b]: [Option<&Latency>; 2],
    rates: [Option<unpaired::Figure>; 2],
) {
    let Some((a, b)) = a.zip(b) else { return };
    let steady = are_steady(rates);
    for (name, share, of, allowance) in PERCENTILES {
        let value = |latency: &Latency| Some(of(latency) as f64);
        let figure = Figure::new(group, name, Unit::Nanoseconds, value(a), value(b));
        let quantile = |latency: &Latency| unpaired::Figure::of_quantile(&latency.histogram, share);
        figures.push(match allowance {
            Some(allowance) if steady => {
                figure.judged(quantile(a), quantile(b), allowance, Better::Lower).decisive()
            }
            _ => figure,
        });
    }
}
