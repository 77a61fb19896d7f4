//! A recording of a real machine, as its kernel wrote it: read, described, and reduced to what its profile needs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use udpath_profile::Profile;
use udpath_profile::classes::Rules;
use udpath_profile::perf::record::size;
use udpath_profile::perf::{Clock, Record, records};
use udpath_profile::recorder::Recording;
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;

use super::around;

/// Samples per second and CPU of the stored recording: few, because they are stored.
pub(crate) const RATE: u32 = 97;
/// `PERF_RECORD_SAMPLE`, `PERF_RECORD_COMM`.
pub(crate) const SAMPLE: u32 = 9;
pub(crate) const COMM: u32 = 3;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXEC: u16 = 1 << 13;
/// Offsets in a sample: process and thread, time, CPU.
const IN_SAMPLE: [usize; 3] = [16, 24, 32];
/// Bytes of the trailer of every other record, and offsets in it.
const TRAILER: usize = 24;
const IN_TRAILER: [usize; 3] = [0, 8, 16];

/// The records of one CPU, whole and in order.
#[derive(Debug, Default)]
pub(crate) struct Cpu(pub(crate) Vec<Vec<u8>>);

/// A recording: records by CPU, and the kernel's functions in them.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) kallsyms: String,
    /// Of the samples, nanoseconds.
    pub(crate) interval: Range<u64>,
    /// The process that executed a program first: the server.
    pub(crate) server: u32,
}

impl Recorded {
    /// The stored one: two CPUs, a server and its load. See `real/README.md`.
    pub(crate) fn stored() -> &'static Self {
        static STORED: OnceLock<Recorded> = OnceLock::new();
        STORED.get_or_init(|| Self::of(include_bytes!("real/ring"), include_str!("real/kallsyms").to_owned()))
    }

    /// A recording's rings, one after the other, and the kernel's functions.
    pub(crate) fn of(bytes: &[u8], kallsyms: String) -> Self {
        let (mut cpus, mut times, mut first) = (Vec::new(), Vec::new(), None);
        for place in places(bytes) {
            let record = &bytes[place];
            let cpu = place_of(record)[2] as u32 as usize;
            if cpus.len() <= cpu {
                cpus.resize_with(cpu + 1, Cpu::default);
            }
            cpus[cpu].0.push(record.to_vec());
            match (kind(record), time(record)) {
                (SAMPLE, time) => times.push(time),
                (COMM, time) if is_exec(record) => {
                    first = [first, Some((time, place_of(record)[0] as u32))].into_iter().flatten().min();
                }
                _ => {}
            }
        }
        let begin = times.iter().min().copied().unwrap_or(0);
        let end = times.iter().max().map_or(0, |last| last + 1);
        Self { cpus, kallsyms, interval: begin..end, server: first.map_or(0, |(_, pid)| pid) }
    }

    /// Datagrams that the server received and sent in the stored recording.
    pub(crate) fn datagrams() -> [u64; 2] {
        let mut counts =
            include_str!("real/datagrams").split_whitespace().map(|count| count.parse().expect("a count"));
        [(); 2].map(|()| counts.next().expect("two counts"))
    }
}

/// `enum perf_event_type`.
pub(crate) fn kind(record: &[u8]) -> u32 {
    u32::from_ne_bytes(record[..4].try_into().expect("four bytes"))
}

/// Whether a `PERF_RECORD_COMM` is of an exec.
pub(crate) fn is_exec(record: &[u8]) -> bool {
    u16::from_ne_bytes([record[4], record[5]]) & EXEC != 0
}

/// Nanoseconds.
pub(crate) fn time(record: &[u8]) -> u64 {
    place_of(record)[1]
}

/// Offsets of process and thread, time, CPU.
pub(crate) fn offsets(record: &[u8]) -> [usize; 3] {
    match kind(record) {
        SAMPLE => IN_SAMPLE,
        _ => IN_TRAILER.map(|offset| record.len() - TRAILER + offset),
    }
}

/// Process (the lower half) and thread, time, CPU (the lower half).
fn place_of(record: &[u8]) -> [u64; 3] {
    offsets(record).map(|at| u64::from_ne_bytes(record[at..at + 8].try_into().expect("eight bytes")))
}

/// The positions of the records in a ring.
pub(crate) fn places(ring: &[u8]) -> Vec<Range<usize>> {
    let (mut places, mut at) = (Vec::new(), 0);
    while at < ring.len() {
        let end = at + size(&ring[at..]).expect("a whole record");
        places.push(at..end);
        at = end;
    }
    places
}

/// A profile of bytes and the functions that they need.
pub(crate) fn profile(bytes: &[u8], kallsyms: &str) -> Profile {
    let recorded = Recorded::of(bytes, String::new());
    let Range { start, end } = recorded.interval;
    let samples = Samples::new(Kernel::parse(kallsyms), start, 1_000_000_000);
    let seconds = (end - start) as f64 / 1e9;
    let mut recording = Recording { seconds, ..Recording::new(samples, Clock::CpuClock, RATE) };
    let malformed = records(bytes, |record| recording.take(0, &record));
    recording.malformed += malformed;
    let nothing = around::nothing();
    Profile::new(&recording, Rules::built_in(), &nothing, &nothing)
}

/// The part of the kernel's function list that occurs in the samples' chains.
pub(crate) fn needed(bytes: &[u8], kallsyms: &str) -> String {
    let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let kinds = |line: &&str| matches!(line.split_whitespace().nth(1), Some("t" | "T" | "w" | "W"));
    let mut all: Vec<(u64, &str)> =
        kallsyms.lines().filter(kinds).filter_map(|line| Some((address(line)?, line))).collect();
    // A stable sort: names of one address keep their order.
    all.sort_by_key(|(address, _)| *address);
    let mut lines = BTreeMap::new();
    records(bytes, |record| {
        let Record::Sample(sample) = record else { return };
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        sample.chain.split(&mut kernel, &mut user);
        for address in kernel {
            let at = all.partition_point(|(begin, _)| *begin <= address);
            if let Some((begin, _)) = at.checked_sub(1).map(|at| all[at]) {
                let first = all.partition_point(|(address, _)| *address < begin);
                lines.insert(begin, all[first].1);
            }
        }
    });
    lines.into_values().map(|line| format!("{line}\n")).collect()
}

/// A summary of the profile in a few lines.
pub(crate) fn summary(profile: &Profile) -> String {
    let mut text = format!("{} samples, {:?}\n", profile.samples.taken, profile.contexts);
    for share in &profile.classes {
        text += &format!("{} {}\n", share.of.name(), share.ns);
    }
    // Merged over processes: programs without names would otherwise fill the lines.
    let mut stacks = BTreeMap::new();
    for stack in &profile.stacks {
        *stacks.entry((stack.context, stack.frames.join(";"))).or_insert(0) += stack.samples;
    }
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_by_key(|(_, samples)| Reverse(*samples));
    for ((context, frames), samples) in stacks.iter().take(5) {
        text += &format!("{samples} {context:?}: {frames}\n");
    }
    text
}
