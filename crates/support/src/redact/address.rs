//! Replaces addresses consistently: equal addresses get equal replacements, different ones different replacements, by a
//! key that is never written.
//!
//! ```text
//! IPv4, IPv6   bit n is flipped, or not, by SipHash(key, the bits before n): two addresses share their first n bits
//!              exactly if their replacements do, so that networks stay networks
//! MAC          the same for its last three bytes; the vendor's three are kept
//! ```
//! The type of an address is kept: unspecified, loopback, multicast and broadcast addresses are unchanged; private,
//! shared and link-local ones are replaced by others of their type. A replacement of a different type is replaced again
//! until it matches; that keeps different addresses different, and IPv4 networks of at least 16 bits intact.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siphasher::sip::SipHasher24;

/// Replaces addresses.
#[derive(Clone)]
pub(super) struct Addresses {
    key: SipHasher24,
}

/// How an address is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is kept.
    Nobodys,
    /// This many leading bits are kept: they define its type.
    Keep(u32),
    /// It embeds an IPv4 address in its last bits.
    Embedded,
}

/// Address spaces that are replaced independently.
const V4: u8 = 4;
const V6: u8 = 6;
const LINK: u8 = 1;
const IDENTIFIER: u8 = 2;

impl Addresses {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self { key: SipHasher24::new_with_key(key) }
    }

    pub(super) fn ip(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => self.v4(address).into(),
            IpAddr::V6(address) => self.v6(address).into(),
        }
    }

    pub(super) fn v4(&self, address: Ipv4Addr) -> Ipv4Addr {
        let kind = v4(address);
        let Kind::Keep(keep) = kind else { return address };
        let mut found = address;
        loop {
            let bits = self.permuted(V4, u32::from(found).into(), 32, keep);
            found = Ipv4Addr::from(bits as u32);
            if v4(found) == kind {
                return found;
            }
        }
    }

    pub(super) fn v6(&self, address: Ipv6Addr) -> Ipv6Addr {
        let kind = v6(address);
        let keep = match kind {
            Kind::Nobodys => return address,
            Kind::Keep(keep) => keep,
            Kind::Embedded => {
                let bits = u128::from(address);
                let inner = u32::from(self.v4(Ipv4Addr::from(bits as u32)));
                return Ipv6Addr::from(bits >> 32 << 32 | u128::from(inner));
            }
        };
        let mut found = address;
        loop {
            found = Ipv6Addr::from(self.permuted(V6, u128::from(found), 128, keep));
            if v6(found) == kind {
                return found;
            }
        }
    }

    /// A link-layer address. If it is longer than six bytes (InfiniBand), the rest is replaced by unrelated bytes.
    pub(super) fn link(&self, address: &[u8]) -> Vec<u8> {
        let group = address.first().is_some_and(|first| first & 1 != 0);
        let nobodys = address.iter().all(|byte| *byte == 0) || group && address.len() == 6;
        if nobodys || address.len() < 6 {
            return address.to_vec();
        }
        let (maker, rest) = address.split_at(3);
        if let [a, b, c] = rest {
            let bits = self.permuted(LINK, u128::from(u32::from_be_bytes([0, *a, *b, *c])), 24, 0);
            return [maker, &bits.to_be_bytes()[13..]].concat();
        }
        [maker, &self.bytes(rest)].concat()
    }

    /// The same number of other bytes.
    pub(super) fn bytes(&self, of: &[u8]) -> Vec<u8> {
        let word = |at: usize| {
            let mut hasher = self.key;
            hasher.write_u8(IDENTIFIER);
            hasher.write_usize(at);
            hasher.write(of);
            hasher.finish().to_be_bytes()
        };
        (0..of.len().div_ceil(8)).flat_map(word).take(of.len()).collect()
    }

    /// `value` of `bits` bits, in which each bit after the first `keep` is flipped or not.
    fn permuted(&self, space: u8, value: u128, bits: u32, keep: u32) -> u128 {
        let turned = (keep..bits).fold(0, |turned, at| {
            let mut hasher = self.key;
            hasher.write_u8(space);
            hasher.write_u32(at);
            hasher.write_u128(value.checked_shr(bits - at).unwrap_or(0));
            turned | u128::from(hasher.finish() & 1) << (bits - 1 - at)
        });
        value ^ turned
    }
}

