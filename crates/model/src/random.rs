//! Random numbers that a seed repeats: xoshiro256++, seeded by SplitMix64 (Blackman and Vigna, 2018).

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator of a seed. Different seeds, also neighbouring ones, give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let next = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        next
    }

    /// A number above 0, up to 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`, which must be above 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias is the bound over 2^64.
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// From the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }
}

/// The next output of SplitMix64; also the hash of a flow, from its number.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_does_not() {
        let some = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.bits())
        };
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut random = Random::new(7);
        let n = 200_000;
        let mean = |values: f64| values / f64::from(n);
        let uniform = mean((0..n).map(|_| random.uniform()).sum());
        let exponential = mean((0..n).map(|_| random.exponential(3.0)).sum());
        let below = mean((0..n).map(|_| random.below(10) as f64).sum());
        assert!((uniform - 0.5).abs() < 0.005, "{uniform}");
        assert!((exponential - 3.0).abs() < 0.03, "{exponential}");
        assert!((below - 4.5).abs() < 0.03, "{below}");
    }
}
