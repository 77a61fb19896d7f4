//! Threads of the engines in user space: each carries out its part of a plan.
//!
//! ```text
//!  calling thread: opens all flows, starts T threads, reports progress, takes the CPU times of the window
//!    thread 0: its flows  ─┐ each: its part of the schedule, its own buffers, template and tally; shared are only two
//!    thread 1: its flows  ─┘ counters for the progress line, and the flags that stop the run
//!
//!  time ──▶  start      warm-up ends           window ends      everything answered, or two timeouts over
//!              ├─ warm-up ───┼────── window ────────┼── drain ────────┤
//! ```
//! A request belongs to the window by its intended time. After the window nothing is sent, but replies are received
//! until every missing one is lost, not late.

mod failures;
mod intervals;
mod sys;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::clock::Clock;
use crate::plan::{Mode, Plan};
use crate::record::{Evidence, Outcome, Stopwatch, Tally, ThreadTime};
use crate::result::Kind;
use crate::template::Protocol;
use crate::{Error, Progress};

pub(crate) use failures::Failures;
use intervals::{Copies, Intervals};
pub(crate) use sys::Poller;

/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Longest time until a stop is noticed, and until the end of the window is seen by the calling thread.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// State shared by the threads and the calling thread.
pub(crate) struct Shared<'a> {
    /// Set by the caller to stop the run.
    pub(crate) stop: &'a AtomicBool,
    /// Set by a thread that can no longer send.
    pub(crate) cut: AtomicBool,
    /// Threads whose window is not over.
    pub(crate) running: AtomicUsize,
    pub(crate) counters: Vec<CachePadded<Counters>>,
    /// For the reports of latency.
    pub(crate) copies: Copies,
}

#[derive(Default)]
pub(crate) struct Counters {
    sent: AtomicU64,
    ok: AtomicU64,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(stop: &'a AtomicBool, threads: usize) -> Self {
        Self {
            stop,
            cut: AtomicBool::new(false),
            running: AtomicUsize::new(threads),
            counters: (0..threads).map(|_| CachePadded::default()).collect(),
            copies: Copies::new(threads),
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_cut()
    }

    /// Whether the threads must end at once.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Publishes one thread's progress, once per turn.
    pub(crate) fn publish(&self, thread: usize, sent: u64, ok: u64) {
        self.counters[thread].sent.store(sent, Ordering::Relaxed);
        self.counters[thread].ok.store(ok, Ordering::Relaxed);
    }

    fn totals(&self) -> (u64, u64) {
        self.counters.iter().fold((0, 0), |(sent, ok), c| {
            (sent + c.sent.load(Ordering::Relaxed), ok + c.ok.load(Ordering::Relaxed))
        })
    }
}

/// The measurements of one thread.
pub(crate) struct Report {
    pub(crate) tally: Tally,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) time: ThreadTime,
    /// When its window ended, nanoseconds since the start.
    pub(crate) ended: u64,
    pub(crate) unsent: u64,
    /// How late it started, if the plan has a time for that, nanoseconds.
    pub(crate) start_skew: Option<i64>,
    pub(crate) queue_full: u64,
    pub(crate) held_back: u64,
    pub(crate) own_drops: u64,
    pub(crate) failures: Failures,
    pub(crate) warnings: Vec<String>,
}

/// Carries out each task on its own thread; returns their measurements, and how the CPUs spent the window.
///
/// # Errors
/// A thread cannot be started; the others have ended by then.
pub(crate) fn run<T: Send>(
    plan: &Plan,
    clock: Clock,
    shared: &Shared<'_>,
    tasks: Vec<T>,
    work: impl Fn(T) -> Report + Copy + Send,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(Vec<Report>, Vec<crate::cpu::CpuUse>), Error> {
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(tasks.len());
        for (thread, task) in tasks.into_iter().enumerate() {
            let work = move || {
                // The default timer slack makes every sleep up to 50 us too long. Failure only costs precision.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                work(task)
            };
            match thread::Builder::new().name(format!("load-{thread}")).spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(e) => {
                    shared.cut.store(true, Ordering::Relaxed);
                    return Err(Error::system("start a sending thread", e));
                }
            }
        }
        let panicked = CutOnPanic(shared);
        let cpus = supervise(plan, clock, shared, progress);
        drop(panicked);
        let reports =
            handles.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect();
        Ok((reports, cpus))
    })
}

/// Ends the threads when the caller's progress function panics; otherwise they would run to the end of the plan.
struct CutOnPanic<'a>(&'a Shared<'a>);

