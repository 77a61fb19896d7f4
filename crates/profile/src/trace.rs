//! What the kernel's tracepoints add to the samples: waits, drops and delays, counted individually where they happen.
//!
//! ```text
//! start ──▸ programs in the kernel count ──▸ finish: read, named by symbols and rules ──▸ Traces, a part of Profile
//!               └ for a moment the kernel counts their own runs: what tracing costs
//! ```
//! - `locks.rs`: who waits for which lock, for how long, and which socket owns it. `drops.rs`: what is dropped, why,
//!   and for which port. `softirqs.rs`: softirqs, polls, IPIs, wake-ups. `delays.rs`: from the stack to the reader.
//! - `served.rs`: what one port's sockets received and sent; not a [`Source`], but a meter of its own.
//! - `times.rs`: counts and durations. `socket.rs`: a socket by its bound address.
//!
//! Every [`Source`] can be left out. A source that this kernel does not support or this user may not use is listed as
//! absent with a reason; the others work without it. No kprobes, no tracefs and no kernel debug files are needed.
//! Programs are attached through descriptors of this process, so they are gone when it ends for any reason.

pub mod delays;
pub mod drops;
pub mod locks;
mod served;
mod socket;
pub mod softirqs;
mod times;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use error_reporter::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::Error;
use udpath_bpf::trace::{self as bpf, Loader, LockWaits, Run, SkbDelays, SkbDrops, SoftirqRuns, Tracer};

use crate::classes::Rules;
use crate::symbols::kernel::Kernel;
use udpath_files::kernel;

use drops::Reasons;

pub use delays::{DelayMeter, Delays};
pub use drops::Drops;
pub use locks::Locks;
pub use served::{Sample, Sampling, Served, ServedMeter};
pub use socket::Socket;
pub use softirqs::Softirqs;
pub use times::{Length, Times};

/// How long the kernel counts the cost of the programs. Longer: the counting (two clock reads per run) affects the
/// measurement; shorter: rare runs are missed.
const METERED: Duration = Duration::from_millis(250);

/// A group of tracepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Waits for locks.
    Locks,
    /// Dropped packets.
    Drops,
    /// Softirqs, NAPI polls, IPIs, wake-ups.
    Softirqs,
    /// Delays of datagrams from the stack to the reader.
    Delays,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Locks, Self::Drops, Self::Softirqs, Self::Delays];

    /// The name in arguments and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Drops => "drops",
            Self::Softirqs => "softirqs",
            Self::Delays => "delays",
        }
    }

    /// Its cost on the traced machine, for display.
    #[must_use]
    pub const fn cost(self) -> &'static str {
        match self {
            Self::Locks => {
                "two microseconds for each wait for a lock that is followed, on a busy CPU one of several; nothing for a lock that is free"
            }
            Self::Drops => "half a microsecond for each dropped packet; nothing for one that arrives",
            Self::Softirqs => "0.1 us for each raise, run, poll, IPI and wake-up: a burst shares it",
            Self::Delays => "0.3 us for each packet that comes in, and another 1 us for one that is followed",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|source| source.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown source '{name}'; known: {known}")
        })
    }
}

/// Results of tracing.
#[derive(Debug, Clone, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Traces {
    /// Waits for locks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub locks: Option<Locks>,
    /// Dropped packets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drops: Option<Drops>,
    /// Softirqs, NAPI polls, IPIs, wake-ups.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub softirqs: Option<Softirqs>,
    /// Delays of datagrams from the stack to the reader.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delays: Option<Delays>,
    /// Requested but not available.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub absent: Vec<Absent>,
    /// The cost of tracing; empty if the kernel did not count it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub costs: Vec<Cost>,
}

/// A source that this kernel does not support or this user may not use.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Absent {
    /// The source.
    pub source: Source,
    /// The reason.
    pub reason: String,
}

/// The cost of a program, as counted by the kernel for a short time. The dispatch to the program, about 10 ns per run,
/// is not included.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Cost {
    /// The source that it belongs to.
    pub source: Source,
    /// The tracepoint.
    pub at: String,
    /// Runs per second, on all CPUs together.
    pub runs_per_second: f64,
    /// Duration of a run, nanoseconds.
    pub ns_per_run: f64,
    /// Share of the time of all online CPUs, 0 to 1.
    pub share: f64,
}

/// Tracing, until it is finished or dropped.
#[derive(Debug)]
pub struct Running {
    locks: Started<LockWaits>,
    drops: Started<SkbDrops>,
    softirqs: Started<SoftirqRuns>,
    delays: Started<SkbDelays>,
    meter: Option<Meter>,
}

/// `None`: left out.
type Started<T> = Option<Result<T, Error>>;

/// Starts tracing. Sources that are not available are reported at the end.
#[must_use]
pub fn start(sources: &BTreeSet<Source>) -> Running {
    let mut loader = (!sources.is_empty()).then(Loader::default);
    Running {
        locks: started(Source::Locks, sources, &mut loader, LockWaits::attach),
        drops: started(Source::Drops, sources, &mut loader, SkbDrops::attach),
        softirqs: started(Source::Softirqs, sources, &mut loader, SoftirqRuns::attach),
        delays: started(Source::Delays, sources, &mut loader, SkbDelays::attach),
        meter: Meter::start(),
    }
}

