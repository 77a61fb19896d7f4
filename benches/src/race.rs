//! Two measurements in turn, A B B A, until their ratio is known well enough.

use anyhow::Result;
use udpath_advise::result::Ratio;
use udpath_advise::statistics::{Bound, Comparison, State};

/// B over A, with its 95 % interval. `width` is the half-width that is narrow enough, `blocks` the most to ask for.
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
