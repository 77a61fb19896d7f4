//! Longest-prefix match, by the addresses at which the result changes.
//!
//! Two prefixes are either disjoint or nested, so along the number line of addresses the longest match changes at
//! most twice per prefix: at its start and after its end. These boundaries are sorted once; a lookup finds the last
//! boundary at or before the address.
//!
//! ```text
//! prefixes     |------------- 10.0.0.0/8 = A -------------|
//!                      |--- 10.64.0.0/10 = B ---|
//! boundaries   A       B                        A         -        a lookup searches for the last one <= address
//! index        ^   ^   ^   ^   ^   ^   ^   ^   ^   ^   ^   ^       where to start, by the address's upper bits
//! ```
//! The index over the upper bits has about as many entries as there are boundaries. If prefixes are spread, only a
//! few boundaries remain to be searched; if they are clustered, it is a binary search over all of them, 15 steps
//! for 10,000 prefixes.
//!
//! # Alternatives
//! - A hash table per prefix length probes one table per length in use: 20 to 30 for an Internet table, and the most
//!   for a destination that only the default route covers. With 10,000 routes of nine lengths it takes two to three
//!   times as long as this (`benches/tables.rs`).
//! - A trie with a fixed stride of 24 bits takes 32 MiB, cold in every cache, whatever the number of routes.
//! - Here memory is bounded by the number of prefixes - 2 boundaries of 8 bytes (IPv4) or 20 (IPv6) each, and the
//!   index - and a single route costs one comparison. The price: every change rebuilds the table, which tables under
//!   epochs do anyway.

/// An address as a number.
pub(super) trait Bits: Copy + Ord {
    /// Number of bits.
    const WIDTH: u32;
    /// The lowest address.
    const ZERO: Self;
    /// The upper bits: what remains after a right shift by `shift`, at most `MAX_INDEX_BITS` bits.
    fn upper(self, shift: u32) -> usize;
    /// The lowest address with these upper bits, `None` beyond the highest address.
    fn from_upper(upper: usize, shift: u32) -> Option<Self>;
    /// With the host bits cleared.
    fn masked(self, prefix: u32) -> Self;
    /// The first address after the prefix that starts here; `None` beyond the highest address.
    fn behind(self, prefix: u32) -> Option<Self>;
}

macro_rules! bits {
    ($($number:ty),*) => {$(
        impl Bits for $number {
            const WIDTH: u32 = <$number>::BITS;
            const ZERO: Self = 0;

            #[inline(always)]
            fn upper(self, shift: u32) -> usize {
                // The shift is at least the width minus the index bits, so one word has all the bits wanted; a
                // two-word shift by a variable amount is slow.
                const LOW: u32 = <$number>::BITS.saturating_sub(u64::BITS);
                ((self >> LOW) as u64 >> (shift - LOW)) as usize
            }

            fn from_upper(upper: usize, shift: u32) -> Option<Self> {
                let address = (upper as Self) << shift;
                (address >> shift == upper as Self).then_some(address)
            }

            fn masked(self, prefix: u32) -> Self {
                self & !Self::MAX.checked_shr(prefix).unwrap_or(0)
            }

            fn behind(self, prefix: u32) -> Option<Self> {
                (self | Self::MAX.checked_shr(prefix).unwrap_or(0)).checked_add(1)
            }
        }
    )*};
}
bits!(u32, u128);

/// Not covered by any prefix.
const NOTHING: u32 = u32::MAX;

/// Maximum upper bits that the index uses: 65,536 entries, 256 KiB.
///
/// Lower: large tables take more search steps. Higher: the index falls out of the second-level cache, which costs
/// more than the few steps it saves.
const MAX_INDEX_BITS: u32 = 16;

/// Prefixes of one address family, each with a value.
#[derive(Debug)]
pub(super) struct Prefixes<B> {
    /// The addresses at which the result changes, ascending; the first is the lowest address.
    boundaries: Box<[B]>,
    /// The result from each boundary on.
    values: Box<[u32]>,
    /// For each value of the upper bits, the last boundary at or before the lowest such address; and the last of all.
    index: Box<[u32]>,
    /// Shift from an address to its upper bits.
    shift: u32,
}