/// RFC 6890 and RFC 1918, as far as they define an address's purpose.
fn v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [0 | 127 | 224..=255, ..] => Kind::Nobodys,
        [10, ..] => Kind::Keep(8),
        [100, 64..=127, ..] => Kind::Keep(10),
        [169, 254, ..] | [192, 168, ..] => Kind::Keep(16),
        [172, 16..=31, ..] => Kind::Keep(12),
        _ => Kind::Keep(0),
    }
}

/// RFC 4291, RFC 4193, RFC 6052.
fn v6(address: Ipv6Addr) -> Kind {
    let bits = u128::from(address);
    match address.segments() {
        _ if bits <= 1 => Kind::Nobodys,
        [0xff00..=0xffff, ..] => Kind::Nobodys,
        [0xfe80..=0xfebf, ..] => Kind::Keep(64),
        [0xfc00..=0xfdff, ..] => Kind::Keep(8),
        [0x2000..=0x3fff, ..] => Kind::Keep(3),
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Kind::Embedded,
        _ => Kind::Keep(8),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn addresses() -> Addresses {
        Addresses::new(&[7; 16])
    }

    fn shared(a: u128, b: u128) -> u32 {
        (a ^ b).leading_zeros()
    }

    #[test]
    fn special_addresses_are_kept() {
        let of = addresses();
        for text in ["0.0.0.0", "127.0.0.53", "224.0.0.251", "255.255.255.255", "::", "::1", "ff02::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(of.ip(address), address);
        }
        for link in [[0; 6], [255; 6], [0x33, 0x33, 0, 0, 0, 1]] {
            assert_eq!(of.link(&link), link);
        }
    }

    #[test]
    fn another_key_gives_other_addresses() {
        let (one, other) = (addresses(), Addresses::new(&[8; 16]));
        let address = "192.0.2.1".parse().unwrap();
        assert_ne!(one.v4(address), other.v4(address));
        assert_ne!(one.v4(address), address);
    }

    #[test]
    fn an_embedded_address_is_replaced_consistently() {
        let of = addresses();
        let inner: Ipv4Addr = "192.0.2.1".parse().unwrap();
        assert_eq!(of.v6(inner.to_ipv6_mapped()), of.v4(inner).to_ipv6_mapped());
    }

    #[test]
    fn replacement_is_a_bijection_on_a_small_space() {
        let of = addresses();
        let link = |low: u32| of.link(&[&[0, 0x16, 0x3e][..], &low.to_be_bytes()[1..]].concat());
        let found: BTreeSet<_> = (0..1 << 16).map(link).collect();
        assert_eq!(found.len(), 1 << 16);
        assert!(found.iter().all(|link| link[..3] == [0, 0x16, 0x3e]));
        let found: BTreeSet<_> = (0..1 << 16).map(|low| of.v4(Ipv4Addr::from(0xc0a8_0000 | low))).collect();
        assert_eq!(found.len(), 1 << 16);
        assert!(found.iter().all(|address| address.octets()[..2] == [192, 168]));
    }

    proptest! {
        #[test]
        fn types_and_networks_are_preserved(a: u32, b: u32, length in 16_u32..=32, key: [u8; 16]) {
            let of = Addresses::new(&key);
            let b = (u64::from(a) >> (32 - length) << (32 - length)) as u32
                | (u64::from(b) & ((1 << (32 - length)) - 1)) as u32;
            let (a, b) = (Ipv4Addr::from(a), Ipv4Addr::from(b));
            prop_assert_eq!(v4(of.v4(a)), v4(a));
            let bits = |address| u128::from(u32::from(address)) << 96;
            prop_assert_eq!(shared(bits(of.v4(a)), bits(of.v4(b))), shared(bits(a), bits(b)));
        }

        #[test]
        fn ipv6_types_and_networks_are_preserved(a: u128, low: u64, key: [u8; 16]) {
            let of = Addresses::new(&key);
            let b = Ipv6Addr::from(a >> 64 << 64 | u128::from(low));
            let a = Ipv6Addr::from(a);
            prop_assert_eq!(v6(of.v6(a)), v6(a));
            let bits = |address| u128::from(of.v6(address));
            prop_assert_eq!(shared(bits(a), bits(b)), shared(a.into(), b.into()));
        }
    }
}
