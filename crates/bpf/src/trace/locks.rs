//! Waits for locks: loader and results of `bpf/locks.bpf.c`.

use std::collections::HashMap;

use aya::maps::StackTraceMap;

use super::{Bound, Loader, Run, Tracepoints, Tracer, entries_within};
use crate::Error;
use crate::attach::object;

const NAME: &str = "locks";
/// Memory of the wait table, bytes. Less: a machine with many CPUs loses rare call sites; more: it is allocated up
/// front, and a profile must stay below 64 MiB.
const MEMORY: usize = 8 << 20;
/// Entries of that table, minimum and maximum. A busy server has some hundreds of contended call sites.
const PLACES: (usize, usize) = (256, 4096);

/// Buckets of a lock's waits: `BUCKETS` of the program.
pub const LOCK_BUCKETS: usize = 24;
/// The first bucket ends here, as a power of two of nanoseconds: `FIRST` of the program.
const FIRST: u32 = 7;
/// Words of `struct place` and `struct tally`.
const PLACE: usize = 3;
const TALLY: usize = 3 + LOCK_BUCKETS;
/// The value of `place.stack` if there was no room for the stack.
const NO_STACK: u32 = u32::MAX;
/// Indices of `lost`.
const LOST_STACK: u32 = 0;
const LOST_WAIT: u32 = 1;
const LOST_TALLY: u32 = 2;

/// The upper bound of a bucket, exclusive, in nanoseconds; the bound of the previous bucket is the lower one, and the
/// last bucket also holds everything longer.
#[must_use]
pub const fn lock_bucket_end(bucket: usize) -> u64 {
    1 << (FIRST as usize + bucket)
}

/// Counts waits for every kernel lock until dropped.
#[derive(Debug)]
pub struct LockWaits(Tracepoints);

/// The results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// By lock, stack and kind, in no particular order.
    pub waits: Vec<LockWait>,
    /// Waits counted without their stack.
    pub no_stack: u64,
    /// Waits that could not be tracked.
    pub not_followed: u64,
    /// Waits without room in the table.
    pub no_room: u64,
}

/// Waits for one lock from one call site. Of the waits for spinlocks that a busy CPU has, one of several is followed,
/// chosen at random, and counts for those that are not: then the number, the time and the buckets are estimates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    /// The lock's address.
    pub lock: u64,
    /// The kind of lock: bits of `include/trace/events/lock.h`.
    pub flags: u32,
    /// Return addresses, innermost first; empty if there was no room.
    pub stack: Vec<u64>,
    /// The UDP socket whose lock it is.
    pub socket: Option<LockSocket>,
    /// Number of waits.
    pub waits: u64,
    /// Total time, nanoseconds.
    pub ns: u64,
    /// The longest that was followed, nanoseconds.
    pub longest: u64,
    /// By length: [`lock_bucket_end`].
    pub buckets: [u64; LOCK_BUCKETS],
}

/// A lock of a UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockSocket {
    /// Which of its locks.
    pub part: SocketPart,
    /// Its port.
    pub port: u16,
    /// Its bound address; `None` if there was no room.
    pub bound: Option<Bound>,
}

/// Which lock of a socket: `enum part` of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketPart {
    /// `sk_receive_queue`: between the reader and the softirqs that add datagrams.
    ReceiveQueue,
    /// `reader_queue`: between readers.
    ReaderQueue,
    /// `wq` of its `struct socket`: between threads that sleep until data arrives and the one that wakes them.
    WaitQueue,
    /// `sk_lock`: changes to the socket, and corked sends.
    Owner,
}

impl SocketPart {
    fn parse(number: u32) -> Option<Self> {
        let parts = [Self::ReceiveQueue, Self::ReaderQueue, Self::WaitQueue, Self::Owner];
        // 0: not a socket lock.
        parts.get((number as usize).checked_sub(1)?).copied()
    }
}

impl LockWaits {
    /// Starts counting.
    ///
    /// # Errors
    /// Permission denied, or a kernel without the tracepoints (before 5.19) or without BTF.
    pub fn attach(loader: &mut Loader) -> Result<Self, Error> {
        let places = entries_within(MEMORY, (PLACE + TALLY) * size_of::<u64>(), PLACES);
        let mut points = Tracepoints::load(NAME, loader, &[("waits", places)], object!("locks"))?;
        // The end event first: no wait is tracked whose end would be missed.
        points.attach("contention_end")?;
        points.attach("contention_begin")?;
        Ok(Self(points))
    }
}

impl Tracer for LockWaits {
    type Counts = LockCounts;

    fn detach(&mut self) {
        self.0.detach();
    }

    fn runs(&self) -> Vec<Run> {
        self.0.runs()
    }

