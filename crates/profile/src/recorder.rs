//! A recording: samples of an interval, with everything needed to resolve them later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use udpath_files::kernel;
use udpath_steer::CpuSet;

use crate::counts::Counted;
use crate::perf::{Clock, Counter, Event, OpenError, Record, Sight, running_cpus};
use crate::samples::Samples;
use crate::symbols::kernel::{Kernel, Loaded, NoSymbols};
use crate::symbols::threads::Threads;
use crate::symbols::user::{MOST_HELD, Programs};

/// Default samples per second and CPU. A prime, so that it does not beat with the kernel's 100, 250, 300 or 1,000
/// ticks. Lower: rare work is missed. Higher: sampling affects what it measures; on a virtual machine, whose timer
/// belongs to the hypervisor, a sample takes 10 to 30 us, most of it for the interrupt, not for the chain.
pub const RATE: u32 = 199;
/// Interval at which the rings are drained. Longer: rings overflow; shorter: unnecessary wake-ups.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Most events of one process: one descriptor each, for every thread on every CPU. The kernel keeps 1.3 KB for each,
/// which makes 20 MiB, and a new thread copies those of its parent. Higher: creating threads becomes slow in the
/// measured program; lower: a program with 128 threads on 128 CPUs is not sampled completely.
const MOST_EVENTS: usize = 16_384;
/// Most descriptors that everything else needs: program files kept open, /proc, tracing.
const SPARE: usize = MOST_HELD + 64;
/// Length of a slice of the time line.
pub const SLICE: Duration = Duration::from_secs(1);

/// What to record.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The CPUs to sample.
    pub cpus: CpuSet,
    /// If CPUs may not be sampled: the process whose threads to sample instead.
    pub pid: Option<u32>,
    /// Length of the recording.
    pub length: Duration,
    /// Samples per second and CPU.
    pub rate: u32,
}

/// The recorded data.
#[derive(Debug)]
pub struct Recording {
    /// The samples.
    pub samples: Samples,
    /// Mappings of programs.
    pub programs: Programs,
    /// Names of threads.
    pub threads: Threads,
    /// Hardware counter values; `None` without counters.
    pub counted: Option<Counted>,
    /// CPUs that were sampled, including those without a sample: a hypervisor's timer does not run on an idle CPU that
    /// it has parked. Empty if only threads were sampled.
    pub cpus: CpuSet,
    /// CPUs that went offline, and when, in seconds after the beginning: from then on they were not sampled.
    pub gone: BTreeMap<u32, f64>,
    /// CPUs that came online and were not sampled.
    pub came: CpuSet,
    /// Threads that were not sampled because there were not enough descriptors.
    pub left_out: usize,
    /// What triggered the samples.
    pub clock: Clock,
    /// What they show.
    pub sight: Sight,
    /// Requested samples per second and CPU.
    pub rate: u32,
    /// Length, seconds.
    pub seconds: f64,
    /// Records lost because a ring was full.
    pub lost: u64,
    /// How often the kernel took fewer samples than requested.
    pub throttled: u64,
    /// Invalid records.
    pub malformed: u64,
    /// CPU time of this program for recording, seconds. What the kernel spends on taking samples is in the samples.
    pub own_seconds: f64,
    /// Why the kernel's functions could not be resolved.
    pub no_symbols: Option<NoSymbols>,
}

/// A moment of a recording, for counters over the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Sampling begins.
    Begin,
    /// Sampling has ended.
    End,
}

/// Records until the time is over or `stop` is set.
///
/// # Errors
/// Nothing can be sampled; the error says why.
pub fn record(wanted: &Wanted, stop: &AtomicBool) -> Result<Recording, OpenError> {
    record_with(wanted, stop, |_| ())
}

/// The same, and calls `at` when sampling begins and ends, so that counters read there cover the time of the samples.
/// Reading the kernel's symbols takes a tenth of a second or more before that.
///
/// # Errors
/// Nothing can be sampled; the error says why.
pub fn record_with(
    wanted: &Wanted,
    stop: &AtomicBool,
    mut at: impl FnMut(Moment),
) -> Result<Recording, OpenError> {
    let mut event = match (cpus(wanted), wanted.pid) {
        (Err(OpenError::NotPermitted { .. }), Some(pid)) => threads(wanted, pid)?,
        (opened, _) => opened?,
    };
    // Before the symbols are read, so that a program loaded while they are counts as a change.
    let loaded = Loaded::now();
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
    if event.sight() == Sight::Machine {
        recording.cpus = event.sampled_cpus();
    }
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
    // Its rings are a quarter of this program's memory, and the next step needs some.
    drop(event);
    recording.own_seconds = cpu_seconds() - own;
    if recording.no_symbols.is_none()
        && (loaded.is_none() || loaded != Loaded::now())
        && let Ok(kernel) = Kernel::running()
    {
        recording.samples.rename(kernel);
    }
    Ok(recording)
}

impl Recording {
    /// These samples and nothing else, at this rate per CPU. Add records with [`Self::take`].
    #[must_use]
    pub fn new(samples: Samples, clock: Clock, rate: u32) -> Self {
        Self {
            samples,
            programs: Programs::default(),
            threads: Threads::default(),
            counted: None,
            cpus: CpuSet::new(),
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

    /// The events of a CPU end when it goes offline, and do not resume when it comes back.
    fn look_for_cpus(&mut self, sampled: &CpuSet, before: &CpuSet, now: Duration) {
        // Threads are sampled on any CPU.
        let Some(online) = running_cpus().filter(|_| self.sight == Sight::Machine) else { return };
        for cpu in sampled.difference(&online).iter() {
            self.gone.entry(cpu).or_insert(now.as_secs_f64());
        }
        self.came = self.came.union(&online.difference(before));
    }

    /// Adds a record of a CPU's ring. Records of different CPUs may come in any order.
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

/// The threads of a process, those with the most CPU time first.
fn threads(wanted: &Wanted, pid: u32) -> Result<Event, OpenError> {
    let tids = kernel::numbers(format!("/proc/{pid}/task")).unwrap_or_default();
    let used = |tid: u32| {
        // Nanoseconds on a CPU, then other fields; empty if the thread has ended or the kernel has no such statistics.
        let text = kernel::text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let mut threads: Vec<(Option<u64>, u32)> = tids.into_iter().map(|tid| (used(tid), tid)).collect();
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

/// Raises the descriptor limit by `wanted`, as far as possible; many machines start with 1,024. Returns the number of
/// descriptors that are then available.
fn allow_descriptors(wanted: usize) -> usize {
    let open = kernel::numbers("/proc/self/fd").map_or(0, |all| all.len());
    let all = u64::try_from(open + SPARE + wanted).unwrap_or(u64::MAX);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < all) {
        limit.current = limit.maximum.map_or(Some(all), |most| Some(most.min(all)));
        // If they do not suffice, opening fails or threads are left out, and that is reported.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let current = getrlimit(Resource::Nofile).current;
    let current = current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX));
    current.saturating_sub(open + SPARE)
}
