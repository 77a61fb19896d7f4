//! Softirqs, polls, IPIs and wake-ups: loader and results of `bpf/softirqs.bpf.c`.

use std::collections::HashMap;

use super::{Loader, Run, Tracepoints, Tracer, entries_within};
use crate::Error;
use crate::attach::object;

const NAME: &str = "softirqs";
/// Memory of the tables of polls and of IPIs, bytes, and their entries, minimum and maximum.
const MEMORY: usize = 2 << 20;
const POLLS: (usize, usize) = (64, 256);
const IPIS: (usize, usize) = (32, 128);

/// The kernel's softirqs in the order of their vectors (`include/linux/interrupt.h`).
pub const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
/// Buckets of latencies from raise to entry: `BUCKETS` of the program.
pub const LATE_BUCKETS: usize = 24;
/// Buckets of packets per poll: none, 1, 2-3, 4-7, 8-15, 16-31, 32-63, more.
pub const POLL_BUCKETS: usize = 8;
/// The first latency bucket ends here, as a power of two of nanoseconds: `FIRST` of the program.
const FIRST: usize = 7;
/// Words of `struct vector`, `struct polls` and `struct ipis`.
const VECTOR: usize = 7 + LATE_BUCKETS;
const POLL: usize = 3 + POLL_BUCKETS;
const IPI: usize = 2;

/// The upper bound of a bucket, exclusive, in nanoseconds; the bound of the previous bucket is the lower one, and the
/// last bucket also holds everything longer.
#[must_use]
pub const fn late_bucket_end(bucket: usize) -> u64 {
    1 << (FIRST + bucket)
}

/// Counts softirqs, polls, IPIs and wake-ups until dropped.
#[derive(Debug)]
pub struct SoftirqRuns {
    points: Tracepoints,
    /// Does this kernel report IPIs?
    ipis: bool,
}

/// The results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftirqCounts {
    /// Each vector on each CPU on which it ran.
    pub vectors: Vec<VectorRuns>,
    /// Each interface and the backlog, in no particular order.
    pub polls: Vec<Polls>,
    /// By callback and sender, in no particular order; `None` if the kernel does not report IPIs (before 6.4).
    pub ipis: Option<Vec<Ipis>>,
    /// Threads woken up, by the waking CPU.
    pub wakeups: Vec<u64>,
}

/// A softirq on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorRuns {
    /// Index of [`VECTORS`].
    pub vector: usize,
    /// The CPU.
    pub cpu: u32,
    /// Number of runs.
    pub runs: u64,
    /// Total run time, nanoseconds.
    pub ns: u64,
    /// Number of runs whose raise was seen.
    pub raised: u64,
    /// For these: total time from raise to entry, nanoseconds.
    pub late_ns: u64,
    /// The longest.
    pub latest_ns: u64,
    /// By length: [`late_bucket_end`].
    pub late: [u64; LATE_BUCKETS],
}

/// NAPI polls of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polls {
    /// Its name; `None` for the CPUs' backlogs.
    pub interface: Option<String>,
    /// The inode of its network namespace.
    pub netns: u32,
    /// Polls.
    pub polls: u64,
    /// Packets.
    pub packets: u64,
    /// Polls that used up their budget.
    pub full: u64,
    /// Polls by packets: [`POLL_BUCKETS`].
    pub sizes: [u64; POLL_BUCKETS],
}

/// Interrupts that one CPU sent to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipis {
    /// The function to run there; 0: reschedule only.
    pub callback: u64,
    /// The sender.
    pub cpu: u32,
    /// To one CPU.
    pub single: u64,
    /// To several at once, counted once per call.
    pub masks: u64,
}

impl SoftirqRuns {
    /// Starts counting.
    ///
    /// # Errors
    /// Permission denied, or a kernel without BTF.
    pub fn attach(loader: &mut Loader) -> Result<Self, Error> {
        let sizes = [
            ("polls", entries_within(MEMORY, (1 + POLL) * size_of::<u64>(), POLLS)),
            ("ipis", entries_within(MEMORY, (1 + IPI) * size_of::<u64>(), IPIS)),
        ];
        let mut points = Tracepoints::load(NAME, loader, &sizes, object!("softirqs"))?;
        // The exit first: no entry is counted whose end would be missed.
        for point in ["softirq_exit", "softirq_entry", "softirq_raise", "napi_poll", "sched_wakeup"] {
            points.attach(point)?;
        }
        let ipis = points.attach("ipi_send_cpu").and_then(|()| points.attach("ipi_send_cpumask")).is_ok();
        Ok(Self { points, ipis })
    }
}

