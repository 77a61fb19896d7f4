//! Programs on tracepoints: the kernel's locks, drops, softirqs and queues, counted in the kernel.
//!
//! | type | tracepoints | counts |
//! |---|---|---|
//! | [`LockWaits`] | lock:contention_begin, contention_end | waits by lock and stack |
//! | [`SkbDrops`] | skb:kfree_skb | drops by reason, place and port |
//! | [`SoftirqRuns`] | irq:softirq_*, napi:napi_poll, ipi:*, sched:sched_wakeup | softirqs, polls, IPIs, wake-ups |
//! | [`SkbDelays`] | net:netif_receive_skb, sock:sk_data_ready, sock:sock_recv_length | time from the stack to the reader |
//! | [`PortServed`] | sock:sock_recv_length, sock_send_length; net:netif_receive_skb, net_dev_queue | datagrams of one port's sockets |
//!
//! Each loads one object, attaches its programs by links that close with their descriptors, and reads its maps on
//! request: nothing runs in user space while it counts. Tables are bounded; events without room are counted. Call
//! [`Tracer::detach`] before the last read, so that the counters no longer change.
//!
//! Field offsets come from the running kernel (BTF). A kernel that lacks a field or a tracepoint rejects the program,
//! and the error says which. Needs `CAP_BPF` and `CAP_PERFMON`.

