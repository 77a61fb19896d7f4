//! IP addresses as two words: the form in which the fast path compares, hashes and sums them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address of either version, in network order; IPv4 in the first word.
pub(crate) type Words = [u64; 2];

#[inline(always)]
pub(super) const fn words_v4(bits: u32) -> Words {
    [bits.to_be() as u64, 0]
}

/// Converts an address to words.
#[inline]
pub(crate) const fn words(address: IpAddr) -> Words {
    match address {
        IpAddr::V4(v4) => words_v4(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [((bits >> 64) as u64).to_be(), (bits as u64).to_be()]
        }
    }
}

#[inline]
pub(super) const fn to_v4(words: Words) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be(words[0] as u32))
}

#[inline]
pub(super) const fn to_v6(words: Words) -> Ipv6Addr {
    Ipv6Addr::from_bits((u64::from_be(words[0]) as u128) << 64 | u64::from_be(words[1]) as u128)
}
