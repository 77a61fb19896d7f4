//! Waits for locks: which lock, and where in the code.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::trace::{LockCounts, LockSocket, LockWait, SocketPart, lock_bucket_end};

use super::socket::Socket;
use super::times::Times;
use crate::classes::{Class, Rules, UNKNOWN_LOCK};
use crate::symbols::kernel::Kernel;

/// Most places kept; the rest is one sum. A screen shows ten; thousands in a file are of no use.
const MOST_PLACES: usize = 200;

/// Waits for the kernel's locks.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Locks {
    /// By lock and place, longest total wait first.
    pub places: Vec<Contention>,
    /// The sum of those not listed.
    pub others: Times,
    /// Waits counted without their stack: no room for it.
    pub no_stack: u64,
    /// Waits that could not be tracked.
    pub not_followed: u64,
    /// Waits not counted: no room for their place.
    pub no_room: u64,
}

/// Waits for one lock from one place. On a busy CPU one of several waits for spinlocks is followed and counts for the
/// others.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Contention {
    /// The lock's owner, by its name in the rules.
    pub owner: String,
    /// Identifies the lock: equal numbers are the same lock. Number 1 has the longest total wait.
    pub lock: u32,
    /// The kind of lock.
    pub kind: LockKind,
    /// For a UDP socket: which socket, and which of its locks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<SocketLock>,
    /// Functions from the one that takes the lock outwards, innermost first.
    pub frames: Vec<String>,
    /// Count and duration of the waits.
    #[serde(flatten)]
    pub waits: Times,
}

/// How a lock is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// The CPU does nothing else while waiting.
    Spin,
    /// As spin, shared with other readers.
    SpinRead,
    /// As spin, exclusive.
    SpinWrite,
    /// The thread sleeps, after spinning for a while.
    Mutex,
    /// The thread sleeps until there is no writer.
    SleepRead,
    /// The thread sleeps until it has exclusive access.
    SleepWrite,
    /// The thread sleeps and lends its priority.
    RealTime,
    /// Another kind.
    Other,
}

impl LockKind {
    /// From the bits of `include/trace/events/lock.h`.
    fn parse(flags: u32) -> Self {
        const SPIN: u32 = 1;
        const READ: u32 = 2;
        const WRITE: u32 = 4;
        const RT: u32 = 8;
        const MUTEX: u32 = 32;
        let is = |bits: u32| flags & bits == bits;
        match () {
            () if is(MUTEX) => Self::Mutex,
            () if is(RT) => Self::RealTime,
            () if is(SPIN | READ) => Self::SpinRead,
            () if is(SPIN | WRITE) => Self::SpinWrite,
            () if is(SPIN) => Self::Spin,
            () if is(READ) => Self::SleepRead,
            () if is(WRITE) => Self::SleepWrite,
            () => Self::Other,
        }
    }
}

/// A lock of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
pub struct SocketLock {
    /// Which of its locks.
    pub part: Part,
    /// The socket.
    #[serde(flatten)]
    pub socket: Socket,
}

/// Which lock of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Of its queue, between the softirqs that add datagrams and the reader.
    ReceiveQueue,
    /// Of the datagrams that a reader has taken over, between readers.
    ReaderQueue,
    /// Of the threads that sleep until data arrives.
    WaitQueue,
    /// Of the socket itself.
    Owner,
}

/// Identifies a place: the lock's address, its kind, the socket, and the functions.
type Place = (u64, LockKind, Option<SocketLock>, Vec<String>);

