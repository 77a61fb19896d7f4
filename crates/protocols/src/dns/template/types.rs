//! Types of records by name, and shares of them: `A:70,AAAA:20,MX:10`.

use std::str::FromStr;

/// Names of types that are queried for (IANA's registry of DNS parameters); the others are written TYPE and their
/// number (RFC 3597). Transfers are not: they need TCP.
const NAMES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("MD", 3),
    ("MF", 4),
    ("CNAME", 5),
    ("SOA", 6),
    ("MB", 7),
    ("MG", 8),
    ("MR", 9),
    ("NULL", 10),
    ("WKS", 11),
    ("PTR", 12),
    ("HINFO", 13),
    ("MINFO", 14),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("X25", 19),
    ("ISDN", 20),
    ("RT", 21),
    ("NSAP", 22),
    ("NSAP-PTR", 23),
    ("SIG", 24),
    ("KEY", 25),
    ("PX", 26),
    ("GPOS", 27),
    ("AAAA", 28),
    ("LOC", 29),
    ("NXT", 30),
    ("EID", 31),
    ("NIMLOC", 32),
    ("SRV", 33),
    ("ATMA", 34),
    ("NAPTR", 35),
    ("KX", 36),
    ("CERT", 37),
    ("A6", 38),
    ("DNAME", 39),
    ("SINK", 40),
    ("APL", 42),
    ("DS", 43),
    ("SSHFP", 44),
    ("IPSECKEY", 45),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("HIP", 55),
    ("NINFO", 56),
    ("RKEY", 57),
    ("TALINK", 58),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("ZONEMD", 63),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("DSYNC", 66),
    ("HHIT", 67),
    ("BRID", 68),
    ("SPF", 99),
    ("UINFO", 100),
    ("UID", 101),
    ("GID", 102),
    ("UNSPEC", 103),
    ("NID", 104),
    ("L32", 105),
    ("L64", 106),
    ("LP", 107),
    ("EUI48", 108),
    ("EUI64", 109),
    ("MAILB", 253),
    ("MAILA", 254),
    ("ANY", 255),
    ("*", 255),
    ("URI", 256),
    ("CAA", 257),
    ("AVC", 258),
    ("DOA", 259),
    ("AMTRELAY", 260),
    ("RESINFO", 261),
    ("WALLET", 262),
    ("TA", 32768),
    ("DLV", 32769),
];

/// Names of types that are no questions of a load: transfers, whose answers need TCP and are more than one message, and
/// what stands in other parts of a message.
const NO_QUESTIONS: [&str; 5] = ["AXFR", "IXFR", "OPT", "TSIG", "TKEY"];

/// Whether this is the name of such a type.
pub(super) fn no_question(name: &str) -> bool {
    NO_QUESTIONS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

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

    /// The names and numbers of `domain`, and all names of BIND.
    #[test]
    fn names_are_those_of_others() {
        for (name, number) in NAMES {
            if let Ok(other) = name.parse::<domain::base::iana::Rtype>() {
                assert_eq!(other.to_int(), *number, "{name}");
            }
        }
        let output = std::process::Command::new("named-rrchecker").arg("-T").output().unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        // BIND's own, and what asks for several or is no record's type.
        let none = ["AXFR", "IXFR", "TSIG", "TKEY", "OPT", "KEYDATA", "RESERVED0"];
        let unknown: Vec<&str> =
            names.split_whitespace().filter(|name| number(name).is_none() && !none.contains(name)).collect();
        assert!(unknown.is_empty() && names.lines().count() > 50, "{unknown:?} of {names}");
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
