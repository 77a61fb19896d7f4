//! From a 32-bit hash to an index into a table: the kernel's methods.
//!
//! | method | where the kernel uses it | bits of the hash that matter |
//! |---|---|---|
//! | [`reciprocal_scale`] | RPS map, XPS map, reuseport group | the high ones |
//! | [`fold`] | RFS table of a queue, flow limit | all of them |
//! | `hash & (len - 1)` | RSS table, global RFS table | the low ones |
//!
//! The difference matters: all packets of one RSS queue have the low bits of their hashes in common, so the next
//! selection must use others, or it would always select the same entry.

/// An index in `0..len`: `hash * len / 2^32` (`include/linux/kernel.h`). `len` 0 gives 0.
#[must_use]
#[inline]
pub const fn reciprocal_scale(hash: u32, len: u32) -> u32 {
    ((hash as u64 * len as u64) >> 32) as u32
}

/// An index in `0..2^bits` for `bits` up to 32: the kernel's `hash_32` (`include/linux/hash.h`).
///
/// 0 bits give index 0, the only one.
#[must_use]
#[inline]
pub const fn fold(hash: u32, bits: u32) -> u32 {
    /// 2^32 divided by the golden ratio, as a negative number (`GOLDEN_RATIO_32`): any odd constant would work, this
    /// one spreads consecutive numbers best (Knuth, vol. 3, 6.4).
    const GOLDEN_RATIO: u32 = 0x61c8_8647;
    if bits == 0 {
        return 0;
    }
    let bits = if bits > 32 { 32 } else { bits };
    hash.wrapping_mul(GOLDEN_RATIO) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_range_and_the_ends_are_reached() {
        assert_eq!(reciprocal_scale(0, 7), 0);
        assert_eq!(reciprocal_scale(u32::MAX, 7), 6);
        assert_eq!(reciprocal_scale(u32::MAX / 2 + 1, 2), 1);
        assert_eq!(reciprocal_scale(u32::MAX, 0), 0);
        assert_eq!(fold(1, 32), 0x61c8_8647);
        assert_eq!(fold(1, 4), 6);
        assert_eq!(fold(u32::MAX, 0), 0);
    }
}
