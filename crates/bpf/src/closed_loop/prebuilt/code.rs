//! Which bits of an identifier mean what.
//!
//! ```text
//!   high  | number: low bits of the slot's seq | flow, if there is room | place of the slot in its flow |  low
//! ```
//! The whole is scrambled by an odd factor modulo 2^bits, as in the program, so that neighbouring transactions get
//! unlike identifiers and a flipped bit is not another transaction's.

use super::TableError;

/// `SCRAMBLE` of the program.
const SCRAMBLE: u64 = 0x9e37_79b9_7f4a_7c15;
/// Fewest bits of the number. Fewer: after 2^bits further requests of its slot, a very late reply counts as that of the
/// newest; with 8, a slot of 1,000 transactions/s repeats after a quarter of a second. More: fewer requests in flight
/// fit.
const MIN_NUMBER_BITS: u32 = 8;
/// Fewest bits that must remain for the number if the flow is included. Fewer: numbers repeat sooner, for a flow that
/// the receiving port already tells. More: replies on another flow's port count as corrupt instead.
const NUMBER_BITS_WITH_FLOW: u32 = 16;

/// The same where each slot has requests of its own. Fewer: as above, but complete checks find it, since such requests
/// are signed. More: of the 256 identifiers of RADIUS, fewer requests of a flow may be in flight.
const MIN_OWN_NUMBER_BITS: u32 = 3;

/// The layout of identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdCode {
    place_bits: u32,
    flow_bits: u32,
    number_bits: u32,
}

impl IdCode {
    /// For `flows` flows of `inflight` slots.
    pub(super) fn new(bits: u32, flows: u32, inflight: u32) -> Result<Self, TableError> {
        let place_bits = place_bits(bits, inflight, MIN_NUMBER_BITS)?;
        let flow_bits = bits_for(flows);
        let room = place_bits + flow_bits + NUMBER_BITS_WITH_FLOW <= bits;
        let flow_bits = if room { flow_bits } else { 0 };
        Ok(Self { place_bits, flow_bits, number_bits: bits - place_bits - flow_bits })
    }

    /// For flows of one slot whose requests have no identifier.
    pub(super) fn none(inflight: u32) -> Result<Self, TableError> {
        place_bits(0, inflight, 0)?;
        Ok(Self { place_bits: 0, flow_bits: 0, number_bits: 0 })
    }

    /// For flows of `inflight` slots that have up to 2^`log_numbers` requests each of their own with unlike
    /// identifiers.
    pub(super) fn of_own(bits: u32, inflight: u32, log_numbers: u32) -> Result<Self, TableError> {
        let place_bits = place_bits(bits, inflight, MIN_OWN_NUMBER_BITS)?;
        Ok(Self { place_bits, flow_bits: 0, number_bits: log_numbers.min(bits - place_bits) })
    }

    pub(super) fn flow_shift(self) -> u32 {
        self.place_bits
    }

    /// 0 if identifiers have no room for the flow.
    pub(super) fn flow_mask(self) -> u64 {
        (1 << self.flow_bits) - 1
    }

    pub(super) fn number_shift(self) -> u32 {
        self.place_bits + self.flow_bits
    }

    pub(super) fn number_mask(self) -> u64 {
        u64::MAX.checked_shr(u64::BITS - self.number_bits).unwrap_or(0)
    }

    /// How often the numbers have been used up before `seq`.
    pub(super) fn turn(self, seq: u64) -> u64 {
        seq.checked_shr(self.number_bits).unwrap_or(0)
    }

    /// The scrambled identifier; bits above those of the code are undefined.
    pub(super) fn encode(self, flow: u32, place: u32, seq: u64) -> u64 {
        let number = seq & self.number_mask();
        let flow = u64::from(flow) & self.flow_mask();
        let code = number << self.number_shift() | flow << self.flow_shift() | u64::from(place);
        code.wrapping_mul(SCRAMBLE)
    }
}

/// Bits of the places, if at least `rest` of all bits remain.
fn place_bits(bits: u32, inflight: u32, rest: u32) -> Result<u32, TableError> {
    let (needed, room) = (bits_for(inflight), bits.checked_sub(rest));
    let most = room.map_or(0, |room| 1_u32.checked_shl(room).unwrap_or(u32::MAX));
    room.filter(|room| needed <= *room).map(|_| needed).ok_or(TableError::InFlight { bits, most })
}

/// Bits that hold the numbers below `count`.
fn bits_for(count: u32) -> u32 {
    u32::BITS - count.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_identifiers_hold_place_and_number() {
        let code = IdCode::new(16, 64, 4).unwrap();
        assert_eq!((code.flow_mask(), code.number_shift(), code.number_mask()), (0, 2, 0x3fff));
        assert_eq!(IdCode::new(16, 64, 1).unwrap().number_shift(), 0);
        assert!(IdCode::new(16, 1, 256).is_ok());
        assert_eq!(IdCode::new(16, 1, 257), Err(TableError::InFlight { bits: 16, most: 256 }));
        assert_eq!(IdCode::new(7, 1, 1), Err(TableError::InFlight { bits: 7, most: 0 }));
    }

    #[test]
    fn long_identifiers_hold_the_flow_too() {
        let code = IdCode::new(64, 65, 5).unwrap();
        assert_eq!((code.flow_shift(), code.flow_mask(), code.number_shift()), (3, 127, 10));
        assert_eq!(code.number_mask(), u64::MAX >> 10);
        assert_eq!(IdCode::new(30, 64, 4).unwrap().flow_mask(), 63);
    }

    #[test]
    fn identifiers_of_own_requests_have_no_more_numbers_than_there_are_requests() {
        let code = IdCode::of_own(8, 16, 5).unwrap();
        assert_eq!((code.flow_mask(), code.number_shift(), code.number_mask()), (0, 4, 15));
        let code = IdCode::of_own(22, 16, 8).unwrap();
        assert_eq!((code.number_shift(), code.number_mask()), (4, 255));
        assert_eq!(IdCode::of_own(8, 32, 5).unwrap().number_mask(), 7);
        assert_eq!(IdCode::of_own(8, 33, 5), Err(TableError::InFlight { bits: 8, most: 32 }));
    }

    #[test]
    fn transactions_have_different_identifiers() {
        let code = IdCode::new(16, 2, 3).unwrap();
        let mut seen = std::collections::HashSet::new();
        for (place, seq) in (0..3).flat_map(|place| (0..0x4000).map(move |seq| (place, seq))) {
            assert!(seen.insert(code.encode(0, place, seq) & 0xffff), "{place} {seq}");
        }
        assert_eq!(code.encode(0, 2, 5) & 0xffff, code.encode(1, 2, 5 + 0x4000) & 0xffff);
    }
}
