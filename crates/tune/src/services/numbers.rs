//! Numbers as servers read them: one text is not the same number to all of them.
//!
//! ```text
//! 010    8 to BIND and FreeRADIUS, 10 to the others; as a count, 8 to rsyslog
//! 1M     1,048,576 to Unbound, 1,000,000 to rsyslog, 1 to FreeRADIUS
//! ```

use serde::Deserialize;

use super::format::EXPANDED;
use crate::bytes;

/// How the numbers of a configuration are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Numbers {
    /// With decimal digits; those of bytes may have k, m or g, and then b, for the powers of 1024, as Unbound has them.
    #[default]
    Decimal,
    /// As in C: with a 0 before them octal, with 0x hexadecimal.
    C,
    /// As `strtoul(3)` reads them: as in C, up to what is no digit; without any digit, 0.
    Strtoul,
    /// Counts as `atoi(3)` reads them: decimal digits, up to what is none; without any digit, 0. Bytes as in `Decimal`.
    Atoi,
    /// Counts as in C; of bytes, k, m and g stand for the powers of 1024, and K, M and G for those of 1000.
    Rsyslog,
}

impl Numbers {
    /// The same, but nothing may follow the digits.
    pub(super) const fn whole(self) -> Self {
        match self {
            Self::Strtoul => Self::C,
            Self::Atoi => Self::Decimal,
            Self::Decimal | Self::C | Self::Rsyslog => self,
        }
    }

    /// A number of things.
    pub(super) fn count(self, text: &str) -> Option<u64> {
        match self {
            Self::Decimal => bytes::count(text),
            Self::Atoi => atoi(text),
            Self::C | Self::Rsyslog => c_number(text),
            Self::Strtoul => strtoul(text),
        }
    }

    /// A number of bytes.
    pub(super) fn bytes(self, text: &str) -> Option<u64> {
        match self {
            Self::C => c_number(text),
            Self::Strtoul => strtoul(text),
            Self::Rsyslog => {
                let thousands = [("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
                let found =
                    thousands.iter().find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, scale)));
                found.map_or_else(
                    || bytes::bytes(text),
                    |(digits, scale)| bytes::count(digits)?.checked_mul(*scale),
                )
            }
            Self::Decimal | Self::Atoi => {
                let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
                let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
                bytes::bytes(&format!("{}{}", digits.trim_end(), &text[digits.len()..]))
            }
        }
    }
}

/// The number that a text begins with; `None` of one below 0 or beyond an `int`.
fn atoi(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: i32 = if len == 0 { 0 } else { text[..len].parse().ok()? };
    u64::try_from(number).ok().filter(|_| !text.starts_with('-'))
}

/// What a text begins with, as a number of C; `None` of one that stands for another value.
fn strtoul(text: &str) -> Option<u64> {
    if EXPANDED.iter().any(|begin| text.contains(begin)) {
        return None;
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let is_digit = |byte: &u8| match (hexadecimal, text.starts_with('0')) {
        (Some(_), _) => byte.is_ascii_hexdigit(),
        (None, true) => (b'0'..b'8').contains(byte),
        (None, false) => byte.is_ascii_digit(),
    };
    let len = hexadecimal.unwrap_or(text).bytes().take_while(is_digit).count();
    match (hexadecimal, len) {
        (_, 0) => Some(0),
        (Some(_), len) => c_number(&text[..2 + len]),
        (None, len) => c_number(&text[..len]),
    }
}

/// A whole number as C has them.
fn c_number(text: &str) -> Option<u64> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    // It would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As freeradius 3.2 prints them.
    #[test]
    fn a_number_of_freeradius_ends_where_its_digits_do() {
        for (text, number) in [
            ("64k", 64),
            ("2k", 2),
            ("08", 0),
            ("010x", 8),
            ("0x1fg", 31),
            ("0x", 0),
            ("", 0),
            ("262144", 262_144),
        ] {
            assert_eq!(Numbers::Strtoul.bytes(text), Some(number), "{text:?}");
            assert_eq!(Numbers::Strtoul.count(text), Some(number), "{text:?}");
        }
        for not in ["99999999999999999999", "${..small}", "$ENV{SMALL}", "4%{x}"] {
            assert_eq!((Numbers::Strtoul.count(not), Numbers::Strtoul.bytes(not)), (None, None), "{not}");
        }
    }

    /// As unbound 1.17 and coturn 4.6 have them in effect.
    #[test]
    fn a_count_of_unbound_ends_where_its_digits_do() {
        for (text, number) in [
            ("8#comment", Some(8)),
            ("8;", Some(8)),
            ("8x9", Some(8)),
            ("010", Some(10)),
            ("+8", Some(8)),
            (" 8", Some(8)),
            ("0x5", Some(0)),
            ("x", Some(0)),
            ("", Some(0)),
            ("-1", None),
            ("99999999999", None),
        ] {
            assert_eq!(Numbers::Atoi.count(text), number, "{text:?}");
        }
        assert_eq!((Numbers::Atoi.bytes("4m"), Numbers::Atoi.bytes("4m;")), (Some(4 << 20), None));
    }

    #[test]
    fn one_text_is_not_the_same_number_to_all_servers() {
        for (text, decimal, c, rsyslog) in [
            ("010", Some(10), Some(8), Some(10)),
            ("0x10", None, Some(16), None),
            ("0", Some(0), Some(0), Some(0)),
            ("1M", Some(1 << 20), None, Some(1_000_000)),
            ("1m", Some(1 << 20), None, Some(1 << 20)),
            ("4 mb", Some(4 << 20), None, None),
            ("4B", Some(4), None, None),
            ("09", Some(9), None, Some(9)),
            ("0+7", None, None, None),
            ("", None, None, None),
            ("b", None, None, None),
            ("4mm", None, None, None),
        ] {
            let found = [Numbers::Decimal, Numbers::C, Numbers::Rsyslog].map(|numbers| numbers.bytes(text));
            assert_eq!(found, [decimal, c, rsyslog], "{text:?}");
        }
        assert_eq!((Numbers::Rsyslog.count("010"), Numbers::Decimal.count("010")), (Some(8), Some(10)));
        assert_eq!((Numbers::Decimal.count("4m"), Numbers::C.count("64")), (None, Some(64)));
    }
}
