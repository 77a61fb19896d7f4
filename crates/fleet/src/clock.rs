//! How far another machine's clock is ahead: the four times of NTP (RFC 5905, 8), over NATS.
//!
//! ```text
//!   caller   asked ─────────────────────────── heard          offset = ((received - asked) + (answered - heard)) / 2
//!                 \                          /                 delay = (heard - asked) - (answered - received)
//!   agent          received ─────── answered
//! ```
//! The offset is wrong by half of the delay at most, so the exchange with the least delay counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much of an offset may be due to the exchange itself, beyond half of its delay, nanoseconds. Lower: the starts of
/// machines with equal clocks are moved apart by noise. Higher: machines whose clocks differ by less start that far
/// apart.
const NOISE_NS: i64 = 500_000;

/// How far one clock is ahead of another, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// How far it is ahead, nanoseconds.
    pub ahead_ns: i64,
    /// How long the exchange took on the way, nanoseconds: `ahead_ns` is wrong by half of it at most.
    pub delay_ns: i64,
}

impl Offset {
    /// From the four times of an exchange, nanoseconds since 1970; none if they contradict each other.
    pub(crate) fn new(asked: u64, received: u64, answered: u64, heard: u64) -> Option<Self> {
        let less = |a: u64, b: u64| i128::from(a) - i128::from(b);
        let delay = less(heard, asked) - less(answered, received);
        let ahead = (less(received, asked) + less(answered, heard)) / 2;
        let valid = heard >= asked && answered >= received && delay >= 0;
        valid.then(|| Some(Self { ahead_ns: ahead.try_into().ok()?, delay_ns: delay.try_into().ok()? }))?
    }

    /// The better one of two.
    pub(crate) fn better(self, other: Option<Self>) -> Self {
        other.filter(|other| other.delay_ns <= self.delay_ns).unwrap_or(self)
    }

    /// How far the clock is ahead, if that cannot be due to the exchange; else 0.
    pub(crate) fn significant(self) -> i64 {
        let noise = NOISE_NS.saturating_add(self.delay_ns / 2);
        if self.ahead_ns.abs() > noise { self.ahead_ns } else { 0 }
    }
}

/// This machine's clock, nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    nanos(SystemTime::now())
}

fn nanos(at: SystemTime) -> u64 {
    length(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in nanoseconds.
pub(crate) fn length(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn at(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_clocks_are_left_alone() {
        let offset = Offset::new(1000, 1_401_000, 1_402_000, 1_603_000).unwrap();
        assert_eq!((offset.ahead_ns, offset.delay_ns, offset.significant()), (599_500, 1_601_000, 0));
        assert_eq!(Offset::new(1000, 900, 800, 1000), None);
        assert_eq!(Offset::new(1000, 900, 1200, 1100), None);
    }

    proptest! {
        #[test]
        fn an_offset_is_wrong_by_half_of_the_delay_at_most(
            ahead in -10_000_000_000i64..10_000_000_000, there in 0u64..5_000_000, back in 0u64..5_000_000, work in 0u64..1_000_000
        ) {
            let asked = 1_800_000_000_000_000_000u64;
            let received = (asked + there).checked_add_signed(ahead).unwrap();
            let offset = Offset::new(asked, received, received + work, asked + there + work + back).unwrap();
            prop_assert_eq!(offset.delay_ns as u64, there + back);
            prop_assert!((offset.ahead_ns - ahead).abs() <= offset.delay_ns / 2 + 1);
            if ahead.abs() > 10_000_000 {
                prop_assert_eq!(offset.significant(), offset.ahead_ns);
            }
        }
    }
}