impl Locks {
    pub(super) fn new(counts: &LockCounts, kernel: &Kernel, rules: &Rules) -> Self {
        let numbers = numbers(&counts.waits);
        // Stacks that differ only in offsets within functions are one place.
        let mut places: HashMap<Place, (String, Times)> = HashMap::new();
        for wait in &counts.waits {
            let (owner, frames) = named(&wait.stack, kernel, rules);
            let key = (wait.lock, LockKind::parse(wait.flags), wait.socket.map(SocketLock::new), frames);
            places.entry(key).or_insert_with(|| (owner, Times::default())).1.add(&times(wait));
        }
        let mut places: Vec<Contention> = places
            .into_iter()
            .map(|((lock, kind, socket, frames), (owner, waits))| {
                let lock = numbers.get(&lock).copied().unwrap_or_default();
                Contention { owner, lock, kind, socket, frames, waits }
            })
            .collect();
        // By time, then by name, so that the same counts give the same file.
        places.sort_by(|a, b| {
            let order = b.waits.ns.cmp(&a.waits.ns).then(a.lock.cmp(&b.lock));
            order.then_with(|| a.frames.cmp(&b.frames)).then(a.kind.cmp(&b.kind))
        });
        let mut others = Times::default();
        for place in places.drain(MOST_PLACES.min(places.len())..) {
            others.add(&place.waits);
        }
        let LockCounts { no_stack, not_followed, no_room, .. } = *counts;
        Self { places, others, no_stack, not_followed, no_room }
    }

    /// Waits by lock, longest total first, each with the place that waited longest for it.
    #[must_use]
    pub fn by_lock(&self) -> Vec<(&Contention, Times)> {
        let mut locks: HashMap<(u32, &str), (&Contention, Times)> = HashMap::new();
        for place in &self.places {
            let sum = locks.entry((place.lock, &place.owner)).or_insert_with(|| (place, Times::default()));
            sum.1.add(&place.waits);
            if place.waits.ns > sum.0.waits.ns {
                sum.0 = place;
            }
        }
        let mut locks: Vec<_> = locks.into_values().collect();
        locks.sort_by(|a, b| {
            b.1.ns.cmp(&a.1.ns).then_with(|| (a.0.lock, &a.0.owner).cmp(&(b.0.lock, &b.0.owner)))
        });
        locks
    }

    /// Waits by owner, longest total first.
    #[must_use]
    pub fn by_owner(&self) -> Vec<(&str, Times)> {
        let mut owners: HashMap<&str, Times> = HashMap::new();
        for place in &self.places {
            owners.entry(&place.owner).or_default().add(&place.waits);
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        owners.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(b.0)));
        owners
    }
}

fn times(wait: &LockWait) -> Times {
    Times::new(wait.waits, wait.ns, wait.longest, &wait.buckets, lock_bucket_end)
}

/// Numbers locks by total wait, from 1: kernel addresses do not leave the machine.
fn numbers(waits: &[LockWait]) -> HashMap<u64, u32> {
    let mut times: HashMap<u64, u64> = HashMap::new();
    waits.iter().for_each(|wait| *times.entry(wait.lock).or_default() += wait.ns);
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(lock, ns)| (std::cmp::Reverse(*ns), *lock));
    (1..).zip(times).map(|(number, (lock, _))| (lock, number)).collect()
}

/// The lock's owner, and the functions from the lock's own outwards: the frames inside are udpath's BPF program.
fn named(stack: &[u64], kernel: &Kernel, rules: &Rules) -> (String, Vec<String>) {
    let frames: Vec<_> = stack.iter().filter_map(|address| kernel.frame(*address)).collect();
    let is_lock = |at: &usize| rules.judge(frames[*at..=*at].iter().copied()).class == Class::Lock;
    let frames = &frames[(0..frames.len()).find(is_lock).unwrap_or(0)..];
    let owner = rules.judge(frames.iter().copied()).lock.unwrap_or(UNKNOWN_LOCK);
    (owner.to_owned(), frames.iter().map(|frame| frame.function.to_owned()).collect())
}

impl SocketLock {
    fn new(found: LockSocket) -> Self {
        let part = match found.part {
            SocketPart::ReceiveQueue => Part::ReceiveQueue,
            SocketPart::ReaderQueue => Part::ReaderQueue,
            SocketPart::WaitQueue => Part::WaitQueue,
            SocketPart::Owner => Part::Owner,
        };
        Self { part, socket: Socket::new(found.port, found.bound) }
    }
}

#[cfg(test)]
mod tests {
    use udpath_bpf::trace::LOCK_BUCKETS;

    use super::*;
    use crate::trace::times::Length;

    /// Functions at 0x1000, 0x2000 and so on.
    fn kernel(functions: &[&str]) -> Kernel {
        let lines =
            functions.iter().enumerate().map(|(at, name)| format!("{:x} t {name}\n", (at + 1) * 0x1000));
        Kernel::parse(&lines.collect::<String>())
    }