fn started<T>(
    source: Source,
    wanted: &BTreeSet<Source>,
    loader: &mut Option<Loader>,
    attach: impl Fn(&mut Loader) -> Result<T, Error>,
) -> Started<T> {
    let loader = loader.as_mut().filter(|_| wanted.contains(&source))?;
    Some(attach(loader))
}

impl Running {
    /// Ends tracing and returns the counts, named by the kernel's functions and the rules.
    #[must_use]
    pub fn finish(self, kernel: &Kernel, rules: &Rules) -> Traces {
        let metered = self.meter.map(Meter::finish);
        let mut traces = Traces::default();
        traces.locks = traces
            .counts(Source::Locks, metered, self.locks)
            .map(|counts| Locks::new(&counts, kernel, rules));
        traces.drops = traces
            .counts(Source::Drops, metered, self.drops)
            .map(|counts| Drops::new(&counts, kernel, &Reasons::of(&counts)));
        traces.softirqs = traces
            .counts(Source::Softirqs, metered, self.softirqs)
            .map(|counts| Softirqs::new(&counts, kernel));
        traces.delays =
            traces.counts(Source::Delays, metered, self.delays).map(|counts| Delays::new(&counts));
        traces
    }
}

impl Traces {
    /// Ends a source's programs, records their cost, and reads them; on failure, keeps the reason.
    fn counts<T: Tracer>(
        &mut self,
        source: Source,
        metered: Option<Duration>,
        started: Started<T>,
    ) -> Option<T::Counts> {
        let read = started?.and_then(|mut tracer| {
            tracer.detach();
            self.meter(source, tracer.runs(), metered);
            tracer.read()
        });
        read.map_err(|error| self.absent.push(Absent { source, reason: Report::new(error).to_string() })).ok()
    }

    fn meter(&mut self, source: Source, runs: Vec<Run>, metered: Option<Duration>) {
        let Some(metered) = metered.filter(|metered| !metered.is_zero()) else { return };
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        self.costs.extend(runs.into_iter().map(|run| cost(source, &run, metered, cpus)));
    }
}

fn cost(source: Source, run: &Run, metered: Duration, cpus: usize) -> Cost {
    Cost {
        source,
        at: run.at.to_owned(),
        runs_per_second: run.runs as f64 / metered.as_secs_f64(),
        ns_per_run: if run.runs == 0 { 0.0 } else { run.time.as_nanos() as f64 / run.runs as f64 },
        share: run.time.as_secs_f64() / (metered.as_secs_f64() * cpus as f64),
    }
}

/// Makes the kernel count runs for a while.
#[derive(Debug)]
struct Meter {
    thread: JoinHandle<()>,
    started: Instant,
    /// Another program has enabled the counting permanently.
    always: bool,
}

impl Meter {
    fn start() -> Option<Self> {
        let always = kernel::text("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.trim() == "1");
        let counting = bpf::count_runs()?;
        let started = Instant::now();
        let hold = move || {
            thread::park_timeout(METERED);
            drop(counting);
        };
        let thread = thread::Builder::new().name("udpath-meter".to_owned()).spawn(hold).ok()?;
        Some(Self { thread, started, always })
    }

    /// Returns how long it counted.
    fn finish(self) -> Duration {
        let passed = self.started.elapsed();
        self.thread.thread().unpark();
        // It does nothing that could fail.
        let _ = self.thread.join();
        if self.always { passed } else { passed.min(METERED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_names() {
        for source in Source::ALL {
            assert_eq!(source.name().parse(), Ok(source));
            assert_eq!(serde_json::to_value(source).unwrap(), source.name());
        }
        let error = "lock".parse::<Source>().unwrap_err();
        assert!(error.starts_with("unknown source 'lock'; known: locks"), "{error}");
    }

    #[test]
    fn a_cost_is_a_share_of_all_cpus() {
        let run = Run { at: "here", runs: 1000, time: Duration::from_micros(500) };
        let cost = cost(Source::Locks, &run, Duration::from_millis(250), 2);
        assert_eq!((cost.runs_per_second, cost.ns_per_run, cost.share), (4000.0, 500.0, 0.001));
    }

    #[test]
    fn unavailable_sources_have_a_reason() {
        let mut traces = Traces::default();
        let reason = Error::Load { program: "locks", source: "the kernel is too old".into() };
        let counts = traces.counts::<LockWaits>(Source::Locks, None, Some(Err(reason)));
        assert_eq!(counts, None);
        assert_eq!(traces.counts::<LockWaits>(Source::Locks, None, None), None);
        assert_eq!(traces.absent.len(), 1);
        assert!(traces.absent[0].reason.ends_with("the kernel is too old"), "{traces:?}");
    }
}
