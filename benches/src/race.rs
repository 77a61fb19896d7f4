//! Alternates two measurements, A B B A, until their ratio is known precisely enough.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use udpath_advise::result::Ratio;
use udpath_advise::statistics::{Bound, Comparison, State};

/// B over A, with its 95 % interval. `width` is the sufficient half-width, `blocks` the maximum number of blocks.
pub(crate) fn race(
    width: f64,
    blocks: usize,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<Ratio> {
    let mut comparison = Comparison::new(Bound::new(width, blocks)?);
    loop {
        comparison.push_block([a()?, b()?, b()?, a()?])?;
        if let (State::Done(_), Some(ratio)) = (comparison.state(), comparison.interval()) {
            return Ok(ratio);
        }
        if comparison.blocks() >= blocks {
            anyhow::bail!("nothing could be measured in {blocks} blocks");
        }
    }
}

/// `1.52 (1.49-1.55)`.
pub(crate) fn words(ratio: &Ratio) -> String {
    format!("{:.3} ({:.3}-{:.3})", ratio.ratio, ratio.low, ratio.high)
}

/// Pins the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot pin a thread to CPU {cpu}"))
}

/// CPU time of the calling thread so far; other threads' time on its CPU is not included.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The quantile `at` of the values; 0.5 is the median.
pub(crate) fn quantile(mut values: Vec<f64>, at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * at) as usize;
    values.get(index).or(values.last()).copied().unwrap_or(f64::NAN)
}