    fn wait(lock: u64, stack: &[u64], ns: u64) -> LockWait {
        let mut buckets = [0; LOCK_BUCKETS];
        buckets[1] = 1;
        let (flags, socket) = (1, None);
        LockWait { lock, flags, stack: stack.to_vec(), socket, waits: 1, ns, longest: ns, buckets }
    }

    #[test]
    fn a_wait_is_named_from_the_lock_outwards() {
        let kernel = kernel(&[
            "bpf_prog_1_contention_begin",
            "bpf_trace_run2",
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock",
            "__udp_enqueue_schedule_skb",
            "udp_queue_rcv_one_skb",
        ]);
        let stack = [0x1010, 0x2010, 0x3010, 0x4010, 0x5010, 0x6010];
        let (owner, frames) = named(&stack, &kernel, Rules::built_in());
        assert_eq!(owner, "socket-receive-queue");
        assert_eq!(frames[..2], ["native_queued_spin_lock_slowpath", "_raw_spin_lock"]);
        assert_eq!(named(&[], &kernel, Rules::built_in()), ("other".to_owned(), vec![]));
        // If the rules do not know the lock's functions, all frames are kept.
        assert_eq!(named(&stack[4..], &kernel, Rules::built_in()).1.len(), 2);
    }

    #[test]
    fn places_are_joined_and_sorted() {
        let kernel = kernel(&["_raw_spin_lock", "udp_queue_rcv_one_skb", "schedule"]);
        let rules =
            Rules::parse("[lock]\n_raw_spin_*\n[lock socket]\nudp_*\n[lock run-queue]\nschedule").unwrap();
        let [udp, udp_too, other] = [[0x1010, 0x2010], [0x1014, 0x2018], [0x1010, 0x3010]];
        let waits = vec![wait(7, &udp, 200), wait(7, &udp_too, 250), wait(9, &other, 300), wait(8, &udp, 10)];
        let counts = LockCounts { waits, no_room: 3, ..LockCounts::default() };
        let locks = Locks::new(&counts, &kernel, &rules);
        let shown: Vec<_> =
            locks.places.iter().map(|place| (place.lock, place.waits.count, place.waits.ns)).collect();
        assert_eq!(shown, [(1, 2, 450), (2, 1, 300), (3, 1, 10)]);
        assert_eq!(locks.places[0].waits.lengths, [Length { below_ns: 256, count: 2 }]);
        assert_eq!((locks.places[0].waits.longest_ns, locks.no_room), (250, 3));
        let owners: Vec<_> = locks.by_owner().into_iter().map(|(owner, waits)| (owner, waits.ns)).collect();
        assert_eq!(owners, [("socket", 460), ("run-queue", 300)]);
        let locks: Vec<_> =
            locks.by_lock().into_iter().map(|(place, waits)| (place.lock, waits.ns)).collect();
        assert_eq!(locks, [(1, 450), (2, 300), (3, 10)]);
    }

    #[test]
    fn unlisted_places_are_summed() {
        let kernel = kernel(&["_raw_spin_lock"]);
        let waits = (0..MOST_PLACES as u64 + 2).map(|lock| wait(lock, &[0x1010], 1000 - lock)).collect();
        let counts = LockCounts { waits, ..LockCounts::default() };
        let locks = Locks::new(&counts, &kernel, Rules::built_in());
        assert_eq!((locks.places.len(), locks.others.count), (MOST_PLACES, 2));
    }

    #[test]
    fn kinds_are_parsed_from_their_bits() {
        let kinds = [1, 3, 5, 32, 33, 2, 4, 8, 18, 0].map(LockKind::parse);
        assert_eq!(
            kinds,
            [
                LockKind::Spin,
                LockKind::SpinRead,
                LockKind::SpinWrite,
                LockKind::Mutex,
                LockKind::Mutex,
                LockKind::SleepRead,
                LockKind::SleepWrite,
                LockKind::RealTime,
                LockKind::SleepRead,
                LockKind::Other,
            ]
        );
    }
}
