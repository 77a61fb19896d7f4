//! The statistics of interleaved trials: how a verdict is reached, and when to stop measuring.
//!
//! Trials come in blocks `A B B A` (A the best so far, B the candidate), so that whatever drifts evenly over a
//! block - a neighbour waking up, a CPU warming - weighs on both alike. One block gives one number:
//!
//! ```text
//! trials   a1 b1 b2 a2   ->   d = (ln b1 + ln b2)/2 - (ln a1 + ln a2)/2      the block's log ratio
//! blocks   d1 d2 d3 ...  ->   estimate (20 % trimmed mean) and its interval  (Student t)
//!                        ->   Continue, or Done(better | worse | not shown)
//! ```
//!
//! **Why trimmed.** On a shared machine a trial now and then loses a third of its rate because somebody else took
//! the CPU. Four estimators were simulated at 2 % noise with 3 % of the trials so hit: the plain mean finds a true
//! gain of 5 % in 71 % of comparisons, Hodges-Lehmann with Wilcoxon's interval in 85 %, the mean of what is left
//! when the lowest and highest fifth of the blocks are cut off (Tukey and McLaughlin 1963, Yuen 1974) in 98 %, for
//! nearly nothing when the noise is clean. Its interval takes the spread from the winsorised blocks, with the
//! degrees of freedom of the blocks kept.
//!
//! **Why repeated looks do no harm.** Four rules may end a comparison, and each look at the data is a chance to err:
//! - *Narrow enough*: the interval's half-width fell below the bound. Stopping there favours moments at which the
//!   spread happens to look small, so an interval of nominally 95 % would hold the truth in 91 % only. The
//!   quantile is therefore taken at [`NOMINAL_ERROR`]; with it the interval that is reported covers 95 %
//!   (simulated below). This rule never looks at the ratio itself, nor before [`BLOCKS_BEFORE_WIDTH`] blocks.
//! - *Beyond doubt*: the ratio differs at the share of [`EARLY_ERROR`] that this look has. The j-th look has 1/(j(j+1))
//!   of it: the shares of all looks add up to 1 whatever the limit is, so early looks together err in at most 0.2 % of
//!   comparisons. A rung that gains half stops after three or four blocks, also when the limit is high.
//! - *No such gain* ([`Bound::for_verdict`]): the whole interval, at [`VERDICT_ERROR`], is nearer to 1 than the gain
//!   sought ([`Bound::sought`]). It can only end in "not shown", so it adds no false verdict.
//! - *Too noisy* ([`Bound::for_verdict`]): with the spread so far, the limit of blocks would not make the interval
//!   narrow enough for that gain. It looks at the spread only.
//!
//! **Why up to 80 blocks.** A verdict of "better" on a gain g needs g - [`SMALLEST_EFFECT`] to be 2.9 standard errors
//! (the quantile at [`VERDICT_ERROR`]), and 0.84 more to get it in 80 % of comparisons. For g = 2 % that is a standard
//! error of 0.33 %. A block has 2 % of noise if its trials have, and the trimmed mean takes a tenth more than the plain
//! one: 45 blocks, and 70 with 3 % of the trials hit by neighbours. Stopping at a half-width of 1.5 % after at most 16
//! blocks found such a gain in 10 % of comparisons. Simulated with the default bound:
//!
//! ```text
//! noise of a trial            2 % gain shown   5 % gain shown   equal rungs: verdict   blocks
//! 0.5 %                               91.9 %          100.0 %                0.00 %        6
//! 2 %                                 86.7 %          100.0 %                0.17 %       19
//! 2 %, drift of 1 % a trial           86.7 %          100.0 %                0.15 %       21
//! 2 %, drift, neighbours              83.2 %           98.5 %                0.13 %       25
//! 2 %, neighbours that stay           87.2 %          100.0 %                0.13 %       21
//! 10 %                                 0.8 %            9.3 %                0.22 %       23
//! ```
//!
//! **Why a verdict asks for more than the interval.** A climb is a dozen comparisons. If each erred in one of twenty,
//! every second climb would keep a rung for nothing. So a verdict needs an interval at [`VERDICT_ERROR`] that leaves
//! 1 by [`SMALLEST_EFFECT`]: two equal rungs are told apart in under 1 % of comparisons, also on machines so noisy
//! that the smallest effect protects from nothing. The price: a rung may show an interval above 1 and still be "not
//! shown"; more blocks settle it.

pub mod ratio;
pub mod unpaired;

use statrs::distribution::{ContinuousCDF, StudentsT};

