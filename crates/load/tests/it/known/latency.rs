//! A distribution of latencies compared with the true one.

use std::time::Duration;

use udpath_load::result::Latency;
use udpath_load::result::LoadResult;

use super::Faults;

/// Longest deviation that is accepted, as a share of the truth. It contains the width of the histogram's bucket.
const BOUND: f64 = 0.01;

/// The shorter delay. 1 % of it has to contain a bucket, and what a shared machine adds between the server's clock and
/// the generator's: waits of both for a CPU, of a few milliseconds each. Just below 2^31 and 2^32 ns, a bucket is 0.4 %
/// wide (anywhere else, up to 0.8 %): 12 ms are left for that. Shorter: the scheduler decides the test.
pub(crate) const DELAY: Duration = Duration::from_millis(2100);
/// The longer delay: twice the other, so that the percentiles tell them apart.
pub(crate) const LONGER: Duration = Duration::from_millis(4200);
/// Longer than any delay.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(8);

/// Everything is delayed, a fifth of it twice as long: the true p50 is [`DELAY`], p90 and p99 are [`LONGER`].
pub(crate) fn two_delays() -> Faults {
    Faults { delayed: 0.8, delay: DELAY, late: 0.2, late_by: LONGER, ..Faults::default() }
}

/// Mean, p50, p90 and p99 are each within 1 % of the truth; `truth` is in nanoseconds, in the order of the answers.
/// Latencies that end before the run does are the first of them.
pub(crate) fn compare(what: &str, measured: &Latency, truth: &[u64]) {
    let mut sorted = truth[..measured.count as usize].to_vec();
    sorted.sort_unstable();
    let percentile = |share: f64| {
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1] as f64
    };
    let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
    let figures = [
        ("mean", measured.mean, mean),
        ("p50", measured.p50 as f64, percentile(0.5)),
        ("p90", measured.p90 as f64, percentile(0.9)),
        ("p99", measured.p99 as f64, percentile(0.99)),
    ];
    let wrong: Vec<_> = figures
        .iter()
        .filter(|(_, value, truth)| (value / truth - 1.0).abs() > BOUND)
        .map(|(name, value, truth)| format!("{name}: {value} ns, in truth {truth} ns"))
        .collect();
    assert!(wrong.is_empty(), "{what}, of {} latencies: {wrong:?}", measured.count);
}

/// Of an engine that records the latency of every request, with the clock of the intended time too.
pub(crate) fn compare_all(what: &str, result: &LoadResult, truth: &[u64]) {
    let sent = result.sent_latency.as_ref().unwrap();
    assert_eq!(sent.count, truth.len() as u64, "{what}");
    compare(what, sent, truth);
    let intended = result.intended_latency.as_ref().unwrap();
    assert!(intended.mean >= sent.mean, "{what}: waiting in the generator cannot be negative");
}
