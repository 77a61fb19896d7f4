//! The perf rings of a machine with many CPUs, multiplied from those of a real one with two.
//!
//! ```text
//! recorded   CPU 0, CPU 1, some seconds: a server and its load   every record as the kernel wrote it
//! multiplied CPU N repeats CPU N % 2 for as long as it takes      samples, names of threads: with its own CPU number, times,
//!                                                                and thread ids
//!            CPUs 0 and 1                                        also what happened to a process once: exec, mappings, fork
//! made up    short processes: fork on one CPU, exec there, their files mapped on the next one
//!            CPU 5 lost some records, CPU 6 was throttled
//! ```
//! The last two because order and loss cannot be recorded at will. [`Machine::ring`] is one CPU's ring over the whole
//! interval; [`Recorded::kallsyms`] has the kernel's functions at the addresses in it. The programs' files are named
//! only by records: nothing of the test machine is read.

#![allow(dead_code, reason = "each test program uses its own part of this machine")]

pub(crate) mod around;
pub(crate) mod recorded;
pub(crate) mod write;

use recorded::{COMM, RATE, Recorded, SAMPLE, is_exec, kind, offsets, time};
use write::{Ring, Stamp, USER};

/// Start of the interval in the samples' clock, nanoseconds.
pub(crate) const BEGIN: u64 = 5_000_000_000_000;
/// Records that CPU 5 lost.
pub(crate) const LOST: u64 = 17;
/// Distance between the thread ids of one CPU of the recording and its next copy: more than the recorded ones lie
/// apart.
pub(crate) const APART: u32 = 100_000;
/// The first pid of short processes, below the recorded ones, how many start each second, and the address of their
/// code.
const SHORT: u32 = 100;
pub(crate) const SHORT_EACH_SECOND: u32 = 40;
const SHORT_CODE: u64 = 0x55d0_c001_0000;

/// A machine of many CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine<'r> {
    pub(crate) recorded: &'r Recorded,
    pub(crate) cpus: u32,
    pub(crate) seconds: u32,
    /// Samples a second of each CPU, by the recording.
    pub(crate) rate: u32,
    /// Every so many samples one is kept.
    pub(crate) every: u32,
}

impl Machine<'static> {
    /// 128 CPUs for two seconds, at a rate that gives a small graph.
    pub(crate) fn small() -> Self {
        Self { recorded: Recorded::stored(), cpus: 128, seconds: 2, rate: RATE / 2, every: 2 }
    }

    /// Few enough samples to be processed hundreds of times.
    pub(crate) fn few() -> Self {
        Self { recorded: Recorded::stored(), cpus: 6, seconds: 1, rate: RATE / 4, every: 4 }
    }
}

impl Machine<'_> {
    /// The server's pid.
    pub(crate) fn server(&self) -> u32 {
        self.recorded.server
    }

    /// Every record of one CPU.
    pub(crate) fn ring(&self, cpu: u32) -> Ring {
        let (mut ring, end) = (Ring::default(), BEGIN + u64::from(self.seconds) * 1_000_000_000);
        let mut short = self.short_processes(cpu).into_iter().peekable();
        for (number, record) in (0..).zip(self.multiplied(cpu, end)) {
            let now = time(&record);
            while let Some((_, record)) = short.next_if(|(when, _)| *when <= now) {
                ring.0.extend_from_slice(&record.0);
            }
            ring.0.extend_from_slice(&record);
            let at = Stamp { pid: self.server(), tid: self.server(), time: now, cpu };
            match (cpu, number) {
                (5, 10) => ring.lost(at, LOST),
                (6, 10) => ring.throttle(at),
                (6, 12) => ring.unthrottle(at),
                _ => (),
            }
        }
        short.for_each(|(_, record)| ring.0.extend_from_slice(&record.0));
        ring
    }

    /// The recorded CPU's records until `end`, as those of `cpu`.
    fn multiplied(&self, cpu: u32, end: u64) -> impl Iterator<Item = Vec<u8>> {
        let Recorded { cpus, interval, .. } = self.recorded;
        let count = u32::try_from(cpus.len()).expect("few CPUs");
        let (own, copy) = (&cpus[(cpu % count) as usize].0, cpu / count);
        let length = (interval.end - interval.start).max(1);
        let rounds = u64::from(self.seconds) * 1_000_000_000 / length + 1;
        let of_round = move |round: u64| {
            let shift = (BEGIN + round * length).wrapping_sub(interval.start);
            let mut samples = 0..;
            own.iter().filter_map(move |record| {
                let wanted = match kind(record) {
                    SAMPLE => samples.next().is_some_and(|number: u32| number.is_multiple_of(self.every)),
                    COMM if !is_exec(record) => round == 0,
                    _ => round == 0 && copy == 0,
                };
                wanted.then(|| moved(record, cpu, copy * APART, time(record).wrapping_add(shift)))
            })
        };
        (0..rounds).flat_map(of_round).filter(move |record| time(record) < end)
    }

    /// Records of short processes on this CPU, with their times: the shell forks and execs on one CPU, and continues on
    /// the one before it, whose ring is read first.
    fn short_processes(&self, cpu: u32) -> Vec<(u64, Ring)> {
        let mut records = Vec::new();
        for number in 0..SHORT_EACH_SECOND * self.seconds {
            let pid = SHORT + number;
            let begin = BEGIN + u64::from(number) * 1_000_000_000 / u64::from(SHORT_EACH_SECOND) + 1_000_000;
            let (first, second) = ((1 + number * 7) % self.cpus, (number * 7) % self.cpus);
            let mut add = |on: u32, after: u64, write: &dyn Fn(&mut Ring, Stamp)| {
                if on == cpu {
                    let at = Stamp { pid, tid: pid, time: begin + after, cpu };
                    let mut ring = Ring::default();
                    write(&mut ring, at);
                    records.push((at.time, ring));
                }
            };
            add(first, 0, &|ring, at| ring.fork(at, self.server()));
            add(first, 10_000, &|ring, at| ring.comm(at, "logger", true));
            add(second, 20_000, &|ring, at| ring.mapped(at, SHORT_CODE, 0x1000, 0, "/usr/bin/logger"));
            add(second, 900_000, &|ring, at| {
                ring.sample(USER, at, 1_000_000, &[], &[SHORT_CODE + 0x10]);
            });
            add(second, 950_000, &|ring, at| ring.exit(at, self.server()));
        }
        records.sort_by_key(|(time, _)| *time);
        records
    }
}

/// A record on another CPU, at another time; `threads` is added to the id of its thread, except for idle.
fn moved(record: &[u8], cpu: u32, threads: u32, time: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    let [thread, when, place] = offsets(&record);
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(when, &time.to_ne_bytes());
    put(place, &cpu.to_ne_bytes());
    // Process and thread; a name has them in its fields too.
    let fields = (kind(&record) == COMM).then_some(8);
    for at in [Some(thread), fields].into_iter().flatten() {
        let id = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().expect("four bytes"));
        if id(at) != 0 {
            let tid = id(at + 4) + threads;
            record[at + 4..at + 8].copy_from_slice(&tid.to_ne_bytes());
        }
    }
    record
}
