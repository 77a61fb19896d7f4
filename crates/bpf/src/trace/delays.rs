//! Time from the stack to the reader: loader and results of `bpf/delays.bpf.c`.

use super::{Bound, Loader, Run, Tracepoints, Tracer};
use crate::Error;
use crate::attach::object;

const NAME: &str = "delays";
/// Buckets per power of two, and powers of two above them: `SUB` and `POWERS` of the program.
const SUB: usize = 16;
const POWERS: usize = 33;
const BUCKETS: usize = SUB * (POWERS + 1);
/// Words of `struct spread`, `struct delays` and `struct sampler`.
const SPREAD: usize = 3 + BUCKETS;
const DELAYS: usize = 3 * SPREAD;
const SAMPLER: usize = 10;

/// The upper bound of a bucket, exclusive, in nanoseconds; the bound of the previous bucket is the lower one, and the
/// last bucket also holds everything longer. A bucket is at most 1/16 of its value wide.
#[must_use]
pub const fn delay_bucket_end(bucket: usize) -> u64 {
    let (octave, sub) = (bucket / SUB, (bucket % SUB) as u64);
    if octave == 0 { sub + 1 } else { (SUB as u64 + sub + 1) << (octave - 1) }
}

/// Tracks a sample of the received datagrams until dropped.
#[derive(Debug)]
pub struct SkbDelays(Tracepoints);

/// The results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelayCounts {
    /// By socket, in no particular order.
    pub sockets: Vec<SocketDelays>,
    /// Packets that entered the stack.
    pub seen: u64,
    /// UDP datagrams that were tracked.
    pub sampled: u64,
    /// Not tracked: the slot was taken by another packet.
    pub no_slot: u64,
    /// Tracked, then dropped.
    pub dropped: u64,
    /// Tracked, but no room in the socket's line, or for the socket.
    pub no_room: u64,
    /// Tracked and read, but the read was not seen.
    pub missed: u64,
}

/// Delays of the datagrams one socket received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketDelays {
    /// The socket.
    pub bound: Bound,
    /// From entry into the stack to the socket's queue.
    pub to_socket: Delay,
    /// From there to the end of the call that read it.
    pub to_reader: Delay,
    /// Both together, of each datagram.
    pub whole: Delay,
}

/// A distribution of delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// How many.
    pub count: u64,
    /// Total, nanoseconds.
    pub ns: u64,
    /// The longest, nanoseconds.
    pub longest: u64,
    /// By length: [`delay_bucket_end`].
    pub buckets: Vec<u64>,
}

impl SkbDelays {
    /// Starts tracking.
    ///
    /// # Errors
    /// Permission denied, or a kernel without the tracepoints (before 6.3) or without BTF.
    pub fn attach(loader: &mut Loader) -> Result<Self, Error> {
        let mut points = Tracepoints::load(NAME, loader, &[], object!("delays"))?;
        // From end to start: no packet is tracked whose end would be missed.
        for point in ["kfree_skb", "sock_recv_length", "sk_data_ready", "netif_receive_skb"] {
            points.attach(point)?;
        }
        Ok(Self(points))
    }
}

impl Tracer for SkbDelays {
    type Counts = DelayCounts;

    fn detach(&mut self) {
        self.0.detach();
    }

    fn runs(&self) -> Vec<Run> {
        self.0.runs()
    }

    fn read(&self) -> Result<DelayCounts, Error> {
        let sockets = self.0.entries::<{ Bound::WORDS }, DELAYS>("sockets")?;
        let mut sum = [0; SAMPLER];
        for words in self.0.element_by_cpu::<SAMPLER>("sampler", 0)?.iter() {
            sum.iter_mut().zip(words).for_each(|(sum, count)| *sum += count);
        }
        let [seen, sampled, no_slot, dropped, no_room, missed, ..] = sum;
        let sockets = sockets.iter().map(|(bound, words)| SocketDelays::parse(bound, words)).collect();
        Ok(DelayCounts { sockets, seen, sampled, no_slot, dropped, no_room, missed })
    }
}

impl SocketDelays {
    fn parse(bound: &[u64; Bound::WORDS], words: &[u64; DELAYS]) -> Self {
        let spread = |at: usize| Delay::parse(&words[at * SPREAD..(at + 1) * SPREAD]);
        Self { bound: Bound::parse(bound), to_socket: spread(0), to_reader: spread(1), whole: spread(2) }
    }
}

impl Delay {
    fn parse(words: &[u64]) -> Self {
        Self { count: words[0], ns: words[1], longest: words[2], buckets: words[3..].to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like `bucket` of the program.
    fn bucket(ns: u64) -> usize {
        let octave = (ns / SUB as u64).max(1).ilog2() as usize;
        if ns < SUB as u64 { ns as usize } else { (octave + 1) * SUB + (ns >> octave) as usize % SUB }
    }

    #[test]
    fn every_delay_is_in_the_right_bucket() {
        for ns in (0..100).chain((4..36).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let at = bucket(ns);
            assert!(ns < delay_bucket_end(at), "{ns}");
            assert!(at == 0 || ns >= delay_bucket_end(at - 1), "{ns}");
        }
        assert_eq!(delay_bucket_end(BUCKETS - 1), 1 << 37);
    }

    #[test]
    fn a_socket_has_both_delays_and_their_sum() {
        let mut words = [0; DELAYS];
        words[..3].copy_from_slice(&[1, 500, 400]);
        words[SPREAD..SPREAD + 3].copy_from_slice(&[2, 900, 600]);
        words[SPREAD + 3 + 7] = 2;
        words[2 * SPREAD..2 * SPREAD + 3].copy_from_slice(&[2, 1400, 1000]);
        let found = SocketDelays::parse(&[0, 0, 2 << 48 | 7 << 32], &words);
        assert_eq!((found.bound.port, found.to_socket.count, found.to_socket.ns), (7, 1, 500));
        assert_eq!((found.to_reader.count, found.to_reader.longest, found.to_reader.buckets[7]), (2, 600, 2));
        assert_eq!(found.to_reader.buckets.len(), BUCKETS);
        assert_eq!((found.whole.ns, found.whole.longest), (1400, 1000));
    }
}