use ratio::{Ratio, Verdict};

/// Smallest difference worth a verdict, as a share: the interval must leave 1 by this much.
///
/// Two builds of the same code differ by half a per cent through memory layout alone. Lower: such accidents become
/// verdicts. Higher: real gains of 2 to 3 % are missed.
pub const SMALLEST_EFFECT: f64 = 0.0075;

/// Two-sided error the quantile of the interval is taken at, so that 95 % is what the interval covers in the end.
///
/// 0.05 would be right for a number of blocks fixed beforehand. Higher: the truth lies outside more often than in
/// one of twenty. Lower: more trials for the same width.
pub const NOMINAL_ERROR: f64 = 0.02;

/// Two-sided error a verdict may have at the end of a comparison: a dozen of them, a ladder, err in 5 % of climbs.
///
/// Higher: rungs kept by luck, and every later one measured against them. At 0.02, and 10 % of noise, 2.2 % of equal
/// rungs were told apart. Lower: gains that are there are not shown; 0.02 would need a quarter fewer blocks.
pub const VERDICT_ERROR: f64 = 0.004;

/// Share of comparisons that may end early with a wrong verdict, over all looks; the j-th has 1/(j(j+1)) of it.
///
/// Higher: eager verdicts from a handful of blocks. Lower: clear cases take as long as unclear ones.
pub const EARLY_ERROR: f64 = 0.002;

/// Share of the blocks cut off at each end before the mean is taken.
///
/// Lower: one disturbed block in ten spoils the comparison. Higher: a wider interval when nothing is disturbed.
pub const TRIM: f64 = 0.2;

/// Blocks needed before anything is said at all: a spread cannot be judged from fewer.
pub const FEWEST_BLOCKS: usize = 3;

/// Blocks needed before a narrow interval may end a comparison.
///
/// Lower: by chance a few blocks agree and the interval is far too narrow. Higher: quiet machines wait for nothing.
pub const BLOCKS_BEFORE_WIDTH: usize = 6;

/// Blocks needed before a comparison is given up as too noisy.
///
/// Lower: a few disturbed trials among the first look like a noisy machine, and a gain of 5 % is missed in 3 % of
/// comparisons (16 blocks). Higher: noisy machines run blocks that cannot decide anything.
pub const BLOCKS_BEFORE_GIVING_UP: usize = 20;

/// A comparison is too noisy if at the limit of blocks the interval's half-width would be this many times the gain
/// sought.
///
/// Lower: gives up where one block in ten is disturbed. Higher: three times the blocks on a machine with 10 % of noise,
/// for a gain of 5 % found in 18 % of comparisons instead of 9 %.
pub const TOO_NOISY: f64 = 1.25;

/// What a trial without a single transaction counts as, transactions per second: too little to mean anything but
/// "nothing", and still a number, so that one dead trial is trimmed and a dead rung loses.
const SILENCE_TPS: f64 = 1.0;

/// When to stop: how narrow the interval shall be, and after how many blocks to give up on that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    half_width: f64,
    most_blocks: usize,
    for_verdict: bool,
}

/// Why a [`Bound`] makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BoundError {
    /// The width is not between 0.1 % and 50 %.
    #[error("invalid half-width {0} of the interval: expected 0.001 to 0.5, such as 0.015 for 1.5 %")]
    HalfWidth(f64),
    /// Too few blocks for any verdict, or more than anybody would wait for.
    #[error("invalid limit of {0} blocks per comparison: expected 3 to 1000")]
    MostBlocks(usize),
}

impl Bound {
    /// `half_width` of the interval as a share (0.001..=0.5), `most_blocks` of four trials each (3..=1000). For a
    /// ratio: unless it is beyond doubt, the interval is as narrow as that, or the limit is reached.
    ///
    /// # Errors
    /// Either lies outside its range.
    pub fn new(half_width: f64, most_blocks: usize) -> Result<Self, BoundError> {
        if !(0.001..=0.5).contains(&half_width) {
            return Err(BoundError::HalfWidth(half_width));
        }
        if !(FEWEST_BLOCKS..=1000).contains(&most_blocks) {
            return Err(BoundError::MostBlocks(most_blocks));
        }
        Ok(Self { half_width, most_blocks, for_verdict: false })
    }

    /// For a verdict: also ends a comparison that would hardly show a gain of [`Self::sought`] with more blocks.
    #[must_use]
    pub const fn for_verdict(self) -> Self {
        Self { for_verdict: true, ..self }
    }

