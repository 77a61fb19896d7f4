//! A hash map that is built once and then only read: open addressing, at most half full, so that a lookup ends after
//! one or two adjacent slots.
//!
//! ```text
//! first(key) = upper bits of hash(key, seed)
//! slots   [ - | B | A | - | - | C | - | - ]       A's first slot is taken by B: A is in the next free one
//!               ^ first slot of A and B
//! ```
//! Neighbours choose their own addresses, so an attacker who knew the hash could put thousands into one run of slots.
//! The seed is drawn for every map and never leaves it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;

/// Odd, with about half its bits set: the fraction of the golden ratio, as in Fibonacci hashing.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Minimum number of slots, a power of two: with one slot there would be no upper bits.
const MIN_SLOTS: usize = 2;

/// A key of the map.
pub(super) trait Key: Copy + Eq {
    /// Mixes all bits into the word; the upper bits are used.
    fn hash(self, seed: u64) -> u64;
}

/// The 128-bit product of two words, folded: every bit of both affects the upper bits.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// An IPv4 address.
impl Key for u32 {
    #[inline(always)]
    fn hash(self, seed: u64) -> u64 {
        fold(u64::from(self) ^ seed, MULTIPLIER)
    }
}

/// Interface and IPv4 address.
impl Key for (u32, u32) {
    #[inline(always)]
    fn hash(self, seed: u64) -> u64 {
        fold((u64::from(self.0) << 32 | u64::from(self.1)) ^ seed, MULTIPLIER)
    }
}

/// Interface and IPv6 address.
impl Key for (u32, Halves) {
    #[inline(always)]
    fn hash(self, seed: u64) -> u64 {
        let [upper, lower] = self.1;
        let upper = upper ^ u64::from(self.0).rotate_right(16);
        fold(fold(upper ^ seed, MULTIPLIER) ^ lower, MULTIPLIER)
    }
}

/// An IPv6 address, upper half first: a `u128` would have to be aligned to 16 bytes, and entries would be half as
/// large again.
pub(super) type Halves = [u64; 2];

/// The halves of an address.
#[inline(always)]
pub(super) const fn halves(address: Ipv6Addr) -> Halves {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// The map.
pub(super) struct Map<K, V> {
    /// A power of two, at least twice the number of entries, so a search always ends at a free slot.
    slots: Box<[Option<(K, V)>]>,
    /// Right shift from a hash to a slot.
    shift: u32,
    seed: u64,
    len: usize,
}

impl<K: Key, V: Copy> Map<K, V> {
    /// A map of `entries`; of several with the same key the last wins.
    pub(super) fn new(entries: impl IntoIterator<Item = (K, V), IntoIter: ExactSizeIterator>) -> Self {
        let entries = entries.into_iter();
        let size = (entries.len() * 2).next_power_of_two().max(MIN_SLOTS);
        let mut map = Self {
            slots: vec![None; size].into_boxed_slice(),
            shift: u64::BITS - size.trailing_zeros(),
            seed: RandomState::new().hash_one(size),
            len: 0,
        };
        for (key, value) in entries {
            let at = map.find(key);
            map.len += usize::from(map.slots[at].is_none());
            map.slots[at] = Some((key, value));
        }
        map
    }

    /// The slot of `key`, or the free slot where it would be put.
    #[inline(always)]
    fn find(&self, key: K) -> usize {
        let mut at = (key.hash(self.seed) >> self.shift) as usize;
        loop {
            match self.slots[at] {
                Some((other, _)) if other != key => at = (at + 1) & (self.slots.len() - 1),
                _ => return at,
            }
        }
    }

    /// The value of `key`.
    #[inline(always)]
    pub(super) fn get(&self, key: K) -> Option<V> {
        self.slots[self.find(key)].map(|(_, value)| value)
    }

    /// Whether the map has `key`.
    #[inline(always)]
    pub(super) fn contains(&self, key: K) -> bool {
        self.slots[self.find(key)].is_some()
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All entries, in arbitrary order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.slots.iter().filter_map(|slot| *slot)
    }
}

impl<K: Key, V: Copy> Default for Map<K, V> {
    fn default() -> Self {
        Self::new([])
    }
}

impl<K: Key + fmt::Debug, V: Copy + fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_exactly_the_inserted_entries(
            entries in prop::collection::vec(((0_u32..4, [0_u64..3, 0_u64..40]), any::<u16>()), 0..200)
        ) {
            let map = Map::new(entries.clone());
            let reference: HashMap<_, _> = entries.into_iter().collect();
            prop_assert_eq!(map.len(), reference.len());
            for interface in 0..5 {
                for address in 0..200 {
                    let key = (interface, [address / 50, address % 50]);
                    prop_assert_eq!(map.get(key), reference.get(&key).copied());
                    prop_assert_eq!(map.contains(key), reference.contains_key(&key));
                }
            }
            prop_assert_eq!(map.iter().collect::<HashMap<_, _>>(), reference);
        }
    }

    #[test]
    fn consecutive_addresses_do_not_crowd() {
        // A whole /18. With a good hash at half load, the longest search is a few dozen slots.
        let map = Map::new((0..16_384_u32).map(|host| ((2, 0x0a00_0000 | host), ())));
        let longest = map.slots.split(Option::is_none).map(<[_]>::len).max();
        assert!(longest < Some(400), "a row of {longest:?} full slots");
    }
}
