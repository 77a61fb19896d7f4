//! Replies of the last seconds, so that a request that is sent again gets the same reply again (RFC 5080, 2.2.2):
//! [`Duplicates`], of fixed size, shared by all workers without locks.
//!
//! ```text
//! request ─▸ keyed hash ─▸ index: line of 8 entries, one cache line ─▸ tag 24 | position 40 ─┐
//!            head ─▸ next free position                                                      ▾
//! ring  ...────────────────────────────────────┤ sum | key 5 | time, length | reply ... ├────...   words of 64 bits
//! ```
//! Writers reserve a place by moving `head`, write the entry, and then publish its position in the index; what is one
//! ring behind `head` is gone. A reader copies an entry and looks at `head` again: if the place was reserved in
//! between, it has found nothing. The sum finds what is left: a writer that was stopped for so long that the ring went
//! around under it.
//!
//! A request that two workers handle at the same moment is answered by both.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::packet::{DIGEST, MAX_LEN, Packet};

/// How long a reply is kept. Shorter: a client that waits before it asks again, some seconds as a rule, is
/// authenticated and counted twice. Longer: the ring overwrites it before.
const LIFETIME: Duration = Duration::from_secs(5);
/// Words of the ring, 16 MiB: about 130,000 replies without long attributes, 26,000 a second for [`LIFETIME`]. Fewer:
/// replies are kept for less time. More: memory that most servers never need.
const RING: usize = 1 << 21;
/// Lines of the index, 1 MiB: as many entries as the ring has replies. Fewer: replies are forgotten before they are
/// overwritten. More: no gain.
const LINES: usize = 1 << 14;
/// Entries per line: 64 bytes, one cache line.
const WAYS: usize = 8;
/// Bits of a position in the index.
const POSITION_BITS: u32 = 40;
const POSITION: u64 = (1 << POSITION_BITS) - 1;

/// Words of a key.
const KEY: usize = 5;
/// Words before the reply: sum, key, time and length.
const PREFIX: usize = 1 + KEY + 1;
/// Bits of the length, below the time in milliseconds.
const LEN_BITS: u32 = 16;

/// What identifies a request: client, port, code, identifier, authenticator and, if there is one,
/// Message-Authenticator: a request of which only the attributes differ is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key([u64; KEY]);

impl Key {
    /// `signature`: where the Message-Authenticator begins in the packet.
    #[inline]
    pub(super) fn new(peer: SocketAddr, packet: &Packet<'_>, signature: Option<usize>) -> Self {
        let address = match peer.ip() {
            // No IPv6 peer has such an address: those of IPv4 peers are in IPv4 form.
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let rest =
            u64::from(peer.port()) << 16 | u64::from(packet.code().0) << 8 | u64::from(packet.identifier());
        let signature = signature.and_then(|at| packet.bytes().get(at..)?.first_chunk::<DIGEST>());
        let signature = signature.map_or(0, |digest| u128::from_ne_bytes(*digest));
        // Both are as good as random: two pairs with the same result do not occur.
        let content = u128::from_ne_bytes(*packet.authenticator()) ^ signature;
        let [address, content] = [address, content].map(|wide| [(wide >> 64) as u64, wide as u64]);
        Self([address[0], address[1], rest, content[0], content[1]])
    }
}

/// See the module.
pub(super) struct Duplicates {
    index: Box<[AtomicU64]>,
    ring: Box<[AtomicU64]>,
    /// Words reserved so far. Every reply of every worker moves it: one shared cache line.
    head: CachePadded<AtomicU64>,
    hash: RandomState,
}

impl Duplicates {
    pub(super) fn new() -> Self {
        let zeros = |len| (0..len).map(|_| AtomicU64::new(0)).collect();
        // An entry at position 0 would look like an unused one.
        let head = CachePadded::new(AtomicU64::new(RING as u64));
        Self { index: zeros(LINES * WAYS), ring: zeros(RING), head, hash: RandomState::new() }
    }

    /// Copies the reply to the request `key` into `buffer` and returns its length, if there was one within the last 5 s
    /// of `now`, a time since boot.
    #[inline]
    pub(super) fn find(&self, key: &Key, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        let (line, tag) = self.line(key);
        line.iter().find_map(|place| {
            let entry = place.load(Acquire);
            if entry >> POSITION_BITS == tag { self.read(entry & POSITION, key, now, buffer) } else { None }
        })
    }

