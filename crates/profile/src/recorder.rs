//! A recording: samples of an interval, with everything that is needed to name them later.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use udpath_steer::CpuSet;

use crate::perf::{Clock, Event, OpenError, Record, Sight};
use crate::samples::Samples;
use crate::symbols::kernel::{Kernel, NoSymbols};
use crate::symbols::user::Programs;

/// Samples a second of each CPU, unless told otherwise. A prime, so that it does not beat with the kernel's 100, 250, 300 or
/// 1,000 ticks. Fewer: rare work is missed. More: sampling shows in what it measures; on a virtual machine, whose timer is the
/// hypervisor's, a sample takes 10 to 30 us, and of those most is the interrupt, not the chain.
pub const RATE: u32 = 293;
/// Pause between two looks at the rings. Longer: rings overflow; shorter: this program wakes up more than it has to.
const LOOK: Duration = Duration::from_millis(100);
/// Length of a slice of the time line.
pub const SLICE: Duration = Duration::from_secs(1);

/// What is to be recorded.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// These CPUs.
    pub cpus: CpuSet,
    /// Where CPUs may not be sampled: the threads of this process at least.
    pub pid: Option<u32>,
    /// For so long.
    pub length: Duration,
    /// Samples a second of each CPU.
    pub rate: u32,
}

/// What was recorded.
#[derive(Debug)]
pub struct Recording {
    /// The samples.
    pub samples: Samples,
    /// What programs had mapped.
    pub programs: Programs,
    /// Names of threads, by thread.
    pub threads: HashMap<u32, String>,
    /// What made the samples.
    pub clock: Clock,
    /// What they show.
    pub sight: Sight,
    /// Samples asked for, each second of each CPU.
    pub rate: u32,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Records that found no room.
    pub lost: u64,
    /// How often the kernel took fewer samples than asked for.
    pub throttled: u64,
    /// Records that made no sense.
    pub malformed: u64,
    /// CPU time that recording took, seconds: of this program. What the kernel spends on taking samples is in the samples.
    pub own_seconds: f64,
    /// Why the kernel's functions have no names.
    pub no_symbols: Option<NoSymbols>,
}

/// A moment of a recording, for what is to be counted over the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Samples are taken from now on.
    Begin,
    /// None are taken any more.
    End,
}

/// Records until the time is over or `stop` is said.
///
/// # Errors
/// Nothing can be sampled, and why.
pub fn record(wanted: &Wanted, stop: &AtomicBool) -> Result<Recording, OpenError> {
    record_with(wanted, stop, |_| ())
}

/// The same, and calls `at` when sampling begins and ends: counters read there are of the samples' time. Between them and
/// whatever was read before lie the kernel's symbols, a tenth of a second or more.
///
/// # Errors
/// Nothing can be sampled, and why.
pub fn record_with(
    wanted: &Wanted,
    stop: &AtomicBool,
    mut at: impl FnMut(Moment),
) -> Result<Recording, OpenError> {
    allow_descriptors(wanted.cpus.len());
    let mut event = match (Event::cpus(&wanted.cpus, wanted.rate), wanted.pid) {
        (Err(OpenError::NotPermitted { .. }), Some(pid)) => Event::threads(&threads_of(pid), wanted.rate)?,
        (opened, _) => opened?,
    };
    let (kernel, no_symbols) = match Kernel::running() {
        Ok(kernel) => (kernel, None),
        Err(error) => (Kernel::default(), Some(error)),
    };
    let begin = clock_gettime(ClockId::Monotonic);
    let begin =
        u64::try_from(begin.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(begin.tv_nsec).unwrap_or(0);
    let slice = u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX);
    let mut recording = Recording {
        samples: Samples::new(kernel, begin, slice),
        programs: Programs::default(),
        threads: HashMap::new(),
        clock: event.clock(),
        sight: event.sight(),
        rate: event.rate(),
        seconds: 0.0,
        lost: 0,
        throttled: 0,
        malformed: 0,
        own_seconds: 0.0,
        no_symbols,
    };
    let (started, own) = (Instant::now(), cpu_seconds());
    event.start()?;
    at(Moment::Begin);
    while started.elapsed() < wanted.length && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK.min(wanted.length.saturating_sub(started.elapsed())));
        event.drain(|record| recording.take(&record));
    }
    event.stop()?;
    recording.seconds = started.elapsed().as_secs_f64();
    at(Moment::End);
    event.drain(|record| recording.take(&record));
    recording.malformed = event.malformed();
    recording.own_seconds = cpu_seconds() - own;
    // BPF programs may have come since.
    if recording.no_symbols.is_none()
        && let Ok(kernel) = Kernel::running()
    {
        recording.samples.rename(kernel);
    }
    Ok(recording)
}

impl Recording {
    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Sample(sample) => {
                self.samples.add(sample);
                self.programs.meet(sample.pid);
                // The first thread names the process, and may sleep all the time.
                for tid in [sample.pid, sample.tid] {
                    self.threads.entry(tid).or_insert_with(|| name(sample.pid, tid));
                }
            }
            Record::Lost(count) | Record::LostSamples(count) => self.lost += count,
            Record::Throttled => self.throttled += 1,
            Record::Comm { pid, tid, name, exec } => {
                self.threads.insert(*tid, (*name).to_owned());
                if *exec {
                    self.programs.replaced(*pid);
                }
            }
            Record::Mapped(mapped) => self.programs.mapped(mapped),
            Record::Fork { pid, parent, .. } => self.programs.forked(*pid, *parent),
            Record::Exit { .. } | Record::Unthrottled | Record::Other(_) => (),
        }
    }
}

/// The name of a thread; none of one that has ended.
fn name(pid: u32, tid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    text.map(|text| text.trim_end().to_owned()).unwrap_or_default()
}

fn threads_of(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// A descriptor for each CPU, and some more; many machines allow 1,024 to begin with.
fn allow_descriptors(cpus: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(cpus).unwrap_or(u64::MAX).saturating_add(64);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = limit.maximum.map_or(Some(wanted), |most| Some(most.min(wanted)));
        // Too few are told by the event that cannot be opened.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
