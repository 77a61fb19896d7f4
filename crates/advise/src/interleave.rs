//! Two measurements in turn, A B B A, until the ratio of each of their figures is known precisely enough.

use crate::statistics::ratio::Ratio;
use crate::statistics::{BlockError, Bound, Comparison, State};

/// What two interleaved measurements of `N` figures gave.
#[derive(Debug, Clone)]
pub struct Interleaved<const N: usize> {
    /// B over A of each figure, with its 95 % interval; none of too few usable blocks.
    pub ratios: [Option<Ratio>; N],
    /// The trials of A, in order.
    pub a: Vec<[f64; N]>,
    /// The trials of B, in order.
    pub b: Vec<[f64; N]>,
}

/// Runs blocks of four trials until every comparison is done. `after` gets the comparisons after each block. The order
/// within a block spreads an even drift over both alike.
///
/// # Errors
/// The first error of a measurement, or a figure that is not finite or negative.
pub fn interleave<const N: usize, E: From<BlockError>>(
    bound: Bound,
    mut a: impl FnMut() -> Result<[f64; N], E>,
    mut b: impl FnMut() -> Result<[f64; N], E>,
    mut after: impl FnMut(&[Comparison; N]),
) -> Result<Interleaved<N>, E> {
    let mut comparisons: [Comparison; N] = std::array::from_fn(|_| Comparison::new(bound));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    loop {
        let block = [a()?, b()?, b()?, a()?];
        of_a.extend([block[0], block[3]]);
        of_b.extend([block[1], block[2]]);
        for (figure, comparison) in comparisons.iter_mut().enumerate() {
            comparison.push_block(block.map(|trial| trial[figure]))?;
        }
        after(&comparisons);
        if comparisons.iter().all(|comparison| matches!(comparison.state(), State::Done(_))) {
            let ratios = comparisons.each_ref().map(Comparison::interval);
            return Ok(Interleaved { ratios, a: of_a, b: of_b });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_b_over_a_and_every_trial_is_kept() {
        let bound = Bound::new(0.02, 5).unwrap();
        let mut turns = Vec::new();
        let turns = std::cell::RefCell::new(&mut turns);
        let take = |name, figures: [f64; 2]| {
            turns.borrow_mut().push(name);
            Ok::<_, BlockError>(figures)
        };
        let done = interleave(bound, || take('a', [100.0, 5.0]), || take('b', [150.0, 5.0]), |_| ()).unwrap();
        let [first, second] = done.ratios.map(|ratio| ratio.unwrap().ratio);
        assert!((first - 1.5).abs() < 1e-9 && (second - 1.0).abs() < 1e-9, "{first} {second}");
        let order: String = turns.borrow().iter().collect();
        assert!(order.starts_with("abbaabba"), "{order}");
        assert_eq!((done.a.len(), done.b.len()), (order.len() / 2, order.len() / 2));
    }

    #[test]
    fn a_broken_meter_is_an_error() {
        let bound = Bound::new(0.02, 5).unwrap();
        let done =
            interleave(bound, || Ok::<_, BlockError>([1.0]), || Ok::<_, BlockError>([f64::NAN]), |_| ());
        assert_eq!(done.unwrap_err().trial, 2);
    }
}
