//! Object identifiers: `1.3.6.1.2.1.1.3.0` as text, and as BER's contents, seven bits of a sub-identifier per byte.

use std::cmp::Ordering;
use std::str::FromStr;

/// An object identifier, as the contents of its element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oid(Box<[u8]>);

/// Most sub-identifiers of an object identifier (RFC 3416, 4.1).
const MAX_PARTS: usize = 128;

/// Why a text is not an object identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidError {
    /// One part, or none.
    #[error("`{0}` is not an OID: expected numbers with dots between them, such as 1.3.6.1.2.1.1.3.0")]
    NotAnOid(String),
    /// A part that is no number.
    #[error("`{part}` in `{oid}` is not a number from 0 to 4294967295: use the OID's numbers, not its names")]
    Part {
        /// The whole.
        oid: String,
        /// The part.
        part: String,
    },
    /// A beginning that has no encoding.
    #[error(
        "`{0}` begins with numbers that no OID begins with: expected 0, 1 or 2, and below 0 and 1 one up to 39"
    )]
    Root(String),
    /// Too many parts.
    #[error("`{0}` has more than {MAX_PARTS} numbers")]
    TooLong(String),
}

impl FromStr for Oid {
    type Err = OidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.strip_prefix('.').unwrap_or(text).split('.');
        let parts = parts.map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part.parse::<u32>().ok().filter(|_| digits);
            number.ok_or_else(|| OidError::Part { oid: text.to_owned(), part: part.to_owned() })
        });
        if !text.contains('.') {
            return Err(OidError::NotAnOid(text.to_owned()));
        }
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let [first, second, rest @ ..] = &parts[..] else { return Err(OidError::NotAnOid(text.to_owned())) };
        if *first > 2 || (*first < 2 && *second > 39) {
            return Err(OidError::Root(text.to_owned()));
        }
        if parts.len() > MAX_PARTS {
            return Err(OidError::TooLong(text.to_owned()));
        }
        let mut contents = Vec::new();
        // The first two share a sub-identifier.
        let head = u64::from(*first) * 40 + u64::from(*second);
        for part in std::iter::once(head).chain(rest.iter().map(|part| u64::from(*part))) {
            let groups = (u64::BITS - part.leading_zeros()).div_ceil(7).max(1);
            for group in (0..groups).rev() {
                let more = if group > 0 { 0x80 } else { 0 };
                contents.push((part >> (7 * group)) as u8 & 0x7f | more);
            }
        }
        Ok(Self(contents.into()))
    }
}

impl Oid {
    /// The contents of its element.
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        &self.0
    }
}

/// The sub-identifiers of an element's contents.
fn parts(contents: &[u8]) -> impl Iterator<Item = u64> {
    let value = |part: &[u8]| part.iter().fold(0, |sum: u64, byte| sum << 7 | u64::from(byte & 0x7f));
    contents.split_inclusive(|byte| byte & 0x80 == 0).map(value)
}

/// Whether an element's contents are an object identifier.
pub(super) fn is_valid(contents: &[u8]) -> bool {
    // Bounds the work on the longest datagram as well.
    let bounded = !contents.is_empty() && contents.len() <= MAX_PARTS * 5;
    bounded
        && contents.split_inclusive(|byte| byte & 0x80 == 0).all(|part| {
            // Five bytes hold 35 bits; no part begins with an empty group, and the last one ends.
            part.len() <= 5 && part.first() != Some(&0x80) && part.last().is_some_and(|last| last & 0x80 == 0)
        })
}

/// The order of two object identifiers (RFC 3416, 4.2.2): by sub-identifiers, not by bytes.
pub(super) fn compare(one: &[u8], other: &[u8]) -> Ordering {
    parts(one).cmp(parts(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(text: &str) -> Oid {
        text.parse().unwrap()
    }

    #[test]
    fn texts_are_encoded() {
        for (text, contents) in [
            ("1.3.6.1.2.1.1.3.0", &[0x2b, 6, 1, 2, 1, 1, 3, 0][..]),
            (".1.3.6.1", &[0x2b, 6, 1]),
            ("0.0", &[0]),
            ("2.999", &[0x88, 0x37]),
            ("1.3.127.128.16383.16384", &[0x2b, 0x7f, 0x81, 0, 0xff, 0x7f, 0x81, 0x80, 0]),
            ("1.3.4294967295", &[0x2b, 0x8f, 0xff, 0xff, 0xff, 0x7f]),
            ("2.4294967295", &[0x90, 0x80, 0x80, 0x80, 0x4f]),
        ] {
            assert_eq!(oid(text).contents(), contents, "{text}");
            assert!(is_valid(contents), "{text}");
        }
    }

    #[test]
    fn what_is_no_oid_is_named() {
        let long = ["1"; 129].join(".");
        for (text, said) in [
            ("", "`` is not an OID"),
            ("1", "`1` is not an OID"),
            ("sysUpTime", "`sysUpTime` is not an OID"),
            ("1.3.x", "`x` in `1.3.x` is not a number"),
            ("1.3..6", "`` in `1.3..6` is not a number"),
            ("1.3.+6", "`+6` in"),
            ("1.3.4294967296", "`4294967296` in"),
            ("3.1", "`3.1` begins with"),
            ("1.40", "`1.40` begins with"),
            (&long, "has more than 128 numbers"),
        ] {
            let error = text.parse::<Oid>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        let sorted = [
            "0.0",
            "1.3",
            "1.3.0",
            "1.3.127",
            "1.3.127.5",
            "1.3.128",
            "1.3.16383",
            "1.3.16384",
            "1.4",
            "2.999",
        ];
        for (i, one) in sorted.iter().enumerate() {
            for (j, other) in sorted.iter().enumerate() {
                assert_eq!(compare(oid(one).contents(), oid(other).contents()), i.cmp(&j), "{one} {other}");
            }
        }
    }

    #[test]
    fn malformed_contents_are_rejected() {
        for wrong in [&[][..], &[0x81], &[0x2b, 0x80, 1], &[0x2b, 0x81, 0x81, 0x81, 0x81, 0x81, 1], &[1; 641]]
        {
            assert!(!is_valid(wrong), "{wrong:?}");
        }
    }
}