    /// The gain, as a share, that a comparison which reaches the half-width shows in at least 80 % of cases: 2 % by
    /// default.
    ///
    /// 1.6 half-widths above the smallest effect: the half-width is 2.33 standard errors, and a verdict needs 2.88 +
    /// 0.84. The rest is for the few degrees of freedom of a trimmed mean.
    #[must_use]
    pub fn sought(&self) -> f64 {
        SMALLEST_EFFECT + 1.8 * self.half_width
    }

    /// The half-width that is narrow enough, as a share.
    #[must_use]
    pub const fn half_width(&self) -> f64 {
        self.half_width
    }

    /// The blocks after which a comparison ends whatever it knows.
    #[must_use]
    pub const fn most_blocks(&self) -> usize {
        self.most_blocks
    }
}

impl Default for Bound {
    /// 0.7 % within 80 blocks, for a verdict: trials with 2 % of noise show a gain of 2 % in over 80 % of comparisons.
    fn default() -> Self {
        Self { half_width: 0.007, most_blocks: 80, for_verdict: true }
    }
}

/// The median: of an even number of values, the mean of the middle two. None of no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = if values.len() % 2 == 1 { upper } else { values[values.len() / 2 - 1] };
    Some(f64::midpoint(lower, upper))
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Run another block.
    Continue,
    /// Enough; [`Comparison::interval`] has the figures. [`Verdict::Failed`] if no block had any transaction at all.
    Done(Verdict),
}

/// A block that could not be used. It counts towards the limit all the same, so that a broken meter ends.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("trial {trial} of the block reported {tps} transactions/s: a rate is finite and not negative")]
pub struct BlockError {
    /// Which trial of the four, from 1.
    pub trial: usize,
    /// What it reported.
    pub tps: f64,
}

/// One candidate against the best so far, block by block.
#[derive(Debug, Clone)]
pub struct Comparison {
    bound: Bound,
    /// ln(B/A) of each usable block, ascending.
    log_ratios: Vec<f64>,
    /// Blocks pushed, usable or not.
    pushed: usize,
    silent: Silent,
}

/// Trials without a single transaction, on each side. Any at all is worth a warning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Silent {
    /// Of the best so far.
    pub best: usize,
    /// Of the candidate.
    pub candidate: usize,
}

/// Location of the log ratio, its standard error, and the degrees of freedom of the latter.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    middle: f64,
    error: f64,
    freedom: f64,
}

impl Comparison {
    /// A comparison that has seen nothing yet.
    #[must_use]
    pub const fn new(bound: Bound) -> Self {
        Self { bound, log_ratios: Vec::new(), pushed: 0, silent: Silent { best: 0, candidate: 0 } }
    }

    /// Adds the rates of one block in the order they were run: best, candidate, candidate, best.
    ///
    /// A rate of 0 is a measurement (the rung answered nothing); a block in which both sides were silent throughout
    /// says nothing about their ratio and is only counted.
    ///
    /// # Errors
    /// A rate that is not finite, or negative: a mistake of the meter. The block is not used.
    pub fn push_block(&mut self, tps: [f64; 4]) -> Result<(), BlockError> {
        self.pushed += 1;
        if let Some((i, &bad)) = tps.iter().enumerate().find(|(_, t)| !(t.is_finite() && **t >= 0.0)) {
            return Err(BlockError { trial: i + 1, tps: bad });
        }
        let [a1, b1, b2, a2] = tps;
        self.silent.best += usize::from(a1 <= 0.0) + usize::from(a2 <= 0.0);
        self.silent.candidate += usize::from(b1 <= 0.0) + usize::from(b2 <= 0.0);
        if tps.iter().all(|t| *t <= 0.0) {
            return Ok(());
        }
        let ln = |t: f64| t.max(SILENCE_TPS).ln();
        let d = (ln(b1) + ln(b2) - ln(a1) - ln(a2)) / 2.0;
        let at = self.log_ratios.partition_point(|x| *x < d);
        self.log_ratios.insert(at, d);
        Ok(())
    }

