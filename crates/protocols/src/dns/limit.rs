//! Response rate limiting: how often a network gets replies of one kind, so that queries with forged addresses do not
//! make the server flood their owners.
//!
//! ```text
//! 192.0.2.77, x.example.org, NXDOMAIN ─▸ 192.0.2.0/24 | no such name | zone example.org ─▸ within its rate: reply
//!                                        └▸ over it: every second time a truncated reply, else none
//! ```
//! As NSD does it, each answer has its own rate: resolvers that ask for thousands of names are not held back, and a
//! flood of questions for one name is, with names below it that do not exist or that a wildcard answers.
//!
//! A real client in that network soon gets a truncated reply and retries over TCP, where addresses cannot be forged.
//! Cookies lift the limit (RFC 7873, 5.2.3). The table is [`ClientLimit`]'s, which all workers share without locks.

use std::net::IpAddr;
use std::time::Duration;

use udpath_serve::{Admission, ClientLimit, LimitError};

/// Highest rate: the table counts in milliseconds.
pub(super) const MAX_RATE: u32 = 1000;
/// Rate unless the user chooses another: NSD's (`rrl-ratelimit`). A resolver asks once per TTL for the same answer, and
/// many resolvers of one network a few times. Lower: a large site is told to use TCP when records have TTLs of a
/// second; higher: more bytes for the owner of forged addresses, 246 KB/s from the largest reply at this rate.
pub(super) const DEFAULT_RATE: u32 = 200;

/// What a reply says. Each kind has its own rate: answers that many clients of a network want are not held back because
/// one of them asks for names that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records, or a referral.
    Answer = 1,
    /// No record of the type.
    NoData = 2,
    /// No such name.
    NoName = 3,
    /// An error.
    Error = 4,
}

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The reply.
    Reply,
    /// The reply without records, and truncated.
    Truncated,
    /// Nothing.
    Nothing,
}

/// The limit.
#[derive(Debug)]
pub(super) struct ResponseLimit(ClientLimit);

impl ResponseLimit {
    /// `rate` replies of a kind per second and network, 1 to [`MAX_RATE`], and as many at once as come in a second.
    /// Rates that do not divide 1,000 are rounded down to the next interval of whole milliseconds.
    pub(super) fn new(rate: u32) -> Result<Self, LimitError> {
        let interval = 1000_u32.div_ceil(rate.max(1));
        Ok(Self(ClientLimit::new(Duration::from_millis(interval.into()), rate)?))
    }

    /// Decides on a reply to `client` at `now`, a time since boot. `id`: which of the answers of that kind it is.
    pub(super) fn admit(&self, client: IpAddr, kind: Kind, id: u32, now: Duration) -> Verdict {
        match self.0.admit_key((network(client), u64::from(id) << 8 | kind as u64), now) {
            Admission::Admitted => Verdict::Reply,
            Admission::Refused { nth } if nth % 2 == 0 && nth > 0 => Verdict::Truncated,
            Admission::Refused { .. } => Verdict::Nothing,
        }
    }
}

/// The network of a client, as a number.
fn network(client: IpAddr) -> u64 {
    match client {
        // Below every global IPv6 network: those begin with another byte than 0.
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
        // A host may choose its addresses within a /64, and a home gets a /56.
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 & !0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_rate_every_second_reply_is_truncated_and_the_others_are_not_sent() {
        let limit = ResponseLimit::new(5).unwrap();
        let client = "192.0.2.1".parse().unwrap();
        let at = |millis: u64| limit.admit(client, Kind::Answer, 7, Duration::from_millis(millis));
        let all: Vec<_> = (0..11).map(|_| at(1000)).collect();
        let (within, over) = all.split_at(5);
        assert!(within.iter().all(|verdict| *verdict == Verdict::Reply), "{within:?}");
        let pair = [Verdict::Nothing, Verdict::Truncated];
        assert_eq!(over, [&pair[..], &pair, &pair].concat());
        assert_eq!(at(1200), Verdict::Reply, "one more each 200 ms");
        assert_eq!(at(1200), Verdict::Nothing);
    }

    #[test]
    fn networks_and_kinds_count_apart() {
        let limit = ResponseLimit::new(1).unwrap();
        let now = Duration::from_secs(9);
        let admitted =
            |client: &str, kind| limit.admit(client.parse().unwrap(), kind, 7, now) == Verdict::Reply;
        assert!(admitted("192.0.2.1", Kind::Answer) && admitted("192.0.2.1", Kind::NoName));
        assert!(!admitted("192.0.2.254", Kind::Answer) && admitted("192.0.3.1", Kind::Answer));
        assert!(admitted("2001:db8:0:100::1", Kind::Answer) && !admitted("2001:db8:0:1ff::2", Kind::Answer));
        assert!(admitted("2001:db8:0:200::1", Kind::Answer));
    }

    #[test]
    fn answers_count_apart() {
        let limit = ResponseLimit::new(1).unwrap();
        let client = "192.0.2.1".parse().unwrap();
        let admitted = |id| limit.admit(client, Kind::Answer, id, Duration::from_secs(9)) == Verdict::Reply;
        assert!((0..1000).all(admitted));
        assert!(!(0..1000).any(admitted));
    }

    #[test]
    fn rates_have_a_range() {
        for rate in [1, 7, MAX_RATE] {
            ResponseLimit::new(rate).unwrap();
        }
        ResponseLimit::new(0).unwrap_err();
    }
}
