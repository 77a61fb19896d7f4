//! Limits how often each client is answered: [`ClientLimit`], a table of fixed size that all workers share without
//! locks.
//!
//! ```text
//! client ─▸ keyed hash ─▸ line of 8 clients, one cache line ─▸ its entry, or that of the client idle for longest
//!           entry: tag (24 bits) | refused in a row (8) | when its next request is on schedule (32, ms)
//! ```
//! The generic cell rate algorithm (ITU-T I.371): each request moves the client's schedule one interval ahead, and a
//! request is refused while the schedule is more than a burst ahead of the clock. That is a token bucket in one number,
//! so an entry changes with a single compare-and-swap. The hash is keyed, so a sender cannot choose addresses that
//! share a line.
//!
//! A flood from more forged addresses than the table has entries makes it forget clients: it then admits too much,
//! never too little.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Lines of the table: 65,536 clients in 512 KiB. With fewer, a busy public server forgets clients between their
/// requests; with more, the table takes cache from the service.
const LINES: usize = 8192;
/// Clients per line: 64 bytes, one cache line.
const WAYS: usize = 8;
/// Attempts to change an entry that other workers are changing. Only a client that floods several workers at once gets
/// there; it is then refused. More attempts would let it hold up the workers.
const ATTEMPTS: usize = 4;
/// Longest interval times burst, in milliseconds: a quarter of the range of the 32-bit schedule (12 days), so that an
/// idle entry is not mistaken for a schedule ahead.
const MAX_AHEAD: u128 = 1 << 30;

/// Admits each client at a mean rate, with bursts. IPv6 clients count by their /64 network, within which a host may
/// choose its addresses.
pub struct ClientLimit {
    lines: Box<[Line]>,
    hash: RandomState,
    /// Milliseconds per request, and how far the schedule may be ahead.
    interval: u32,
    ahead: u32,
}

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; WAYS]);

/// Whether a request may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The client is within its rate.
    Admitted,
    /// It is not. `nth` counts its refused requests since the last one admitted: 1, 2, ... 255, 128, 129, ...; 0 if
    /// several workers served the client at once and the count was not kept.
    Refused {
        /// See above.
        nth: u8,
    },
}

/// An interval and burst that the table cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{burst} requests at {interval:?} each: expected 1 ms or more each, and at most 12 days for all of them"
)]
pub struct LimitError {
    interval: Duration,
    burst: u32,
}

impl ClientLimit {
    /// One request per `interval` and client on average, and up to `burst` at once.
    ///
    /// # Errors
    /// An interval below 1 ms, a burst of 0, or a product above 12 days.
    pub fn new(interval: Duration, burst: u32) -> Result<Self, LimitError> {
        let error = LimitError { interval, burst };
        let millis = interval.as_millis();
        if millis == 0 || burst == 0 || millis.saturating_mul(u128::from(burst)) > MAX_AHEAD {
            return Err(error);
        }
        let interval = u32::try_from(millis).map_err(|_too_long| error)?;
        let lines = (0..LINES).map(|_| Line::default()).collect();
        Ok(Self { lines, hash: RandomState::new(), interval, ahead: interval * (burst - 1) })
    }

    /// Decides on a request of `client` at `now`, a time since boot such as
    /// [`Request::received`](crate::Request::received). Does not allocate or block.
    #[must_use]
    pub fn admit(&self, client: IpAddr, now: Duration) -> Admission {
        self.admit_key(
            match client {
                IpAddr::V4(v4) => u64::from(v4.to_bits()),
                // Differs from every IPv4 address: those are below 2^32, global IPv6 networks are not.
                IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
            },
            now,
        )
    }

    /// Like [`ClientLimit::admit`], for clients that the service tells apart by another key, such as network and
    /// question.
    #[must_use]
    pub fn admit_key(&self, key: impl Hash, now: Duration) -> Admission {
        // The schedule wraps after 49 days, and is only compared with times near it.
        self.admit_hash(self.hash.hash_one(key), now.as_millis() as u32)
    }

    fn admit_hash(&self, hash: u64, now: u32) -> Admission {
        let line = &self.lines[hash as usize % LINES].0;
        // 0 marks an unused entry.
        let tag = ((hash >> 40) as u32).max(1);
        for _ in 0..ATTEMPTS {
            let (place, old) = find(line, tag, now);
            let entry = Entry::of(old);
            // Ahead by more than is possible: an entry so old that the clock wrapped.
            let ahead = match entry.due.wrapping_sub(now) {
                ahead if entry.tag == tag && ahead <= self.ahead + self.interval => ahead,
                _ => 0,
            };
            let (new, admission) = if ahead <= self.ahead {
                let due = now.wrapping_add(ahead).wrapping_add(self.interval);
                (Entry { tag, refused: 0, due }, Admission::Admitted)
            } else {
                let nth = entry.refused.checked_add(1).unwrap_or(128);
                (Entry { refused: nth, ..entry }, Admission::Refused { nth })
            };
            if place.compare_exchange_weak(old, new.bits(), Relaxed, Relaxed).is_ok() {
                return admission;
            }
        }
        Admission::Refused { nth: 0 }
    }
}

impl std::fmt::Debug for ClientLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientLimit").field("interval_ms", &self.interval).finish_non_exhaustive()
    }
}