impl Drop for CutOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cut.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs on the calling thread beside the sending ones until every thread's window is over.
fn supervise(
    plan: &Plan,
    clock: Clock,
    shared: &Shared<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Vec<crate::cpu::CpuUse> {
    let mut lost = Lost::new(plan.timeout);
    let (mut watch, mut intervals, mut interval) = (None, Intervals::new(), None);
    let mut last = (Instant::now(), 0, 0);
    while shared.running.load(Ordering::Acquire) > 0 {
        let until_window = Duration::from_nanos(clock.window().saturating_sub(clock.now()));
        if watch.is_none() && until_window.is_zero() {
            watch = Some(Stopwatch::start());
        }
        // Reading CPU times takes long enough to delay the start of other senders on this machine, if they start
        // together.
        let exactly = watch.is_none() && plan.start_at.is_none();
        let slice = if exactly { POLL_INTERVAL.min(until_window) } else { POLL_INTERVAL };
        // This thread sends nothing, so a coarse sleep is fine.
        thread::sleep(slice);
        interval = intervals.report(&shared.copies).or(interval);
        let since = last.0.elapsed();
        if since >= REPORT_INTERVAL {
            let (sent, ok) = shared.totals();
            let done = if plan.mode == Mode::Rr { ok - last.2 } else { sent - last.1 };
            progress(&Progress {
                elapsed: Duration::from_nanos(clock.now().saturating_sub(clock.window())),
                total: plan.duration,
                sent,
                ok,
                lost: if plan.mode == Mode::Rr { lost.at(clock.now(), sent, ok) } else { 0 },
                tps: done as f64 / since.as_secs_f64(),
                interval: interval.take(),
            });
            last = (Instant::now(), sent, ok);
        }
    }
    watch.map_or_else(Vec::new, |w| w.stop().1)
}

/// Estimates losses during the run: requests sent more than a timeout ago and still unanswered.
struct Lost {
    timeout: u64,
    history: std::collections::VecDeque<(u64, u64)>,
    settled: u64,
}

impl Lost {
    fn new(timeout: Duration) -> Self {
        Self { timeout: timeout.as_nanos() as u64, history: std::collections::VecDeque::new(), settled: 0 }
    }

    fn at(&mut self, now: u64, sent: u64, ok: u64) -> u64 {
        // Bounded: one entry per report, for one timeout; reports of longer timeouts are thinned out by the cap.
        if self.history.len() < 4096 {
            self.history.push_back((now, sent));
        }
        while let Some(&(then, sent)) = self.history.front()
            && now.saturating_sub(then) > self.timeout
        {
            self.settled = sent;
            self.history.pop_front();
        }
        self.settled.saturating_sub(ok)
    }
}

/// Combines all threads' reports into one outcome, and why the run ended early if it did. `plan` has the actual
/// number of threads.
pub(crate) fn conclude(
    engine: &'static str,
    plan: &Plan,
    protocol: &dyn Protocol,
    reports: Vec<Report>,
    cpus: Vec<crate::cpu::CpuUse>,
) -> (Outcome, Option<String>) {
    let (mut tally, mut kinds) = (Tally::new(), Vec::new());
    let mut failures = Failures::default();
    let mut warnings: Vec<String> = Vec::new();
    let ended = reports.iter().map(|r| r.ended).max().unwrap_or(0);
    let start_skew = reports.iter().filter_map(|report| report.start_skew).max_by_key(|skew| skew.abs());
    let seconds = ended.saturating_sub(plan.warmup.as_nanos() as u64) as f64 / 1e9;
    let mut evidence = Evidence {
        seconds,
        open_loop: plan.peak_rate().is_some(),
        interval: plan.offered().map(|rate| Duration::from_secs_f64(plan.parts() as f64 / rate)),
        ..Evidence::default()
    };
    for report in reports {
        tally.add(&report.tally);
        Kind::add(&mut kinds, report.kinds);
        evidence.threads.push(report.time);
        evidence.unsent += report.unsent;
        evidence.queue_full += report.queue_full;
        evidence.held_back += report.held_back;
        evidence.own_drops += report.own_drops;
        failures.add(&report.failures);
        for warning in report.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    let mut counts = tally.counts;
    if plan.mode == Mode::Rr {
        counts.lost = counts.sent - counts.ok - counts.late - counts.refused;
    }
    evidence.sent = counts.sent;
    evidence.received = counts.received;
    warnings.extend(failures.sentences());
    let cut = failures.cut();
    let outcome = Outcome {
        engine,
        protocol: protocol.name(),
        seconds,
        counts,
        kinds,
        completed: tally.completed,
        intended_latency: tally.intended_latency(),
        sent_latency: tally.sent_latency(),
        // Without intended times, lateness is undefined.
        lateness: if plan.peak_rate().is_some() || plan.mode == Mode::Rr { tally.lateness() } else { None },
        delivered: None,
        evidence,
        cpus,
        warnings,
        start_skew,
    };
    (outcome, cut)
}