impl Tracer for SoftirqRuns {
    type Counts = SoftirqCounts;

    fn detach(&mut self) {
        self.points.detach();
    }

    fn runs(&self) -> Vec<Run> {
        self.points.runs()
    }

    fn read(&self) -> Result<SoftirqCounts, Error> {
        let mut vectors = Vec::new();
        for vector in 0..VECTORS.len() {
            let by_cpu = self.points.element_by_cpu("vectors", vector as u32)?;
            vectors.extend(
                (0..).zip(by_cpu.iter()).filter_map(|(cpu, words)| VectorRuns::parse(vector, cpu, words)),
            );
        }
        let names: HashMap<u64, [u64; 2]> = self
            .points
            .entries::<1, 2>("names")?
            .into_iter()
            .map(|([interface], name)| (interface, name))
            .collect();
        let polls = self.points.entries_by_cpu::<1, POLL>("polls")?;
        Ok(SoftirqCounts {
            vectors,
            polls: polls
                .iter()
                .map(|([interface], by_cpu)| Polls::parse(*interface, names.get(interface), by_cpu.iter()))
                .collect(),
            ipis: self.ipis.then(|| self.ipis()).transpose()?,
            wakeups: self.points.element_by_cpu::<1>("wakeups", 0)?.iter().map(|[count]| *count).collect(),
        })
    }
}

impl SoftirqRuns {
    fn ipis(&self) -> Result<Vec<Ipis>, Error> {
        let mut found = Vec::new();
        for ([callback], by_cpu) in self.points.entries_by_cpu::<1, IPI>("ipis")? {
            let sent = (0..).zip(by_cpu.iter()).filter(|(_, counts)| **counts != [0; IPI]);
            found.extend(sent.map(|(cpu, [single, masks])| Ipis {
                callback,
                cpu,
                single: *single,
                masks: *masks,
            }));
        }
        Ok(found)
    }
}

impl VectorRuns {
    fn parse(vector: usize, cpu: u32, words: &[u64; VECTOR]) -> Option<Self> {
        let [_, _, runs, ns, raised, late_ns, latest_ns, late @ ..] = *words;
        (runs > 0).then_some(Self { vector, cpu, runs, ns, raised, late_ns, latest_ns, late })
    }
}

impl Polls {
    fn parse<'a>(
        interface: u64,
        name: Option<&[u64; 2]>,
        by_cpu: impl Iterator<Item = &'a [u64; POLL]>,
    ) -> Self {
        let netns = (interface >> 32) as u32;
        let name = (interface as u32 != 0).then(|| {
            let bytes: Vec<u8> = name.into_iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
            String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        });
        let mut sum =
            Self { interface: name, netns, polls: 0, packets: 0, full: 0, sizes: [0; POLL_BUCKETS] };
        for [polls, packets, full, sizes @ ..] in by_cpu {
            sum.polls += polls;
            sum.packets += packets;
            sum.full += full;
            sum.sizes.iter_mut().zip(sizes).for_each(|(sum, count)| *sum += count);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_read_where_it_ran() {
        let mut words = [0; VECTOR];
        assert_eq!(VectorRuns::parse(3, 0, &words), None);
        words[..7].copy_from_slice(&[1, 2, 10, 5000, 8, 900, 400]);
        words[8] = 8;
        let found = VectorRuns::parse(3, 1, &words).unwrap();
        assert_eq!((found.vector, found.cpu, found.runs, found.ns), (3, 1, 10, 5000));
        assert_eq!((found.raised, found.late_ns, found.latest_ns, found.late[1]), (8, 900, 400, 8));
        assert_eq!((VECTORS[found.vector], late_bucket_end(1)), ("NET_RX", 256));
    }

    #[test]
    fn polls_are_summed_by_interface() {
        let name = [u64::from_ne_bytes(*b"enp0s31f"), u64::from_ne_bytes(*b"6\0\0\0\0\0\0\0")];
        let mut words = [0; POLL];
        words[..4].copy_from_slice(&[2, 65, 1, 1]);
        words[10] = 1;
        let polls = Polls::parse(7 << 32 | 2, Some(&name), [words, words].iter());
        assert_eq!((polls.interface.as_deref(), polls.netns), (Some("enp0s31f6"), 7));
        assert_eq!((polls.polls, polls.packets, polls.full), (4, 130, 2));
        assert_eq!((polls.sizes[0], polls.sizes[7]), (2, 2));
        assert_eq!(Polls::parse(0, None, [].iter()).interface, None);
    }
}
