//! Which requests of a table a slot sends, as `next()` of the program.
//!
//! ```text
//!   shared     slot 0: 0, n, 2n ...   slot 1: 1, n + 1, 2n + 1 ...       n slots, modulo the number of requests
//!   of slots   slot 0: 0 ... m - 1, 0 ...   slot 1: m ... 2m - 1, m ...   the low bits of the slot's seq say which
//! ```

use super::{MAX_REQUESTS, TableError};

/// Fewest numbers that the requests of a slot have in their identifiers. Fewer: stale replies pass for new ones.
const MIN_NUMBERS: u32 = 8;

/// The order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Order {
    /// All slots send every `step`-th of `count`.
    Shared { count: u32, step: u32 },
    /// Each slot has this many of its own, a power of two.
    OfSlots { each: u32 },
}

impl Order {
    /// `count` requests, sent by all of `slots` slots.
    pub(super) fn shared(count: u32, slots: u64) -> Self {
        // Modulo the number of requests, so that the program's next() subtracts it once at most.
        Self::Shared { count, step: (slots % u64::from(count.max(1))) as u32 }
    }

    /// As many requests as there is room for, with `per_id` or more of the same identifier.
    pub(super) fn of_slots(slots: u64, per_id: u32) -> Result<Self, TableError> {
        let least = u64::from(MIN_NUMBERS) * u64::from(per_id.max(1)).next_power_of_two();
        let room = MAX_REQUESTS as u64 / slots.max(1);
        if room < least {
            return Err(TableError::Slots { most: (MAX_REQUESTS as u64 / least) as u32 });
        }
        Ok(Self::OfSlots { each: 1 << room.ilog2() })
    }

    /// The logarithm of how many numbers the identifiers of a slot's own requests may have.
    pub(super) fn log_numbers(self, per_id: u32) -> u32 {
        let Self::OfSlots { each } = self else { return 0 };
        each.ilog2() - per_id.max(1).next_power_of_two().ilog2()
    }

    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Number of requests, for this many slots.
    pub(super) fn count(self, slots: u32) -> u32 {
        match self {
            Self::Shared { count, .. } => count,
            Self::OfSlots { each } => slots * each,
        }
    }

    /// The slot that has `request` for its own, and the lowest seq for which it sends it.
    pub(super) fn own(self, request: u32) -> Option<(u32, u64)> {
        match self {
            Self::Shared { .. } => None,
            Self::OfSlots { each } => Some((request / each, u64::from(request % each))),
        }
    }

    pub(super) fn step(self) -> u32 {
        match self {
            Self::Shared { step, .. } => step,
            Self::OfSlots { .. } => 0,
        }
    }

    /// 0 if requests are shared.
    pub(super) fn own_mask(self) -> u32 {
        match self {
            Self::Shared { .. } => 0,
            Self::OfSlots { each } => each - 1,
        }
    }

    /// The first request of a slot.
    pub(in super::super) fn first(self, slot: usize) -> u64 {
        match self {
            Self::Shared { count, .. } => slot as u64 % u64::from(count),
            Self::OfSlots { each } => slot as u64 * u64::from(each),
        }
    }

    /// The one after `request`, for transaction `seq` of `slot`.
    pub(in super::super) fn next(self, request: u64, slot: usize, seq: u64) -> u64 {
        match self {
            Self::Shared { count, step } => (request + u64::from(step)) % u64::from(count),
            Self::OfSlots { each } => self.first(slot) + seq % u64::from(each),
        }
    }
}
