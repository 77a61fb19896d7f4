//! A recording: samples of an interval, with everything that is needed to name them later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use udpath_steer::CpuSet;

use crate::counts::Counted;
use crate::perf::{Clock, Counter, Event, OpenError, Record, Sight, running_cpus};
use crate::samples::Samples;
use crate::symbols::kernel::{Kernel, NoSymbols};
use crate::symbols::threads::Threads;
use crate::symbols::user::{MOST_HELD, Programs};

/// Samples a second of each CPU, unless told otherwise. A prime, so that it does not beat with the kernel's 100, 250, 300 or
/// 1,000 ticks. Fewer: rare work is missed. More: sampling shows in what it measures; on a virtual machine, whose timer is the
/// hypervisor's, a sample takes 10 to 30 us, and of those most is the interrupt, not the chain.
pub const RATE: u32 = 199;
/// Pause between two looks at the rings. Longer: rings overflow; shorter: this program wakes up more than it has to.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Events of one process at most: a descriptor each, for every thread on every CPU. The kernel keeps 1.3 KB of each, which
/// makes 20 MiB, and a thread that the process starts copies those of its maker. More: starting threads becomes slow in
/// what is measured; fewer: 128 threads on 128 CPUs are not sampled whole.
const MOST_EVENTS: usize = 16_384;
/// Descriptors that everything else needs at most: the files of programs that are kept open, /proc, tracing.
const SPARE: usize = MOST_HELD + 64;
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
    /// Names of threads.
    pub threads: Threads,
    /// What hardware counters counted; none where there are none.
    pub counted: Option<Counted>,
    /// CPUs that went away, and how long after the beginning, seconds: from then on they were not sampled.
    pub gone: BTreeMap<u32, f64>,
    /// CPUs that came up, and were not sampled.
    pub came: CpuSet,
    /// Threads that were not sampled: there were not enough descriptors.
    pub left_out: usize,
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
    let mut event = match (cpus(wanted), wanted.pid) {
        (Err(OpenError::NotPermitted { .. }), Some(pid)) => threads(wanted, pid)?,
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
    let samples = Samples::new(kernel, begin, slice);
    let mut recording = Recording {
        programs: Programs::live(),
        threads: Threads::live(),
        sight: event.sight(),
        no_symbols,
        left_out: event.left_out(),
        ..Recording::new(samples, event.clock(), event.rate())
    };
    let counters: Vec<_> = event.counters().collect();
    if !counters.is_empty() {
        recording.counted = Some(Counted::new(counters, event.absent()));
    }
    let before = running_cpus().unwrap_or_default();
    let (started, own) = (Instant::now(), cpu_seconds());
    event.start()?;
    at(Moment::Begin);
    while started.elapsed() < wanted.length && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL.min(wanted.length.saturating_sub(started.elapsed())));
        event.drain(|cpu, record| recording.take(cpu, &record));
        recording.look_for_cpus(&wanted.cpus, &before, started.elapsed());
    }
    event.stop()?;
    recording.seconds = started.elapsed().as_secs_f64();
    at(Moment::End);
    event.drain(|cpu, record| recording.take(cpu, &record));
    recording.malformed = event.malformed();
    // Its rings are a quarter of this program's memory, and what comes now needs some.
    drop(event);
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
    /// Nothing but these samples, so many asked for each second of each CPU. Records say the rest: [`Self::take`].
    #[must_use]
    pub fn new(samples: Samples, clock: Clock, rate: u32) -> Self {
        Self {
            samples,
            programs: Programs::default(),
            threads: Threads::default(),
            counted: None,
            gone: BTreeMap::new(),
            came: CpuSet::new(),
            left_out: 0,
            clock,
            sight: Sight::Machine,
            rate,
            seconds: 0.0,
            lost: 0,
            throttled: 0,
            malformed: 0,
            own_seconds: 0.0,
            no_symbols: None,
        }
    }

    /// Events of a CPU that goes away end with it, also when it comes back.
    fn look_for_cpus(&mut self, sampled: &CpuSet, before: &CpuSet, now: Duration) {
        // Threads are sampled wherever they are.
        let Some(online) = running_cpus().filter(|_| self.sight == Sight::Machine) else { return };
        for cpu in sampled.difference(&online).iter() {
            self.gone.entry(cpu).or_insert(now.as_secs_f64());
        }
        self.came = self.came.union(&online.difference(before));
    }

    /// Counts a record of a CPU's ring. Of different CPUs they may come in any order.
    pub fn take(&mut self, cpu: u32, record: &Record<'_>) {
        match record {
            Record::Sample(sample) => {
                let place = self.samples.add(sample);
                if let (Some(counted), Some(reading)) = (&mut self.counted, sample.reading) {
                    counted.add(&place, reading);
                }
                self.programs.meet(sample.pid);
                // The first thread names the process, and may sleep all the time.
                for tid in [sample.pid, sample.tid] {
                    self.threads.meet(sample.pid, tid, sample.time);
                }
            }
            Record::Lost(count) | Record::LostSamples(count) => {
                self.lost = self.lost.saturating_add(*count);
                if let Some(counted) = &mut self.counted {
                    counted.lost(cpu);
                }
            }
            Record::Throttled => self.throttled += 1,
            Record::Comm { pid, tid, name, exec, time } => {
                self.threads.renamed(*tid, name, *time);
                if *exec {
                    self.programs.replaced(*pid, *time);
                }
            }
            Record::Mapped(mapped) => self.programs.mapped(mapped),
            Record::Fork { pid, parent, time, .. } => self.programs.forked(*pid, *parent, *time),
            Record::Exit { pid, tid } => {
                self.threads.ended(*tid);
                if pid == tid {
                    self.programs.ended(*pid);
                }
            }
            Record::Unthrottled | Record::Other(_) => (),
        }
    }
}

/// Everything on the CPUs.
fn cpus(wanted: &Wanted) -> Result<Event, OpenError> {
    allow_descriptors(wanted.cpus.len() * Counter::ALL.len());
    Event::cpus(&wanted.cpus, wanted.rate)
}

/// The threads of a process, those that have used most CPU time first.
fn threads(wanted: &Wanted, pid: u32) -> Result<Event, OpenError> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let used = |tid: u32| {
        // Nanoseconds on a CPU, then others; nothing of a thread that has ended, or by a kernel without them.
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let mut threads: Vec<(Option<u64>, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(|tid| (used(tid), tid))
        .collect();
    threads.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
    let tids: Vec<u32> = threads.into_iter().map(|(_, tid)| tid).collect();
    let most = allow_descriptors((tids.len() * wanted.cpus.len()).min(MOST_EVENTS)).min(MOST_EVENTS);
    Event::threads(&tids, &wanted.cpus, wanted.rate, most)
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Raises the limit of descriptors for so many more, as far as that goes; many machines allow 1,024 to begin with. How
/// many more there are then.
fn allow_descriptors(wanted: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let all = u64::try_from(open + SPARE + wanted).unwrap_or(u64::MAX);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < all) {
        limit.current = limit.maximum.map_or(Some(all), |most| Some(most.min(all)));
        // Too few are told by what cannot be opened, or is left out.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let current = getrlimit(Resource::Nofile).current;
    let current = current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX));
    current.saturating_sub(open + SPARE)
}
