//! Keys of the Toeplitz hash.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::Input;

/// The key of Microsoft's verification suite, the default of DPDK and of many drivers of other systems.
const MICROSOFT: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key of the Toeplitz hash, 40 to 256 bytes. Its text form is that of `ethtool -x`: `6d:5a:56:da:...`.
#[derive(Clone, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(from = "String", into = "String")]
pub struct Key {
    bytes: Box<[u8]>,
}

/// Why something is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Too short for IPv6 with ports, or longer than any device has.
    #[error("invalid key length {bytes}: expected {min} to {max} bytes", min = Key::MIN_LEN, max = Key::MAX_LEN)]
    Length {
        /// The given length, bytes.
        bytes: usize,
    },
    /// Not a hexadecimal digit.
    #[error(
        "character {at} of the key is not a hexadecimal digit; write the key as ethtool -x prints it, 6d:5a:56:da:..."
    )]
    NotHexadecimal {
        /// Position of the character, from 1.
        at: usize,
    },
    /// An odd number of digits, or a colon inside a byte.
    #[error(
        "the byte before character {at} of the key has one digit; write two for each byte, 6d:5a:56:da:..."
    )]
    HalfByte {
        /// Position of the first character after it, from 1.
        at: usize,
    },
}

impl Key {
    /// The shortest key: an input of 36 bytes (IPv6 with ports) uses 36 + 4.
    pub const MIN_LEN: usize = Input::MAX_LEN + 4;
    /// The maximum length. i40e and ice have 52 bytes, the most of common cards; this leaves room. Only the first 40
    /// bytes of a key matter for what is hashed here.
    pub const MAX_LEN: usize = 256;

    /// A key with these bytes.
    ///
    /// # Errors
    /// It is too short or too long.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        match bytes.len() {
            Self::MIN_LEN..=Self::MAX_LEN => Ok(Self { bytes: bytes.into() }),
            other => Err(KeyError::Length { bytes: other }),
        }
    }

    /// The key of Microsoft's verification suite.
    #[must_use]
    pub fn microsoft() -> Self {
        Self { bytes: MICROSOFT.into() }
    }

    /// The key that gives both directions of a flow the same hash: 6d5a repeated. Its period is 16 bits, so source
    /// and destination can be swapped; the price is that only 16 bits of the hash vary (Woo and Park, 2012).
    #[must_use]
    pub fn symmetric() -> Self {
        Self { bytes: [0x6d, 0x5a].repeat(Self::MIN_LEN / 2).into() }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash by its definition, bit by bit: the reference for [`super::Toeplitz`], several hundred times slower.
    #[must_use]
    pub fn hash_bitwise(&self, input: &Input) -> u32 {
        let mut hash = 0;
        for (at, byte) in input.bytes().iter().enumerate() {
            for bit in 0..8 {
                if byte & (0x80 >> bit) != 0 {
                    hash ^= self.window(at * 8 + bit);
                }
            }
        }
        hash
    }

    /// The 32 bits that start at bit `from`, counted from the left. Zeros past the end.
    pub(super) fn window(&self, from: usize) -> u32 {
        // Five bytes hold any 32 bits.
        let byte = |at: usize| u64::from(self.bytes.get(at).copied().unwrap_or(0));
        let five = (from / 8..from / 8 + 5).fold(0, |five, at| five << 8 | byte(at));
        (five >> (8 - from % 8)) as u32
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().enumerate().try_for_each(|(at, byte)| {
            let colon = if at == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// With colons between bytes, as `ethtool -x` prints it, or without; also the names `microsoft` and `symmetric`.
impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text.trim() {
            "microsoft" => return Ok(Self::microsoft()),
            "symmetric" => return Ok(Self::symmetric()),
            _ => {}
        }
        let mut bytes = Vec::with_capacity(Self::MIN_LEN);
        let mut half = None;
        for (at, character) in text.trim().chars().enumerate().map(|(at, character)| (at + 1, character)) {
            match (character.to_digit(16), half) {
                (None, None) if character == ':' && at > 1 => {}
                (None, Some(_)) if character == ':' => return Err(KeyError::HalfByte { at }),
                (None, _) => return Err(KeyError::NotHexadecimal { at }),
                (Some(digit), None) => half = Some(digit as u8),
                (Some(digit), Some(high)) => {
                    bytes.push(high << 4 | digit as u8);
                    half = None;
                }
            }
            // Long enough to know that it is too long; the rest might be gigabytes.
            if bytes.len() > Self::MAX_LEN {
                break;
            }
        }
        match half {
            Some(_) => Err(KeyError::HalfByte { at: text.trim().chars().count() + 1 }),
            None => Self::new(&bytes),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