/// The client's entry, or the one whose schedule is furthest behind: an unused one, or that of an idle client.
fn find(line: &[AtomicU64; WAYS], tag: u32, now: u32) -> (&AtomicU64, u64) {
    let (mut found, mut bits) = (&line[0], line[0].load(Relaxed));
    let behind = |bits: u64| if bits == 0 { i32::MIN } else { Entry::of(bits).due.wrapping_sub(now) as i32 };
    for place in line {
        let here = place.load(Relaxed);
        if Entry::of(here).tag == tag {
            return (place, here);
        }
        if behind(here) < behind(bits) {
            (found, bits) = (place, here);
        }
    }
    (found, bits)
}

/// An entry, unpacked.
#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: u32,
    refused: u8,
    /// When the next request is on schedule, milliseconds since boot.
    due: u32,
}

impl Entry {
    fn of(bits: u64) -> Self {
        Self { tag: (bits >> 40) as u32, refused: (bits >> 32) as u8, due: bits as u32 }
    }

    fn bits(self) -> u64 {
        u64::from(self.tag) << 40 | u64::from(self.refused) << 32 | u64::from(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn limit(seconds: u64, burst: u32) -> ClientLimit {
        ClientLimit::new(Duration::from_secs(seconds), burst).unwrap()
    }

    #[test]
    fn a_burst_is_admitted_and_then_one_per_interval() {
        let limit = limit(8, 3);
        let at = |seconds: f64| limit.admit(CLIENT, Duration::from_secs_f64(seconds));
        assert_eq!([at(100.0), at(100.0), at(100.0)], [Admission::Admitted; 3]);
        for nth in 1..=3 {
            assert_eq!(at(107.9), Admission::Refused { nth });
        }
        assert_eq!(at(108.0), Admission::Admitted);
        assert_eq!(at(108.0), Admission::Refused { nth: 1 }, "counted anew");
        // Idle for longer than the burst: all of it again, and no more.
        assert_eq!([at(1e4), at(1e4), at(1e4)], [Admission::Admitted; 3]);
        assert_eq!(at(1e4), Admission::Refused { nth: 1 });
    }

    #[test]
    fn the_count_of_refused_requests_goes_on_at_128() {
        let limit = limit(1000, 1);
        assert_eq!(limit.admit(CLIENT, Duration::ZERO), Admission::Admitted);
        let counted: Vec<_> = (0..384).map(|_| limit.admit(CLIENT, Duration::ZERO)).collect();
        let nth = |index: usize| {
            counted[index]
                == Admission::Refused { nth: if index < 255 { index + 1 } else { index - 127 } as u8 }
        };
        assert!((0..383).all(nth), "{counted:?}");
    }

    #[test]
    fn clients_are_limited_apart_and_ipv6_hosts_by_network() {
        let limit = limit(60, 1);
        let admit =
            |text: &str| limit.admit(text.parse().unwrap(), Duration::from_secs(5)) == Admission::Admitted;
        assert!(admit("192.0.2.1") && admit("192.0.2.2") && admit("2001:db8::1") && admit("2001:db8:0:1::1"));
        assert!(!admit("192.0.2.1") && !admit("2001:db8::ffff") && !admit("2001:db8:0:1::2"));
    }

    #[test]
    fn the_clock_may_wrap() {
        let limit = limit(10, 2);
        let at = |millis: u64| limit.admit(CLIENT, Duration::from_millis(millis));
        let wrap = 1 << 32;
        assert_eq!(
            [at(wrap - 1), at(wrap - 1), at(wrap + 1)],
            [Admission::Admitted, Admission::Admitted, Admission::Refused { nth: 1 }]
        );
        assert_eq!(at(wrap + 9_999), Admission::Admitted);
        // Idle for 37 days: the schedule seems to be ahead, further than is possible.
        assert_eq!(at(wrap + 3 * (1 << 30)), Admission::Admitted);
    }

    /// More clients than entries: the longest idle are forgotten, those that just asked are not.
    #[test]
    fn a_full_line_forgets_the_client_idle_for_longest() {
        let limit = limit(1000, 1);
        let hash = |client: u64| (client + 1) << 40;
        for client in 0..8 {
            assert_eq!(limit.admit_hash(hash(client), client as u32), Admission::Admitted);
        }
        assert_eq!(limit.admit_hash(hash(8), 8), Admission::Admitted);
        for client in 1..9 {
            assert_eq!(limit.admit_hash(hash(client), 9), Admission::Refused { nth: 1 }, "client {client}");
        }
        assert_eq!(limit.admit_hash(hash(0), 9), Admission::Admitted);
    }

    #[test]
    fn impossible_limits_are_rejected() {
        for (interval, burst) in [(0, 1), (1000, 0), (1 << 30, 2), (u64::MAX, 1)] {
            ClientLimit::new(Duration::from_millis(interval), burst).unwrap_err();
        }
        ClientLimit::new(Duration::from_millis(1 << 30), 1).unwrap();
        ClientLimit::new(Duration::from_millis(1), 1 << 30).unwrap();
    }

    /// However many workers ask at once, no more than the burst is admitted.
    #[test]
    fn workers_together_admit_no_more_than_the_burst() {
        let limit = limit(1000, 100);
        let admitted: usize = std::thread::scope(|scope| {
            let worker =
                || (0..1000).filter(|_| limit.admit(CLIENT, Duration::ZERO) == Admission::Admitted).count();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100);
    }
}