    /// Blocks pushed so far, unusable ones included.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.pushed
    }

    /// Trials without any transaction, so far.
    #[must_use]
    pub const fn silent(&self) -> Silent {
        self.silent
    }

    /// Candidate over best so far, with its 95 % interval; none before [`FEWEST_BLOCKS`] usable blocks.
    #[must_use]
    pub fn interval(&self) -> Option<Ratio> {
        Some(self.estimate()?.ratio(NOMINAL_ERROR))
    }

    /// Go on, or stop with this verdict. Asked after every block; asking less often does no harm.
    #[must_use]
    pub fn state(&self) -> State {
        let at_limit = self.pushed >= self.bound.most_blocks;
        let Some(estimate) = self.estimate() else {
            return if at_limit { State::Done(self.cut()) } else { State::Continue };
        };
        let look = (self.log_ratios.len() - FEWEST_BLOCKS + 1) as f64;
        let early = estimate.verdict(EARLY_ERROR / (look * (look + 1.0)));
        if early != Verdict::NotShown {
            return State::Done(early);
        }
        let narrow = self.log_ratios.len() >= BLOCKS_BEFORE_WIDTH
            && estimate.half_width(NOMINAL_ERROR) <= self.bound.half_width.ln_1p();
        if narrow || at_limit || self.is_futile(&estimate) {
            State::Done(estimate.verdict(VERDICT_ERROR))
        } else {
            State::Continue
        }
    }

    /// The verdict if no more blocks are run for a reason that has nothing to do with the figures: as at the limit of
    /// blocks.
    #[must_use]
    pub fn cut(&self) -> Verdict {
        match self.estimate() {
            Some(estimate) => estimate.verdict(VERDICT_ERROR),
            None if self.log_ratios.is_empty() => Verdict::Failed,
            None => Verdict::NotShown,
        }
    }

    /// Whether more blocks would hardly show a gain of [`Bound::sought`]: there is none, or the noise hides it.
    fn is_futile(&self, estimate: &Estimate) -> bool {
        let blocks = self.log_ratios.len();
        if !self.bound.for_verdict || blocks < BLOCKS_BEFORE_WIDTH {
            return false;
        }
        let sought = self.bound.sought().ln_1p();
        let no_such_gain = estimate.middle.abs() + estimate.half_width(VERDICT_ERROR) < sought;
        let shrinks = (blocks as f64 / self.bound.most_blocks as f64).sqrt();
        let too_noisy = blocks >= BLOCKS_BEFORE_GIVING_UP
            && estimate.half_width(NOMINAL_ERROR) * shrinks > TOO_NOISY * sought;
        no_such_gain || too_noisy
    }

    fn estimate(&self) -> Option<Estimate> {
        Estimate::trimmed(&self.log_ratios)
    }
}

impl Estimate {
    /// The trimmed mean of ascending values, with the spread of the winsorised ones; none of fewer than
    /// [`FEWEST_BLOCKS`].
    fn trimmed(ascending: &[f64]) -> Option<Self> {
        let all = ascending.len();
        if all < FEWEST_BLOCKS {
            return None;
        }
        let cut = (TRIM * all as f64) as usize;
        let kept = &ascending[cut..all - cut];
        let (n, h) = (all as f64, kept.len() as f64);
        let (lowest, highest) = (kept[0], kept[kept.len() - 1]);
        let winsorised = || ascending.iter().map(|d| d.clamp(lowest, highest));
        let centre = winsorised().sum::<f64>() / n;
        let squares: f64 = winsorised().map(|d| (d - centre).powi(2)).sum();
        Some(Self {
            middle: kept.iter().sum::<f64>() / h,
            error: (squares / (h * (h - 1.0))).sqrt(),
            freedom: h - 1.0,
        })
    }

    /// As a ratio, with the interval that errs with this probability.
    fn ratio(&self, error: f64) -> Ratio {
        let half = self.half_width(error);
        Ratio { ratio: self.middle.exp(), low: (self.middle - half).exp(), high: (self.middle + half).exp() }
    }

    /// Half-width of the two-sided interval that errs with this probability, in log units.
    fn half_width(&self, error: f64) -> f64 {
        // Freedom is at least 2 (three blocks, none cut), so the distribution exists; were it ever not so,
        // an endless interval is the honest answer.
        StudentsT::new(0.0, 1.0, self.freedom)
            .map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - error / 2.0) * self.error)
    }

    fn verdict(&self, error: f64) -> Verdict {
        self.verdict_beyond(SMALLEST_EFFECT, error)
    }

    /// Whether the interval leaves 1 by more than the share `smallest`.
    fn verdict_beyond(&self, smallest: f64, error: f64) -> Verdict {
        let half = self.half_width(error);
        let smallest = smallest.ln_1p();
        if self.middle - half > smallest {
            Verdict::Better
        } else if self.middle + half < -smallest {
            Verdict::Worse
        } else {
            Verdict::NotShown
        }
    }
}

#[cfg(test)]
mod tests;