    /// Keeps `reply` to the request `key`, unless it is longer than a packet can be.
    #[inline]
    pub(super) fn insert(&self, key: &Key, now: Duration, reply: &[u8]) {
        if reply.len() > MAX_LEN {
            return;
        }
        let words = (PREFIX + reply.len().div_ceil(8)) as u64;
        let position = self.head.fetch_add(words, Relaxed);
        // A reader that sees any word of this entry also sees the head above.
        fence(Release);
        let mut sum = Sum::of(position);
        let mut next = position + 1;
        let mut put = |word| {
            sum.add(word);
            self.word(next).store(word, Relaxed);
            next += 1;
        };
        key.0.into_iter().for_each(&mut put);
        put(millis(now) << LEN_BITS | reply.len() as u64);
        let (chunks, rest) = reply.as_chunks::<8>();
        chunks.iter().for_each(|chunk| put(u64::from_le_bytes(*chunk)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            put(u64::from_le_bytes(last));
        }
        self.word(position).store(sum.0, Relaxed);
        self.publish(key, position);
    }

    /// Writes a position to the index: in place of the same request's, or of the oldest.
    fn publish(&self, key: &Key, position: u64) {
        let (line, tag) = self.line(key);
        let age = |entry: u64| if entry == 0 { POSITION } else { position.wrapping_sub(entry) & POSITION };
        let rank = |place: &&AtomicU64| {
            let entry = place.load(Relaxed);
            if entry >> POSITION_BITS == tag { u64::MAX } else { age(entry) }
        };
        if let Some(place) = line.iter().max_by_key(rank) {
            place.store(tag << POSITION_BITS | position & POSITION, Release);
        }
    }

    /// The entry at `low`, the lower bits of its position, if it is still there, young enough, and that of `key`.
    fn read(&self, low: u64, key: &Key, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        let head = self.head.load(Acquire);
        let behind = head.wrapping_sub(low) & POSITION;
        let position = head.checked_sub(behind).filter(|_| behind <= RING as u64)?;
        let word = |at: usize| self.word(position + at as u64).load(Relaxed);
        let mut sum = Sum::of(position);
        for (at, expected) in key.0.into_iter().enumerate() {
            sum.add(expected);
            if word(1 + at) != expected {
                return None;
            }
        }
        let when = word(1 + KEY);
        sum.add(when);
        let len = (when & ((1 << LEN_BITS) - 1)) as usize;
        if len > MAX_LEN || millis(now).saturating_sub(when >> LEN_BITS) >= LIFETIME.as_millis() as u64 {
            return None;
        }
        for (chunk, at) in buffer.get_mut(..len)?.chunks_mut(8).zip(PREFIX..) {
            let word = word(at);
            sum.add(word);
            chunk.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        let expected = word(0);
        fence(Acquire);
        let kept = self.head.load(Relaxed).wrapping_sub(position) <= RING as u64;
        (kept && expected == sum.0).then_some(len)
    }

    #[inline]
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.ring[position as usize % RING]
    }

    /// The entries a request may have in the index, and its tag, which is not 0.
    #[inline]
    fn line(&self, key: &Key) -> (&[AtomicU64], u64) {
        let hash = self.hash.hash_one(key.0);
        let line = hash as usize % LINES;
        (&self.index[line * WAYS..][..WAYS], (hash >> POSITION_BITS).max(1))
    }
}

impl std::fmt::Debug for Duplicates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duplicates").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Milliseconds since boot: 48 bits hold 8,900 years.
fn millis(now: Duration) -> u64 {
    now.as_millis() as u64 & (u64::MAX >> LEN_BITS)
}

/// A sum over the words of an entry: finds mixtures of two entries; against intent it need not help.
struct Sum(u64);

impl Sum {
    fn of(position: u64) -> Self {
        Self(position ^ 0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key([1, 2, 3, number, number ^ 0xff])
    }

    /// A reply that identifies its request.
    fn reply(number: u64, len: usize) -> Vec<u8> {
        number.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn found(of: &Duplicates, number: u64, at: f64) -> Option<Vec<u8>> {
        let mut buffer = vec![0xee; MAX_LEN];
        let len = of.find(&key(number), Duration::from_secs_f64(at), &mut buffer)?;
        buffer.truncate(len);
        Some(buffer)
    }

    #[test]
    fn a_reply_is_kept_for_five_seconds() {
        let kept = Duplicates::new();
        let begin = Duration::from_secs(1000);
        assert_eq!(found(&kept, 1, 1000.0), None);
        for (number, len) in [(1, 20), (2, 38), (3, 40), (4, MAX_LEN), (5, 0)] {
            kept.insert(&key(number), begin, &reply(number, len));
            assert_eq!(found(&kept, number, 1000.0), Some(reply(number, len)), "{len}");
        }
        assert_eq!(found(&kept, 1, 1004.99), Some(reply(1, 20)));
        assert_eq!(found(&kept, 1, 999.9), Some(reply(1, 20)), "a worker whose burst began earlier");
        assert_eq!(found(&kept, 1, 1005.0), None);
        assert_eq!(found(&kept, 6, 1000.0), None);
        // The same request once more.
        kept.insert(&key(1), begin + LIFETIME, &reply(7, 24));
        assert_eq!(found(&kept, 1, 1006.0), Some(reply(7, 24)));
        kept.insert(&key(8), begin, &vec![0; MAX_LEN + 1]);
        assert_eq!(found(&kept, 8, 1000.0), None);
    }

    #[test]
    fn a_buffer_that_is_too_small_is_not_written() {
        let kept = Duplicates::new();
        kept.insert(&key(1), Duration::ZERO, &reply(1, 20));
        assert_eq!(kept.find(&key(1), Duration::ZERO, &mut [0; 19]), None);
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let packet = |code: u8, identifier: u8, authenticator: u8| {
            let mut bytes = [authenticator; 20];
            bytes[..4].copy_from_slice(&[code, identifier, 0, 20]);
            bytes
        };
        let key =
            |peer: &str, bytes: &[u8]| Key::new(peer.parse().unwrap(), &Packet::decode(bytes).unwrap(), None);
        let of = key("192.0.2.1:1000", &packet(1, 2, 3));
        assert_eq!(key("192.0.2.1:1000", &packet(1, 2, 3)), of);
        for (peer, bytes) in [
            ("192.0.2.2:1000", packet(1, 2, 3)),
            ("[::c000:201]:1000", packet(1, 2, 3)),
            ("192.0.2.1:1001", packet(1, 2, 3)),
            ("192.0.2.1:1000", packet(4, 2, 3)),
            ("192.0.2.1:1000", packet(1, 3, 3)),
            ("192.0.2.1:1000", packet(1, 2, 4)),
        ] {
            assert_ne!(key(peer, &bytes), of, "{peer}");
        }
        let mut signed = [0; 38];
        signed[..22].copy_from_slice(&[&[1, 2, 0, 38], &[3; 16][..], &[80, 18]].concat());
        let key = |bytes: &[u8]| {
            Key::new("192.0.2.1:1000".parse().unwrap(), &Packet::decode(bytes).unwrap(), Some(22))
        };
        let first = key(&signed);
        signed[37] = 1;
        assert_ne!(key(&signed), first, "another signature");
    }

    /// Twice as many as the ring holds: the older half is gone, of the younger half a line may have forgotten some.
    #[test]
    fn a_full_ring_forgets_the_oldest() {
        let kept = Duplicates::new();
        let each = PREFIX + 120 / 8;
        let fit = (RING / each) as u64;
        for number in 0..2 * fit {
            kept.insert(&key(number), Duration::ZERO, &reply(number, 120));
        }
        for number in 0..fit - 1 {
            assert_eq!(found(&kept, number, 0.0), None, "{number}");
        }
        let mut missing = 0;
        for number in fit + 1..2 * fit {
            match found(&kept, number, 0.0) {
                Some(found) => assert_eq!(found, reply(number, 120)),
                None => missing += 1,
            }
        }
        // 95,000 entries in lines of 8 for 131,072: some lines have more than 8.
        assert!(missing < fit / 10, "{missing} of {fit}");
    }

    /// Readers and writers at once: what is found is whole.
    #[test]
    fn what_is_found_is_whole_while_others_write() {
        let kept = Duplicates::new();
        // Near the end of the ring, whose entries wrap.
        kept.head.fetch_add(RING as u64 - 100, Relaxed);
        let hits: u64 = std::thread::scope(|scope| {
            let worker = |seed: u64| {
                let kept = &kept;
                move || {
                    let mut hits = 0;
                    for round in 0..40_000_u64 {
                        let number = (round * 7 + seed) % 64;
                        let len = 20 + (round as usize * 131 + seed as usize) % 3000;
                        kept.insert(&key(number), Duration::ZERO, &reply(number, len));
                        if let Some(found) = found(kept, (round * 13 + seed) % 64, 0.0) {
                            let number = (round * 13 + seed) % 64;
                            assert_eq!(found, reply(number, found.len()));
                            hits += 1;
                        }
                    }
                    hits
                }
            };
            let workers: Vec<_> = (0..4).map(|seed| scope.spawn(worker(seed))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(hits > 1000, "{hits}");
    }

    /// A writer that was overtaken: the entry is damaged, not wrong.
    #[test]
    fn a_damaged_entry_is_not_found() {
        let kept = Duplicates::new();
        kept.insert(&key(1), Duration::ZERO, &reply(1, 64));
        for at in 0..(PREFIX + 8) as u64 {
            let word = kept.word(RING as u64 + at);
            let before = word.fetch_xor(1 << 17, Relaxed);
            assert_eq!(found(&kept, 1, 0.0), None, "word {at}");
            word.store(before, Relaxed);
        }
        assert!(found(&kept, 1, 0.0).is_some());
    }
}
