//! Types of records by name, and shares of them: `A:70,AAAA:20,MX:10`.

use std::str::FromStr;

/// Names of types that are queried for (IANA's registry of DNS parameters); the others are written TYPE and their number
/// (RFC 3597). Transfers are not: they need TCP.
const NAMES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("NULL", 10),
    ("PTR", 12),
    ("HINFO", 13),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("AAAA", 28),
    ("LOC", 29),
    ("SRV", 33),
    ("NAPTR", 35),
    ("CERT", 37),
    ("DNAME", 39),
    ("DS", 43),
    ("SSHFP", 44),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("ZONEMD", 63),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("ANY", 255),
    ("URI", 256),
    ("CAA", 257),
];

/// The number of the type called `name`, in any case.
pub(super) fn number(name: &str) -> Option<u16> {
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(*number);
    }
    let (prefix, digits) = name.split_at_checked(4)?;
    // `parse` accepts a sign.
    let numeric = prefix.eq_ignore_ascii_case("TYPE") && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| numeric)
}

/// Types with their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shares {
    /// Each type with the sum of the weights up to and with its own, rising.
    types: Vec<(u16, u64)>,
}

impl Shares {
    /// All of one type.
    pub(super) fn only(number: u16) -> Self {
        Self { types: vec![(number, 1)] }
    }

    /// Whether there is a choice.
    pub(super) fn is_mixed(&self) -> bool {
        self.types.len() > 1
    }

    /// The type for the random number `drawn`.
    pub(super) fn pick(&self, drawn: u64) -> u16 {
        let total = self.types.last().map_or(1, |(_, sum)| *sum);
        let place = drawn % total;
        // Never none: the last sum is above `place`.
        self.types.iter().find(|(_, sum)| place < *sum).map_or(0, |(number, _)| *number)
    }
}

impl FromStr for Shares {
    type Err = ();

    /// `TYPE` or `TYPE:WEIGHT`, separated by commas; a weight is 1 to 1,000,000, by default 1.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (mut types, mut sum) = (Vec::new(), 0);
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight =
                weight.parse::<u64>().ok().filter(|weight| (1..=1_000_000).contains(weight)).ok_or(())?;
            sum += weight;
            types.push((number(name).ok_or(())?, sum));
        }
        Ok(Self { types })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_and_numbers() {
        for (name, expected) in [("A", 1), ("aaaa", 28), ("Any", 255), ("TYPE65", 65), ("type65535", 65_535)]
        {
            assert_eq!(number(name), Some(expected), "{name}");
        }
        for wrong in ["", "AXFR", "TYPE", "TYPE65536", "TYPE+1", "TYPE-1", "TYPEA", "X", "TYP", "ÄÄÄ"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        let shares: Shares = "A:70,AAAA:20,mx:10".parse().unwrap();
        let count = |number| (0..100).filter(|drawn| shares.pick(*drawn) == number).count();
        assert_eq!((count(1), count(28), count(15)), (70, 20, 10));
        assert!(shares.is_mixed() && !Shares::only(1).is_mixed());
        assert_eq!((Shares::only(5).pick(u64::MAX), "A".parse()), (5, Ok(Shares::only(1))));
        for wrong in ["", "A:0", "A:", "A:1000001", "A,,AAAA", "A:70 AAAA:30", "A:-1"] {
            assert_eq!(wrong.parse::<Shares>(), Err(()), "{wrong}");
        }
    }
}