mod delays;
mod drops;
mod locks;
mod served;
mod softirqs;

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use aya::maps::{HashMap, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::programs::links::FdLink;
use aya::sys::{Stats, enable_stats};
use aya::{Ebpf, EbpfLoader};

pub use delays::{Delay, DelayCounts, SkbDelays, SocketDelays, delay_bucket_end};
pub use drops::{DropCounts, SkbDrop, SkbDrops, Way};
pub use locks::{LOCK_BUCKETS, LockCounts, LockSocket, LockWait, LockWaits, SocketPart, lock_bucket_end};
pub use served::{Asked, PortServed, ServedCounts};
pub use softirqs::{
    Ipis, LATE_BUCKETS, POLL_BUCKETS, Polls, SoftirqCounts, SoftirqRuns, VECTORS, VectorRuns, late_bucket_end,
};

use crate::Error;
use crate::attach;

/// Loads tracers. It has read the kernel's types (BTF), which takes longer than all the rest: one is made for all
/// tracers, and dropped once they count.
#[derive(Debug)]
pub struct Loader(EbpfLoader<'static>);

impl Default for Loader {
    fn default() -> Self {
        Self(EbpfLoader::new())
    }
}

/// Common to all of them.
pub trait Tracer: Sized {
    /// The type of its counts.
    type Counts;

    /// Stops counting; the counts stay readable.
    fn detach(&mut self);

    /// The cost of each of its programs while [`count_runs`] was open.
    fn runs(&self) -> Vec<Run>;

    /// The counts so far.
    ///
    /// # Errors
    /// A map cannot be read.
    fn read(&self) -> Result<Self::Counts, Error>;
}

/// A loaded object and its programs' attachments.
#[derive(Debug)]
struct Tracepoints {
    name: &'static str,
    object: Ebpf,
    links: Vec<FdLink>,
    programs: Vec<&'static str>,
}

/// The cost of a program while the kernel measured it, see [`count_runs`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The tracepoint it is attached to.
    pub at: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// Total run time.
    pub time: Duration,
}

/// While this is open the kernel measures how often programs run and for how long. It costs each run two clock reads,
/// so keep it short. `None` if that is not permitted, and before Linux 5.8.
#[must_use]
pub fn count_runs() -> Option<OwnedFd> {
    enable_stats(Stats::RunTime).ok()
}

/// Keys and values of a map, in words.
type Entries<const K: usize, const V: usize> = Vec<([u64; K], [u64; V])>;
type EntriesByCpu<const K: usize, const V: usize> = Vec<([u64; K], PerCpuValues<[u64; V]>)>;

impl Tracepoints {
    /// `sizes`: of its maps, where the object's are not right for this machine. No map has the name of one of another
    /// object whose size is set.
    fn load(
        name: &'static str,
        Loader(loader): &mut Loader,
        sizes: &[(&'static str, u32)],
        object: &[u8],
    ) -> Result<Self, Error> {
        for (map, entries) in sizes {
            loader.map_max_entries(map, *entries);
        }
        let object = attach::load_tracing(name, loader, object)?;
        Ok(Self { name, object, links: Vec::new(), programs: Vec::new() })
    }

    /// Attaches `program` to the tracepoint of the same name.
    fn attach(&mut self, program: &'static str) -> Result<(), Error> {
        self.links.push(attach::raw_tracepoint(program, &mut self.object, program)?);
        self.programs.push(program);
        Ok(())
    }

    fn detach(&mut self) {
        self.links.clear();
    }

    /// Attaches again what was detached.
    fn resume(&mut self) -> Result<(), Error> {
        for program in &self.programs {
            self.links.push(attach::raw_tracepoint(program, &mut self.object, program)?);
        }
        Ok(())
    }

    fn runs(&self) -> Vec<Run> {
        let run = |at: &&'static str| {
            let info = self.object.program(at)?.info().ok()?;
            Some(Run { at, runs: info.run_count(), time: info.run_time() })
        };
        self.programs.iter().filter_map(run).collect()
    }

    /// Every entry of a hash map of words.
    fn entries<const K: usize, const V: usize>(&self, map: &str) -> Result<Entries<K, V>, Error> {
        let found = self.object.map(map).ok_or_else(|| self.no_map(map))?;
        let found =
            HashMap::<_, [u64; K], [u64; V]>::try_from(found).map_err(|error| self.unread(map, &error))?;
        found.iter().collect::<Result<_, _>>().map_err(|error| self.unread(map, &error))
    }

    /// Every entry of a hash map of words with a value for each CPU.
    fn entries_by_cpu<const K: usize, const V: usize>(&self, map: &str) -> Result<EntriesByCpu<K, V>, Error> {
        let found = self.object.map(map).ok_or_else(|| self.no_map(map))?;
        let found = PerCpuHashMap::<_, [u64; K], [u64; V]>::try_from(found)
            .map_err(|error| self.unread(map, &error))?;
        found.iter().collect::<Result<_, _>>().map_err(|error| self.unread(map, &error))
    }

    /// An element of an array of words with a value for each CPU.
    fn element_by_cpu<const V: usize>(&self, map: &str, index: u32) -> Result<PerCpuValues<[u64; V]>, Error> {
        let found = self.object.map(map).ok_or_else(|| self.no_map(map))?;
        let found = PerCpuArray::<_, [u64; V]>::try_from(found).map_err(|error| self.unread(map, &error))?;
        found.get(&index, 0).map_err(|error| self.unread(map, &error))
    }

    /// The sum over CPUs of an array's element of one word.
    fn sum(&self, map: &str, index: u32) -> Result<u64, Error> {
        Ok(self.element_by_cpu::<1>(map, index)?.iter().map(|[count]| count).sum())
    }

    fn no_map(&self, map: &str) -> Error {
        Error::Load { program: self.name, source: format!("the object has no map '{map}'").into() }
    }

    fn unread(&self, map: &str, cause: &dyn std::error::Error) -> Error {
        Error::Load { program: self.name, source: format!("cannot read map '{map}': {cause}").into() }
    }
}

/// Entries of a table with a value of `bytes` for each CPU, so that it stays below `memory` bytes: at least `least`, at
/// most `most`.
fn entries_within(memory: usize, bytes: usize, (least, most): (usize, usize)) -> u32 {
    let cpus = aya::util::nr_cpus().unwrap_or(1).max(1);
    u32::try_from((memory / (bytes * cpus)).clamp(least, most)).unwrap_or(u32::MAX)
}

/// A socket by its bound address: `struct bound` of `bpf/kernel.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bound {
    /// Its address; unspecified for a wildcard bind.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The inode of its network namespace, as in /proc/PID/ns/net.
    pub netns: u32,
}

impl Bound {
    const WORDS: usize = 3;

    fn parse(words: &[u64; Self::WORDS]) -> Self {
        let [low, high, rest] = *words;
        let family = (rest >> 48) as u16;
        Self { address: address([low, high], family), port: (rest >> 32) as u16, netns: rest as u32 }
    }
}

/// An address from its words, as in packets: IPv4 in the first four bytes.
fn address([low, high]: [u64; 2], family: u16) -> IpAddr {
    let mut address = [0; 16];
    address[..8].copy_from_slice(&low.to_ne_bytes());
    address[8..].copy_from_slice(&high.to_ne_bytes());
    let [a, b, c, d, ..] = address;
    if i32::from(family) == libc::AF_INET6 { IpAddr::from(address) } else { IpAddr::from([a, b, c, d]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_socket_is_read_from_its_words() {
        let v4 = [u64::from_ne_bytes([10, 0, 0, 2, 0, 0, 0, 0]), 0, 2 << 48 | 53 << 32 | 0xf000_0001];
        let found = Bound::parse(&v4);
        assert_eq!(
            (found.address.to_string().as_str(), found.port, found.netns),
            ("10.0.0.2", 53, 0xf000_0001)
        );
        let v6 = [0, u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]), 10 << 48 | 65_535 << 32];
        assert_eq!(Bound::parse(&v6).address.to_string(), "::1");
        assert_eq!(Bound::parse(&v6).port, 65_535);
    }

    #[test]
    fn tables_stay_within_their_memory() {
        let cpus = aya::util::nr_cpus().unwrap();
        assert_eq!(entries_within(0, 100, (7, 9)), 7);
        assert_eq!(entries_within(usize::MAX, 100, (7, 9)), 9);
        assert_eq!(entries_within(800 * cpus, 100, (7, 9)), 8);
    }
}
