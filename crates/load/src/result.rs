//! The result of a run: plain, serialisable, mergeable.
//!
//! ```text
//! every request sent ends as exactly one of      ok | late | refused | lost
//! every datagram received is exactly one of      ok | late | refused | duplicate | corrupt | wrong_flow
//! ```
//! `reordered` counts some of the ok and late ones. [`Counts::check`] checks both identities. One-way modes have no
//! replies: `ok` is the receiver's report, `lost` the rest, and both are 0 if there is no report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpu::CpuUse;
use crate::origin::Origin;

mod merge;
mod segments;
mod series;

pub use segments::{MergeError, SegmentResult, Segments, Share, Start};
pub use series::Series;
pub(crate) use series::Slices;

/// Version of the JSON form of [`LoadResult`]; raised when a field changes its meaning or is removed.
pub const SCHEMA: &str = "udpath.load/1";

/// One measured run of one plan against one target.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LoadResult {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// `echo`, `sink`, ...: the template whose requests were sent.
    pub protocol: String,
    /// Where the requests went, as `ADDR:PORT`.
    pub targets: Vec<String>,
    /// `socket`, `kernel` or `xdp`.
    pub engine: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// `rr`, `stream` or `flood`.
    pub mode: String,
    /// The arrival process in words: `closed, 8 in flight per flow`, `poisson, 100000/s`, ...
    pub arrivals: String,
    /// Number of flows (distinct source address and port).
    pub flows: u32,
    /// Payload size of a request, bytes; the mean of requests of several lengths.
    pub size: u32,
    /// Seed of everything random in the plan.
    pub seed: u64,
    /// Length of the measured window, seconds (warm-up and drain are outside it).
    pub seconds: f64,
    /// The outcome of every request and every reply.
    pub counts: Counts,
    /// Intact replies by what they say, such as DNS response codes; empty for protocols whose replies are all alike. Of
    /// the kernel engine: of the replies that it checked completely.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Requested transactions per second (open loop); none for a closed loop.
    pub offered: Option<f64>,
    /// Valid transactions completed per second; for `stream` and `flood`, datagrams or messages sent per second.
    pub tps: f64,
    /// `tps` in consecutive slices of the window; none of a run shorter than two slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Payload bits of requests per second, in Mbit/s.
    pub mbits: f64,
    /// For one-way modes: the receiver's report. None if it was not requested or did not arrive.
    pub delivered: Option<Delivered>,
    /// Request intended -> reply received: the latency that a client which follows the plan observes.
    pub intended_latency: Option<Latency>,
    /// Request sent -> reply received: the path and the server alone.
    pub sent_latency: Option<Latency>,
    /// Request intended -> request sent: the generator's own delay.
    pub lateness: Option<Latency>,
    /// Whether the generator, rather than the server, was the limit.
    pub generator: Generator,
    /// CPU time of the whole machine in the window, by CPU. Generator and server share it in a lab.
    pub cpus: Vec<CpuUse>,
    /// Throughput of one core at each end.
    #[serde(default)]
    pub per_core: PerCore,
    /// Anything that makes the figures doubtful (all traffic on one CPU, ...).
    pub warnings: Vec<String>,
    /// The CPU to which flows drifted that had started on several; none if they stayed, or if nobody can know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted: Option<u32>,
    /// When it started, if the plan has a time for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Of a segment: which one, of which plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Share>,
    /// Of a sum: its segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// When and where it was measured, if the program that ran it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// How many intact replies said the same.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Kind {
    /// What they said, as the protocol calls it.
    pub name: String,
    /// Replies, those to the warm-up included.
    pub count: u64,
    /// Those of them by which the server refused a request; 0 in results of older versions, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Kind {
    /// So many replies that refuse nothing.
    #[must_use]
    pub fn new(name: impl Into<String>, count: u64) -> Self {
        Self { name: name.into(), count, refused: 0 }
    }

    /// Adds `more` to `kinds`, by name.
    pub(crate) fn add(kinds: &mut Vec<Self>, more: Vec<Self>) {
        for kind in more {
            match kinds.iter_mut().find(|known| known.name == kind.name) {
                Some(known) => {
                    known.count += kind.count;
                    known.refused += kind.refused;
                }
                None => kinds.push(kind),
            }
        }
    }
}

/// The outcome of every request and every reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Counts {
    /// Requests handed to the kernel or the driver.
    pub sent: u64,
    /// Requests whose first valid reply arrived in time.
    pub ok: u64,
    /// Requests whose first valid reply arrived after the timeout.
    pub late: u64,
    /// Requests that the server refused with its first reply.
    #[serde(default)]
    pub refused: u64,
    /// Requests with no valid reply until the end of the run.
    pub lost: u64,
    /// Valid replies to a request that already had one.
    pub duplicate: u64,
    /// First valid replies that arrived after the reply to a later request of the same flow.
    pub reordered: u64,
    /// Replies whose contents are not the request's.
    pub corrupt: u64,
    /// Intact replies that belong to a flow other than the one they arrived on.
    pub wrong_flow: u64,
    /// Requests that the kernel rejected (no buffers, no route); not in `sent`.
    pub send_errors: u64,
    /// Datagrams (TCP: messages) received, without replies to the warm-up. Counted independently of the judgement.
    #[serde(default)]
    pub received: u64,
}