impl<B: Bits> Prefixes<B> {
    /// A table of `(address, prefix length, value)`. Host bits are ignored. Of several entries with the same prefix
    /// the first wins. Values are below `u32::MAX`, and so is their number; prefix lengths are clamped to the
    /// address's width.
    pub(super) fn new(prefixes: impl IntoIterator<Item = (B, u8, u32)>) -> Self {
        let mut prefixes: Vec<_> = (prefixes.into_iter())
            .map(|(address, len, value)| {
                let len = u32::from(len).min(B::WIDTH);
                (address.masked(len), len, value)
            })
            .collect();
        // Stable: the first of equal ones stays the first.
        prefixes.sort_by_key(|(address, len, _)| (*address, *len));
        prefixes.dedup_by_key(|(address, len, _)| (*address, *len));
        let mut line = Line { boundaries: vec![B::ZERO], values: vec![NOTHING] };
        // The prefixes that cover the current address, each nested in the one before.
        let mut covering: Vec<(Option<B>, u32)> = Vec::new();
        for (address, len, value) in prefixes {
            while let Some((Some(end), _)) = covering.pop_if(|(end, _)| end.is_some_and(|end| end <= address))
            {
                line.change(end, covering.last().map_or(NOTHING, |(_, value)| *value));
            }
            line.change(address, value);
            covering.push((address.behind(len), value));
        }
        while let Some((end, _)) = covering.pop() {
            if let Some(end) = end {
                line.change(end, covering.last().map_or(NOTHING, |(_, value)| *value));
            }
        }
        line.indexed()
    }

    /// The value of the longest prefix that covers `address`.
    #[inline]
    pub(super) fn get(&self, address: B) -> Option<u32> {
        let upper = address.upper(self.shift);
        let mut at = self.index[upper] as usize;
        let mut count = self.index[upper + 1] as usize - at + 1;
        // Branch-free halving: the outcome of the comparison is unpredictable.
        while count > 1 {
            let half = count / 2;
            at = if self.boundaries[at + half] <= address { at + half } else { at };
            count -= half;
        }
        let value = self.values[at];
        (value != NOTHING).then_some(value)
    }

    /// The addresses at which the result changes, ascending, and the result from there on.
    pub(super) fn changes(&self) -> impl Iterator<Item = (B, Option<u32>)> {
        let answers = self.boundaries.iter().zip(&self.values);
        answers.map(|(first, value)| (*first, (*value != NOTHING).then_some(*value)))
    }
}

/// Boundaries under construction.
struct Line<B> {
    boundaries: Vec<B>,
    values: Vec<u32>,
}

impl<B: Bits> Line<B> {
    /// The result is `value` from `at` on. `at` is not before the last boundary.
    fn change(&mut self, at: B, value: u32) {
        if self.boundaries.last() == Some(&at) {
            // The previous prefix starts here too: it is shorter, or ends here.
            self.boundaries.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.boundaries.push(at);
            self.values.push(value);
        }
    }

    fn indexed(self) -> Prefixes<B> {
        let bits = self.boundaries.len().ilog2().clamp(1, MAX_INDEX_BITS);
        let shift = B::WIDTH - bits;
        let last = self.boundaries.len() - 1;
        let index = (0..=1_usize << bits).map(|upper| {
            let before = B::from_upper(upper, shift)
                .map_or(last, |lowest| self.boundaries.partition_point(|boundary| *boundary <= lowest) - 1);
            before as u32
        });
        Prefixes {
            index: index.collect(),
            shift,
            boundaries: self.boundaries.into(),
            values: self.values.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_where_the_answer_changes() {
        let table = Prefixes::new([(0x0a00_0000_u32, 8, 0), (0x0a40_0001, 10, 1), (0x0b00_0000, 8, 0)]);
        assert_eq!(*table.boundaries, [0, 0x0a00_0000, 0x0a40_0000, 0x0a80_0000, 0x0c00_0000]);
        assert_eq!(*table.values, [NOTHING, 0, 1, 0, NOTHING]);
    }

    #[test]
    fn the_ends_of_the_line_are_covered() {
        let empty = Prefixes::<u128>::new([]);
        assert_eq!((empty.get(0), empty.get(u128::MAX)), (None, None));
        let all = Prefixes::new([(7_u128, 0, 5), (u128::MAX, 128, 6), (0, 128, 7)]);
        assert_eq!((all.get(0), all.get(1)), (Some(7), Some(5)));
        assert_eq!((all.get(u128::MAX - 1), all.get(u128::MAX)), (Some(5), Some(6)));
        let upper = Prefixes::new([(0xffff_0000_u32, 16, 1), (0xffff_ff00, 24, 2)]);
        assert_eq!(
            (upper.get(0xfffe_ffff), upper.get(0xffff_0000), upper.get(u32::MAX)),
            (None, Some(1), Some(2))
        );
    }
}
