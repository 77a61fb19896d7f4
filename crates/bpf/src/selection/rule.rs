//! Which of the occupied slots gets a datagram: `struct rule` of the program.

use super::{MAX_SLOTS, refused};
use crate::Error;

/// Bytes that a field can have: `FIELD_WORDS` of the program.
pub const MAX_FIELD: u8 = 32;
/// Bytes that a datagram can carry: a field ends within them.
pub const MAX_PAYLOAD: u32 = 65_507;

/// `struct rule` of the program: kind, offset, length.
pub(super) type RuleWords = [u32; 3];

/// Which of the occupied slots gets a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// By the kernel's keyed hash of the flow: its datagrams stay on one socket, in order.
    Hash,
    /// The number of the receiving CPU, modulo the occupied slots.
    Cpu,
    /// One after the other; each receiving CPU has its own turn, so that the counts of two sockets differ by at most
    /// one for each CPU. Datagrams of a flow can be read out of order.
    RoundRobin,
    /// The shortest queue, in bytes of the kernel's accounting; of empty ones the next that a thread waits for, of
    /// equal ones the next in turn. With more than 16 occupied slots the shortest of 16 in turn. Datagrams of a flow
    /// can be read out of order.
    LeastLoaded,
    /// By a hash of a part of the payload, such as a connection ID; by that of the flow if the datagram ends before it.
    Field {
        /// From the first byte of the payload.
        offset: u16,
        /// Bytes: 1 to [`MAX_FIELD`].
        length: u8,
    },
}

impl Rule {
    /// As the program reads it.
    pub(super) fn words(self) -> RuleWords {
        match self {
            Self::Hash => [0, 0, 0],
            Self::Cpu => [1, 0, 0],
            Self::RoundRobin => [2, 0, 0],
            Self::LeastLoaded => [3, 0, 0],
            Self::Field { offset, length } => [4, offset.into(), length.into()],
        }
    }

    /// `None` for words of another version of the program.
    pub(super) fn of(words: RuleWords) -> Option<Self> {
        match words {
            [0, 0, 0] => Some(Self::Hash),
            [1, 0, 0] => Some(Self::Cpu),
            [2, 0, 0] => Some(Self::RoundRobin),
            [3, 0, 0] => Some(Self::LeastLoaded),
            [4, offset, length] => {
                Some(Self::Field { offset: offset.try_into().ok()?, length: length.try_into().ok()? })
            }
            _ => None,
        }
    }

    /// Whether rule and number of slots are in range.
    pub(super) fn check(self, slots: u32) -> Result<(), Error> {
        let invalid = |why: String| Err(refused("load BPF program 'selection'", why.into()));
        if !(1..=MAX_SLOTS).contains(&slots) {
            return invalid(format!("a group has 1 to {MAX_SLOTS} slots, not {slots}"));
        }
        match self {
            Self::Field { length, .. } if !(1..=MAX_FIELD).contains(&length) => {
                invalid(format!("a field has 1 to {MAX_FIELD} bytes, not {length}"))
            }
            Self::Field { offset, length } if u32::from(offset) + u32::from(length) > MAX_PAYLOAD => {
                invalid(format!(
                    "a field of {length} bytes at {offset} is beyond the longest datagram, {MAX_PAYLOAD} bytes"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use error_reporter::Report;

    use super::*;

    #[test]
    fn rules_round_trip() {
        let field = Rule::Field { offset: 6, length: 8 };
        for rule in [Rule::Hash, Rule::Cpu, Rule::RoundRobin, Rule::LeastLoaded, field] {
            assert_eq!(Rule::of(rule.words()), Some(rule));
        }
        assert_eq!((Rule::of([5, 0, 0]), Rule::of([0, 1, 0]), Rule::of([4, 0, 256])), (None, None, None));
    }

    #[test]
    fn what_is_out_of_range_is_said_before_anything_is_loaded() {
        let said = |rule: Rule, slots| Report::new(rule.check(slots).unwrap_err()).to_string();
        let field = |offset, length| Rule::Field { offset, length };
        assert!(said(Rule::Hash, 0).ends_with("a group has 1 to 256 slots, not 0"));
        assert!(said(Rule::Hash, 257).ends_with("not 257"));
        assert!(said(field(0, 0), 4).ends_with("a field has 1 to 32 bytes, not 0"));
        assert!(said(field(0, 33), 4).ends_with("not 33"));
        assert!(said(field(65_500, 8), 4).contains("beyond the longest datagram"));
        assert!(field(65_499, 8).check(256).is_ok() && Rule::Hash.check(1).is_ok());
    }
}
