//! The Internet checksum (RFC 1071): full sums over any length and alignment, and incremental updates (RFC 1624).
//!
//! A [`Sum`] is an unfolded one's complement sum: 64 bits, in the machine's byte order. Three facts make it cheap:
//! - 2^16 - 1 divides 2^32 - 1 and 2^64 - 1, so words of any of these sizes may be added, with end-around carry;
//! - swapping the bytes of all words swaps the bytes of the sum, so only the result needs to be swapped;
//! - the complement of a number is its negative, so a field's old value is subtracted by adding its complement.
//!
//! Zero needs care: a sum of anything that is not all zero folds to 0xffff, never to 0, and so its checksum, the
//! complement, is 0 and never 0xffff. UDP, for which 0 means "none", sends 0xffff instead ([`Sum::udp_checksum`]).

/// An unfolded one's complement sum. Pieces of even length may be summed separately, in any order, and added.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`. If their number is odd, a zero byte is assumed after them, so only the last piece of a
    /// datagram may be odd.
    #[must_use]
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        // Below two blocks the set-up of the wide loop costs more than it saves.
        let sum = if words.len() < 2 * BLOCK_WORDS { few(words) } else { many(words) };
        if rest.is_empty() {
            return Self(sum);
        }
        // At most seven bytes on top of fewer than 2^36 32-bit words: it cannot overflow.
        Self(sum.wrapping_add(tail(bytes, rest)))
    }

    /// The sum of a 16-bit value, as if its two bytes were in network order in the data.
    #[must_use]
    #[inline]
    pub const fn of_u16(value: u16) -> Self {
        Self(value.to_be() as u64)
    }

    /// The sum of four words in memory order.
    #[inline(always)]
    pub(super) const fn of_words([a, b, c, d]: [u64; 4]) -> Self {
        Self(halves(a) + halves(b) + (halves(c) + halves(d)))
    }

    /// The sum of both.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum.wrapping_add(carry as u64))
    }

    /// This sum minus `other`, which is part of it.
    #[must_use]
    #[inline]
    pub const fn minus(self, other: Self) -> Self {
        self.plus(Self(!other.0))
    }

    /// The folded 16-bit one's complement sum, as a number (network order in the data, host order here). 0 only if
    /// everything summed was 0, or was subtracted again.
    #[must_use]
    #[inline]
    pub const fn fold(self) -> u16 {
        let (sum, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let sum = sum.wrapping_add(carry as u32);
        let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
        u16::from_be(sum.wrapping_add(carry as u16))
    }

    /// The value of the checksum field: the complement of the sum.
    #[must_use]
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// As [`checksum`](Self::checksum), with 0 replaced by 0xffff, which is the same number and does not mean "none"
    /// (RFC 768).
    #[must_use]
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether the data is intact, for a sum over the data including its checksum field.
    #[must_use]
    #[inline]
    pub const fn is_intact(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The checksum after a 16-bit word of the data has changed: RFC 1624, equation 3. `checksum` is the field's old
/// value. For UDP, a result of 0 must be written as 0xffff.
#[must_use]
#[inline]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::of_u16(!checksum).plus(Sum::of_u16(!old)).plus(Sum::of_u16(new)).checksum()
}

/// As [`update`], for fields of any even length at an even offset, such as addresses.
#[must_use]
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    Sum::of_u16(!checksum).minus(Sum::of(old)).plus(Sum::of(new)).checksum()
}

/// 8-byte words per iteration of the wide loop: two vector registers of the x86-64 baseline. Fewer leave lanes idle;
/// with more, the short datagrams of most services would fall back to the narrow loop.
const BLOCK_WORDS: usize = 4;

/// The sum of both halves of a word: 32-bit numbers, of which 2^32 can be added before a carry is lost. That would be
/// a slice of 16 GiB, far beyond any frame.
#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// One word at a time.
#[inline]
fn few(words: &[[u8; 8]]) -> u64 {
    words.iter().fold(0, |sum: u64, word| sum.wrapping_add(halves(u64::from_ne_bytes(*word))))
}

/// Independent lanes, which the compiler vectorises.
#[inline]
fn many(words: &[[u8; 8]]) -> u64 {
    let (blocks, rest) = words.as_chunks::<BLOCK_WORDS>();
    let mut lanes = [0_u64; BLOCK_WORDS];
    for block in blocks {
        for lane in 0..BLOCK_WORDS {
            lanes[lane] = lanes[lane].wrapping_add(halves(u64::from_ne_bytes(block[lane])));
        }
    }
    lanes.iter().fold(few(rest), |sum, lane| sum.wrapping_add(*lane))
}

/// The one to seven bytes of `rest`, the end of `bytes`, zero-padded.
#[inline]
fn tail(bytes: &[u8], rest: &[u8]) -> u64 {
    let Some(last) = bytes.last_chunk::<8>() else {
        return short_tail(rest);
    };
    // The last eight bytes; those before `rest` are in the sum already and are shifted out.
    let surplus = 8 * (8 - rest.len() as u32 % 8) % 64;
    let word = u64::from_ne_bytes(*last);
    halves(if cfg!(target_endian = "little") { word >> surplus } else { word << surplus })
}

/// The same for fewer than eight bytes in total.
#[inline]
fn short_tail(mut rest: &[u8]) -> u64 {
    let mut sum = 0_u64;
    if let Some((word, behind)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        rest = behind;
    }
    if let [last] = rest {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&data).fold(), 0xddf2);
        assert_eq!(Sum::of(&data).checksum(), 0x220d);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: equation 2 would give 0xffff here.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(update_bytes(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }

    #[test]
    fn zeros() {
        assert_eq!(Sum::ZERO.fold(), 0);
        assert_eq!(Sum::of(&[0; 40]).checksum(), 0xffff);
        assert_eq!(Sum::of(&[0xff; 40]).fold(), 0xffff);
        assert_eq!(Sum::of(&[0xff, 0xff]).checksum(), 0);
        assert_eq!(Sum::of(&[0xff, 0xff]).udp_checksum(), 0xffff);
        assert_eq!(Sum::of(&[0x12, 0x34]).udp_checksum(), !0x1234);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_its_word() {
        assert_eq!(Sum::of(&[0xab]).fold(), 0xab00);
        assert_eq!(Sum::of(&[0, 1, 0xab]).fold(), 0xab01);
        assert_eq!(Sum::of_u16(0xab01).fold(), 0xab01);
    }

    #[test]
    fn carries_at_every_length_come_round() {
        for len in 0..200 {
            let data = vec![0xff; len];
            let odd = if len % 2 == 1 { 0xff00 } else { 0xffff };
            assert_eq!(Sum::of(&data).fold(), if len == 0 { 0 } else { odd }, "{len} bytes");
        }
    }
}
