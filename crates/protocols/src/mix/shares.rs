//! Which flow belongs to which part: slots that repeat.

/// Most slots of a mix: weights such as 999 and 1. More: a plan needs as many flows.
pub(super) const MAX_SLOTS: u64 = 1000;

/// The part of each slot, by weights of 1 or more; none if there would be more than [`MAX_SLOTS`].
///
/// Parts take turns in proportion: each gains its weight per slot, and the one that has gained most pays for all.
pub(super) fn slots(weights: &[u64]) -> Option<Vec<u16>> {
    let divisor = weights.iter().copied().fold(0, common_divisor).max(1);
    let weights: Vec<u64> = weights.iter().map(|weight| weight / divisor).collect();
    let total = weights.iter().try_fold(0_u64, |sum, weight| sum.checked_add(*weight));
    let total = total.filter(|total| (1..=MAX_SLOTS).contains(total))? as i64;
    let mut gained = vec![0_i64; weights.len()];
    let slot = |_| {
        for (gained, weight) in gained.iter_mut().zip(&weights) {
            *gained += *weight as i64;
        }
        // The first of those with most.
        let most = gained.iter().copied().max().unwrap_or(0);
        let part = gained.iter().position(|gained| *gained == most).unwrap_or(0);
        gained[part] -= total;
        part as u16
    };
    Some((0..total).map(slot).collect())
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_take_turns_by_weight() {
        assert_eq!(slots(&[5]).unwrap(), [0]);
        assert_eq!(slots(&[50, 50]).unwrap(), [0, 1]);
        assert_eq!(slots(&[70, 20, 10]).unwrap(), [0, 0, 1, 0, 0, 2, 0, 0, 1, 0]);
        for weights in [&[1, 2, 3][..], &[999, 1], &[7, 7, 7, 4]] {
            let slots = slots(weights).unwrap();
            let total: u64 = weights.iter().sum();
            for (part, weight) in weights.iter().enumerate() {
                let count = slots.iter().filter(|slot| usize::from(**slot) == part).count();
                assert_eq!(count as u64 * total, slots.len() as u64 * weight, "{weights:?}");
            }
        }
    }

    #[test]
    fn slots_are_bounded() {
        assert_eq!(slots(&[1000]).unwrap().len(), 1);
        assert_eq!((slots(&[1000, 1]), slots(&[u64::MAX, 2]), slots(&[])), (None, None, None));
    }
}
