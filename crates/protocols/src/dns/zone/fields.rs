//! What stands where in the record data of a type, as far as `domain` has to be helped: names, times, mnemonics; and
//! the types whose text it does not read.

use domain::base::iana::Rtype;

/// The places of domain names in the data's text, counted from 0.
pub(super) fn names(rtype: Rtype) -> &'static [usize] {
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME | Rtype::MB | Rtype::MD => &[0],
        Rtype::MF | Rtype::MG | Rtype::MR | Rtype::NSEC | Rtype::NXT => &[0],
        Rtype::SOA | Rtype::MINFO | Rtype::RP => &[0, 1],
        Rtype::MX => &[1],
        Rtype::SRV => &[3],
        Rtype::NAPTR => &[5],
        Rtype::RRSIG | Rtype::SIG => &[7],
        Rtype::IPSECKEY => &[3],
        _ => &[],
    }
}

/// Whether the text at a place may be empty: not where a number, a name, or data in base 64 or hexadecimal digits
/// stand, of which a reader would make a zero or nothing.
pub(super) fn may_be_empty(rtype: Rtype, at: usize) -> bool {
    match rtype {
        Rtype::TXT => true,
        Rtype::HINFO => at < 2,
        Rtype::NAPTR => (2..5).contains(&at),
        Rtype::CAA => at == 2,
        _ => false,
    }
}

/// The places of times, which may have units (`1h30m`).
pub(super) fn times(rtype: Rtype) -> &'static [usize] {
    match rtype {
        Rtype::SOA => &[3, 4, 5, 6],
        Rtype::RRSIG | Rtype::SIG => &[3],
        _ => &[],
    }
}

/// The place of a DNSSEC algorithm, which may be a mnemonic.
pub(super) fn algorithm(rtype: Rtype) -> Option<usize> {
    match rtype {
        Rtype::DNSKEY | Rtype::CDNSKEY | Rtype::KEY | Rtype::RKEY | Rtype::CERT => Some(2),
        Rtype::DS | Rtype::CDS | Rtype::DLV | Rtype::RRSIG | Rtype::SIG => Some(1),
        _ => None,
    }
}

/// Mnemonics of DNSSEC algorithms (IANA's registry, RFC 8624, and BIND's spellings).
pub(super) const ALGORITHMS: &[(&str, u8)] = &[
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("ECC", 4),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("NSEC3DSA", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("NSEC3RSASHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECCGOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// The number of an algorithm's mnemonic.
pub(super) fn algorithm_number(mnemonic: &[u8]) -> Option<u8> {
    ALGORITHMS
        .iter()
        .find(|(name, _)| mnemonic.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, number)| *number)
}

/// Mnemonics of digests, as BIND takes them in DS.
const DIGESTS: &[(&str, u8)] =
    &[("SHA-1", 1), ("SHA1", 1), ("SHA-256", 2), ("SHA256", 2), ("GOST", 3), ("SHA-384", 4), ("SHA384", 4)];

/// The place of a digest's type.
pub(super) fn digest(rtype: Rtype) -> Option<usize> {
    matches!(rtype, Rtype::DS | Rtype::CDS | Rtype::DLV).then_some(2)
}

/// The number of a digest's mnemonic.
pub(super) fn digest_number(mnemonic: &[u8]) -> Option<u8> {
    DIGESTS.iter().find(|(name, _)| mnemonic.eq_ignore_ascii_case(name.as_bytes())).map(|(_, number)| *number)
}

/// A time in seconds: digits, or numbers with units, `1h30m`, as BIND, NSD and Knot read them. `None`: it is none.
pub(super) fn seconds(text: &[u8]) -> Option<u32> {
    let (mut sum, mut number, mut after_unit) = (0_u64, None::<u64>, false);
    for byte in text {
        let factor = match byte.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                let more = number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
                number = Some(more);
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        sum = sum.checked_add(number.take()?.checked_mul(factor)?)?;
        after_unit = true;
    }
    match number {
        // A last number without a unit is seconds.
        Some(rest) => sum = sum.checked_add(rest)?,
        None if !after_unit => return None,
        None => {}
    }
    u32::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("3600", Some(3600)),
            ("1h", Some(3600)),
            ("1H30M", Some(5400)),
            ("1w2d3h4m5s", Some(788_645)),
            ("1h30", Some(3630)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("99999999999999999999w", None),
            ("", None),
            ("h", None),
            ("1x", None),
            ("-1", None),
            ("1 ", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn mnemonics_have_numbers() {
        assert_eq!(algorithm_number(b"ecdsap256sha256"), Some(13));
        assert_eq!((algorithm_number(b"8"), algorithm_number(b"")), (None, None));
        assert_eq!((digest_number(b"SHA-256"), digest_number(b"sha384")), (Some(2), Some(4)));
    }
}