    fn read(&self) -> Result<LockCounts, Error> {
        let stacks = self.stacks()?;
        let sockets: HashMap<u64, Bound> = self
            .0
            .entries::<1, { Bound::WORDS }>("sockets")?
            .into_iter()
            .map(|([lock], words)| (lock, Bound::parse(&words)))
            .collect();
        let waits = self.0.entries_by_cpu::<PLACE, TALLY>("waits")?;
        Ok(LockCounts {
            waits: waits
                .iter()
                .map(|(place, by_cpu)| LockWait::parse(place, by_cpu.iter(), &stacks, &sockets))
                .collect(),
            no_stack: self.0.sum("lost", LOST_STACK)?,
            not_followed: self.0.sum("lost", LOST_WAIT)?,
            no_room: self.0.sum("lost", LOST_TALLY)?,
        })
    }
}

impl LockWaits {
    fn stacks(&self) -> Result<HashMap<u32, Vec<u64>>, Error> {
        let map = self.0.object.map("stacks").ok_or_else(|| self.0.no_map("stacks"))?;
        let map = StackTraceMap::try_from(map).map_err(|error| self.0.unread("stacks", &error))?;
        map.iter()
            .map(|entry| {
                let (id, stack) = entry.map_err(|error| self.0.unread("stacks", &error))?;
                Ok((id, stack.frames().iter().map(|frame| frame.ip).collect()))
            })
            .collect()
    }
}

impl LockWait {
    fn parse<'a>(
        place: &[u64; PLACE],
        by_cpu: impl Iterator<Item = &'a [u64; TALLY]>,
        stacks: &HashMap<u32, Vec<u64>>,
        sockets: &HashMap<u64, Bound>,
    ) -> Self {
        let [lock, kind, socket] = *place;
        let (stack, flags) = (kind as u32, (kind >> 32) as u32);
        let port = (socket >> 32) as u16;
        let bound = sockets.get(&lock).filter(|bound| bound.port == port).copied();
        let mut wait = Self {
            lock,
            flags,
            stack: if stack == NO_STACK {
                Vec::new()
            } else {
                stacks.get(&stack).cloned().unwrap_or_default()
            },
            socket: SocketPart::parse(socket as u32).map(|part| LockSocket { part, port, bound }),
            waits: 0,
            ns: 0,
            longest: 0,
            buckets: [0; LOCK_BUCKETS],
        };
        for [waits, ns, longest, buckets @ ..] in by_cpu {
            wait.waits += waits;
            wait.ns += ns;
            wait.longest = wait.longest.max(*longest);
            wait.buckets.iter_mut().zip(buckets).for_each(|(sum, count)| *sum += count);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_over_cpus_and_named() {
        let tally = |waits: u64, ns: u64, longest: u64, bucket: usize| {
            let mut words = [0; TALLY];
            words[..3].copy_from_slice(&[waits, ns, longest]);
            words[3 + bucket] = waits;
            words
        };
        let place = [0xffff_8880, 1 << 32 | 7, 53 << 32 | 1];
        let by_cpu = [tally(2, 500, 300, 0), tally(0, 0, 0, 0), tally(1, 900, 900, 3)];
        let stacks = HashMap::from([(7, vec![1, 2])]);
        let bound = Bound { address: [127, 0, 0, 1].into(), port: 53, netns: 9 };
        let wait = LockWait::parse(&place, by_cpu.iter(), &stacks, &HashMap::from([(0xffff_8880, bound)]));
        assert_eq!((wait.waits, wait.ns, wait.longest, wait.flags), (3, 1400, 900, 1));
        assert_eq!((wait.buckets[0], wait.buckets[3], wait.stack.as_slice()), (2, 1, &[1, 2][..]));
        let named = LockSocket { part: SocketPart::ReceiveQueue, port: 53, bound: Some(bound) };
        assert_eq!(wait.socket, Some(named));
        // Another socket's lock at the same address, without its stack.
        let other = [0xffff_8880, u64::from(NO_STACK), 54 << 32 | 4];
        let wait = LockWait::parse(&other, by_cpu.iter(), &stacks, &HashMap::from([(0xffff_8880, bound)]));
        assert_eq!(wait.socket, Some(LockSocket { part: SocketPart::Owner, port: 54, bound: None }));
        assert!(wait.stack.is_empty());
        assert_eq!(LockWait::parse(&[1, 0, 0], [].iter(), &stacks, &HashMap::new()).socket, None);
    }

    #[test]
    fn buckets_double() {
        assert_eq!((lock_bucket_end(0), lock_bucket_end(1), lock_bucket_end(23)), (128, 256, 1 << 30));
    }
}
