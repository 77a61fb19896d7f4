//! Makes the [`LoadResult`] from what an engine measured.

use std::time::{Duration, Instant};

use crate::cpu::{CpuTimes, CpuUse};
use crate::plan::{Arrivals, Mode, Plan};
use crate::record::Evidence;
use crate::result::{Core, Counts, Kind, Latency, LoadResult, PerCore, SCHEMA, Start};
use crate::template::Received;

/// Measures the length of the window and the machine's CPU time over it.
#[derive(Debug)]
pub struct Stopwatch {
    started: Instant,
    // None without /proc: then the result has no CPU figures.
    cpus: Option<CpuTimes>,
}

impl Stopwatch {
    /// Starts the window.
    #[must_use]
    pub fn start() -> Self {
        Self { cpus: CpuTimes::now().ok(), started: Instant::now() }
    }

    /// Ends the window; returns its length, and how each CPU spent it.
    #[must_use]
    pub fn stop(self) -> (Duration, Vec<CpuUse>) {
        let length = self.started.elapsed();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let cpus = match (self.cpus, CpuTimes::now()) {
            (Some(then), Ok(now)) => now.since(&then, ticks),
            _ => Vec::new(),
        };
        (length, cpus)
    }
}

/// A receiver's report of one run.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// In total.
    pub all: Received,
    /// Bytes that had arrived when the window ended. Over UDP all that arrive, because nothing is retransmitted.
    pub in_window: u64,
}

/// Everything an engine measured; [`Outcome::into_result`] builds the result from it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// `socket`, `kernel` or `xdp`.
    pub engine: &'static str,
    /// The protocol's name.
    pub protocol: &'static str,
    /// Length of the window, seconds.
    pub seconds: f64,
    /// Requests that began in the window, and their outcomes.
    pub counts: Counts,
    /// Intact replies by what they say.
    pub kinds: Vec<Kind>,
    /// Valid replies in time that arrived in the window, to requests of the window or before it. `tps` is their rate.
    pub completed: u64,
    /// Request intended -> reply received.
    pub intended_latency: Option<Latency>,
    /// Request sent -> reply received.
    pub sent_latency: Option<Latency>,
    /// Request intended -> request sent.
    pub lateness: Option<Latency>,
    /// For one-way modes: the receiver's report of this run.
    pub delivered: Option<Arrived>,
    /// Whether the generator was the limit.
    pub evidence: Evidence,
    /// CPU time of the machine.
    pub cpus: Vec<CpuUse>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// How much later than the plan's time of starting the last thread started, nanoseconds; none if it has no such
    /// time.
    pub start_skew: Option<i64>,
}

impl Outcome {
    /// The result of a run of `plan`.
    #[must_use]
    pub fn into_result(self, plan: &Plan) -> LoadResult {
        let one_way = plan.mode != Mode::Rr;
        let seconds = self.seconds.max(f64::MIN_POSITIVE);
        let done = if one_way { self.counts.sent } else { self.completed } as f64;
        let tps = done / seconds;
        let generator = self.evidence.judge(self.lateness.as_ref());
        let sender = Core::new(generator.cpu_seconds, done, done * plan.size as f64);
        // A mix names a target once for each of its shares.
        let mut targets: Vec<String> = Vec::new();
        for target in plan.targets.iter().map(ToString::to_string) {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let mut result = LoadResult {
            schema: SCHEMA.into(),
            protocol: self.protocol.into(),
            targets,
            engine: self.engine.into(),
            transport: plan.transport.to_string(),
            mode: plan.mode.to_string(),
            arrivals: match plan.arrivals {
                Arrivals::Closed { .. } if one_way => "as fast as it goes".into(),
                arrivals => arrivals.to_string(),
            },
            flows: plan.own_flows(),
            size: plan.size as u32,
            seed: plan.seed,
            seconds: self.seconds,
            counts: self.counts,
            kinds: self.kinds,
            offered: plan.own_offered(),
            tps,
            series: None,
            mbits: tps * plan.size as f64 * 8.0 / 1e6,
            delivered: None,
            intended_latency: self.intended_latency,
            sent_latency: self.sent_latency,
            lateness: self.lateness,
            generator,
            cpus: self.cpus,
            per_core: PerCore { sender, receiver: None },
            warnings: self.warnings,
            drifted: None,
            start: plan.start_at.zip(self.start_skew).map(|(at, skew)| Start::measured(at, skew)),
            segment: None,
            segments: None,
            origin: None,
        };
        if let (true, Some(arrived)) = (one_way, self.delivered) {
            result.deliver(arrived);
        }
        result
    }
}
