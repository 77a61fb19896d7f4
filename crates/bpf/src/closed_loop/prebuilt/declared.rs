//! What a protocol declares of its requests and replies.

use std::borrow::Cow;

/// The field that identifies a transaction: the server copies it from the request into its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Offset in a request, bytes.
    pub at: usize,
    /// Offset in a reply, bytes.
    pub echoed_at: usize,
    /// Bytes, big endian: 1, 2, 4 or 8.
    pub width: usize,
    /// Its low bits that may take any value, 1 to 8 times `width`. The others stay as the request has them.
    pub bits: u32,
}

impl Id {
    /// There is none: a flow has one request in flight, and any reply to it is the answer.
    pub const NONE: Self = Self { at: 0, echoed_at: 0, width: 0, bits: 0 };

    pub(super) fn mask(self) -> u64 {
        u64::MAX.checked_shr(u64::BITS.saturating_sub(self.bits)).unwrap_or(0)
    }

    /// The field at `at`; `None` outside the message.
    pub(super) fn read(self, message: &[u8], at: usize) -> Option<u64> {
        let field = message.get(at..at.checked_add(self.width)?)?;
        Some(field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Replaces its varying bits at `at`; nothing outside the message.
    pub(super) fn write(self, message: &mut [u8], at: usize, value: u64) {
        let Some(field) = self.read(message, at) else { return };
        let bytes = (field & !self.mask() | value & self.mask()).to_be_bytes();
        if let (Some(place), Some(bytes)) =
            (message.get_mut(at..at + self.width), bytes.get(bytes.len() - self.width..))
        {
            place.copy_from_slice(bytes);
        }
    }
}

/// What a reply is, by a [`Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It answers the request.
    Valid,
    /// It is intact and refuses the request.
    Refused,
    /// It is damaged, or not of the protocol.
    Corrupt,
}

/// A comparison of four bytes of a reply. The first rule that applies decides; a reply to which none applies is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub(super) at: usize,
    mask: [u8; 4],
    value: [u8; 4],
    unless: bool,
    verdict: Verdict,
}

impl Rule {
    /// `verdict` if the masked bytes at `at` equal `value`.
    #[must_use]
    pub const fn when(at: usize, mask: [u8; 4], value: [u8; 4], verdict: Verdict) -> Self {
        Self { at, mask, value, unless: false, verdict }
    }

    /// `verdict` if the masked bytes at `at` differ from `value`.
    #[must_use]
    pub const fn unless(at: usize, mask: [u8; 4], value: [u8; 4], verdict: Verdict) -> Self {
        Self { at, mask, value, unless: true, verdict }
    }

    /// `struct rule` of the program.
    pub(super) fn words(&self) -> [u32; 4] {
        let verdict = match self.verdict {
            Verdict::Valid => 0,
            Verdict::Refused => 1,
            Verdict::Corrupt => 2,
        };
        let [mask, value] = [self.mask, self.value].map(u32::from_ne_bytes);
        [self.at as u32, mask, value, verdict | u32::from(self.unless) << 8]
    }
}

/// An element of BER (X.690) around the identifier of a message and the fields that rules look at. A length of the long
/// form moves them by as many bytes as it has more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Offset of its tag, if every length before has one byte.
    pub at: usize,
    /// The tag in a reply.
    pub tag: u8,
}

/// Longest length that is understood, bytes: `MAX_LENGTH` of the program.
const MAX_LENGTH: usize = 4;

/// How the program judges a reply, before it looks at the identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyRules {
    /// The shortest reply, bytes. Identifier and rules must lie within it.
    pub min: usize,
    /// The longest reply, bytes.
    pub max: usize,
    /// Elements that identifier and rules are within, outermost first, at most [`MAX_ELEMENTS`](super::MAX_ELEMENTS).
    /// Offsets are those of messages in which each of their lengths has one byte.
    pub within: Vec<Element>,
    /// In order, at most [`MAX_RULES`](super::MAX_RULES).
    pub rules: Cow<'static, [Rule]>,
}

impl ReplyRules {
    /// By how many bytes long lengths move the fields of `message`; `None` if it has no such elements.
    pub(super) fn moved(&self, message: &[u8]) -> Option<usize> {
        self.within.iter().try_fold(0, |by, element| match message.get(element.at.checked_add(by)?..)? {
            [_, 0..0x80, ..] => Some(by),
            [_, long, ..] => Some(by + usize::from(long & 0x7f)).filter(|_| long & 0x7f <= MAX_LENGTH as u8),
            _ => None,
        })
    }
}