impl Counts {
    /// Adds another run's or thread's counts.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.ok += other.ok;
        self.late += other.late;
        self.refused += other.refused;
        self.lost += other.lost;
        self.duplicate += other.duplicate;
        self.reordered += other.reordered;
        self.corrupt += other.corrupt;
        self.wrong_flow += other.wrong_flow;
        self.send_errors += other.send_errors;
        self.received += other.received;
    }

    /// One-way modes: sets `ok` to the receiver's count of `datagrams`, and `lost` to the rest.
    pub fn deliver(&mut self, datagrams: u64) {
        // It may have counted another sender's datagrams; more than were sent cannot have arrived.
        self.ok = datagrams.min(self.sent);
        self.lost = self.sent - self.ok;
    }

    /// Share of sent requests that never got a valid reply in time, 0..=1: those that were refused among them.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.share(self.sent.saturating_sub(self.ok))
    }

    /// Share of sent requests that the server refused with its first reply, 0..=1.
    #[must_use]
    pub fn refusals(&self) -> f64 {
        self.share(self.refused)
    }

    /// Share of sent requests to which nothing valid came in time, not even a refusal, 0..=1.
    #[must_use]
    pub fn not_in_time(&self) -> f64 {
        self.share(self.late.saturating_add(self.lost))
    }

    /// `part` of the sent requests. A file may contain any numbers.
    fn share(&self, part: u64) -> f64 {
        if self.sent == 0 { 0.0 } else { part.min(self.sent) as f64 / self.sent as f64 }
    }

    /// Checks that the counts of an `rr` run satisfy `sent = ok + late + refused + lost` and
    /// `received = ok + late + refused + duplicate + corrupt + wrong_flow`.
    ///
    /// # Errors
    /// Both sides of the identity that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let Self { sent, ok, late, refused, lost, duplicate, corrupt, wrong_flow, received, .. } = *self;
        // A file may contain any numbers: their sums need more bits.
        let sum = |counts: &[u64]| counts.iter().map(|count| u128::from(*count)).sum::<u128>();
        let ended = sum(&[ok, late, refused, lost]);
        if u128::from(sent) != ended {
            return Err(format!(
                "sent {sent} but ok {ok} + late {late} + refused {refused} + lost {lost} = {ended}"
            ));
        }
        let judged = sum(&[ok, late, refused, duplicate, corrupt, wrong_flow]);
        if u128::from(received) != judged {
            return Err(format!(
                "received {received} but ok {ok} + late {late} + refused {refused} + duplicate {duplicate} + corrupt {corrupt} + \
                 wrong flow {wrong_flow} = {judged}"
            ));
        }
        Ok(())
    }
}

/// The receiver's report of a one-way run.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Delivered {
    /// Datagrams the receiver counted during the run; over TCP whole messages, by their bytes.
    pub datagrams: u64,
    /// Payload bytes the receiver counted during the run.
    pub bytes: u64,
    /// Datagrams or messages per second over the measured window.
    pub per_second: f64,
    /// Payload bits per second over the measured window, in Mbit/s. TCP: those that had arrived when it ended,
    /// without bytes still in socket buffers.
    #[serde(default)]
    pub mbits: f64,
}

/// Throughput of one core at each end of a run. None where the CPU time of that end is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PerCore {
    /// Datagrams sent (one way), or answered, per core of the generator's sending threads.
    pub sender: Option<Core>,
    /// Datagrams received (one way), or answered, per core of the receiver's process.
    pub receiver: Option<Core>,
}

/// Throughput of one core that runs nothing else.
///
/// CPU time as the kernel charges it to the threads, user and system. Interrupts and softirqs are charged to the task
/// they interrupt: over the loopback and a veth, the receive path is charged to the sender.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Core {
    /// CPU time used, seconds.
    pub cpu_seconds: f64,
    /// Datagrams, messages or transactions per second of CPU time.
    pub per_second: f64,
    /// Payload bits per second of CPU time, in Mbit/s.
    pub mbits: f64,
}

impl Core {
    /// From `count` datagrams, messages or transactions with `bytes` payload bytes in total, in `cpu_seconds` of CPU
    /// time. None if that time is too short to be exact.
    #[must_use]
    pub fn new(cpu_seconds: f64, count: f64, bytes: f64) -> Option<Self> {
        (cpu_seconds >= MIN_CPU_SECONDS).then(|| Self {
            cpu_seconds,
            per_second: count / cpu_seconds,
            mbits: bytes * 8.0 / 1e6 / cpu_seconds,
        })
    }

    /// The work of both ends combined.
    fn merged(self, other: Self) -> Option<Self> {
        let of = |core: Self| (core.per_second * core.cpu_seconds, core.mbits * 1e6 / 8.0 * core.cpu_seconds);
        let ((count, bytes), (more, more_bytes)) = (of(self), of(other));
        Self::new(self.cpu_seconds + other.cpu_seconds, count + more, bytes + more_bytes)
    }
}

/// Shortest CPU time to compute a throughput from, seconds. Lower: the figure is mostly the start and end of a
/// thread. Higher: short runs have none.
const MIN_CPU_SECONDS: f64 = 0.001;

/// One latency distribution. All times in nanoseconds.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Latency {
    /// Recorded values.
    pub count: u64,
    /// Smallest value.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Largest value.
    pub max: u64,
    /// The raw histogram: (highest value of the bucket, count), empty buckets left out, values ascending.
    /// Buckets are under 1 % wide; two of these merge by adding counts.
    pub histogram: Vec<(u64, u64)>,
}

/// Whether the generator was the limit, or kept to its plan only in part.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Generator {
    /// It did not send what was offered, or lost replies itself: the result says nothing about the server's limit.
    pub limited: bool,
    /// Why, in sentences with the figures. If it was not limited: what was offered was sent, but not as planned, and
    /// the latencies are doubtful.
    pub reasons: Vec<String>,
    /// CPU time the generator's own threads used in the window, seconds (user + system).
    pub cpu_seconds: f64,
    /// How it sent, in sentences: mode, queues and rings of AF_XDP. Empty for sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
