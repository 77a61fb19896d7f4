//! Alternates two measurements, A B B A, until their ratio is known precisely enough.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use udpath_advise::interleave::interleave;
use udpath_advise::result::Ratio;
use udpath_advise::statistics::Bound;

pub(crate) use udpath_experiment::threads::{cpu_time, pin, quantile};

/// How often a race says how far it is, on stderr. More often: a log of progress. Less often: it looks stuck.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// B over A, with its 95 % interval. `width` is the sufficient half-width, `blocks` the maximum number of blocks.
/// `what` is raced, for the progress on stderr.
pub(crate) fn race(
    what: &str,
    width: f64,
    blocks: usize,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<Ratio> {
    let [ratio] = race_of(what, width, blocks, || Ok([a()?]), || Ok([b()?]))?;
    Ok(ratio)
}

/// The same of several figures of each measurement, until every ratio is known precisely enough.
pub(crate) fn race_of<const N: usize>(
    what: &str,
    width: f64,
    blocks: usize,
    mut a: impl FnMut() -> Result<[f64; N]>,
    mut b: impl FnMut() -> Result<[f64; N]>,
) -> Result<[Ratio; N]> {
    let bound = Bound::new(width, blocks)?;
    let mut reported = Instant::now();
    let done = interleave(bound, &mut a, &mut b, |comparisons| {
        if reported.elapsed() >= REPORT_INTERVAL {
            let so_far = comparisons[0].interval().map(|ratio| format!(": {}", words(&ratio)));
            let block = comparisons[0].blocks();
            eprintln!("  {what}: block {block} of at most {blocks}{}", so_far.unwrap_or_default());
            reported = Instant::now();
        }
    })?;
    let ratios: Option<Vec<Ratio>> = done.ratios.into_iter().collect();
    let ratios = ratios.and_then(|ratios| <[Ratio; N]>::try_from(ratios).ok());
    ratios.with_context(|| format!("nothing could be measured in {blocks} blocks"))
}

/// Resamples of [`medians`]' interval. Fewer: its ends are coarse. More: no narrower.
const RESAMPLES: usize = 2000;

/// The ratio of the medians, B over A, of `blocks` blocks A B B A, with the 95 % interval of a bootstrap over blocks.
pub(crate) fn medians(
    what: &str,
    blocks: usize,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<Ratio> {
    let mut taken = Vec::with_capacity(blocks);
    let mut reported = Instant::now();
    for block in 1..=blocks {
        taken.push([a()?, b()?, b()?, a()?]);
        if reported.elapsed() >= REPORT_INTERVAL {
            eprintln!("  {what}: block {block} of {blocks}");
            reported = Instant::now();
        }
    }
    let of = |blocks: &mut dyn Iterator<Item = usize>| {
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for [a1, b1, b2, a2] in blocks.map(|block| taken[block]) {
            of_a.extend([a1, a2]);
            of_b.extend([b1, b2]);
        }
        quantile(of_b, 0.5) / quantile(of_a, 0.5)
    };
    let ratio = of(&mut (0..blocks));
    anyhow::ensure!(
        ratio.is_finite() && ratio > 0.0,
        "{what}: nothing moved in half of the trials; is another program using the CPUs?"
    );
    // SplitMix64 (Steele, Lea, Flood 2014), from a fixed state: the same trials give the same interval.
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % blocks
    };
    let resampled: Vec<f64> = (0..RESAMPLES).map(|_| of(&mut (0..blocks).map(|_| random()))).collect();
    Ok(Ratio { ratio, low: quantile(resampled.clone(), 0.025), high: quantile(resampled, 0.975) })
}

/// `1.52 (1.49-1.55)`.
pub(crate) fn words(ratio: &Ratio) -> String {
    format!("{:.3} ({:.3}-{:.3})", ratio.ratio, ratio.low, ratio.high)
}

/// The median: of an even number of values, the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        upper
    } else {
        (values.get(middle.wrapping_sub(1)).copied().unwrap_or(upper) + upper) / 2.0
    }
}
