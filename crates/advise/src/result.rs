//! The result of a climb: every rung with its verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_load::cpu::CpuUse;
use udpath_load::origin::Origin;
use udpath_load::result::{Counts, Latency};
use udpath_steer::CpuSet;

use crate::diagnosis::Diagnosis;
use crate::finding::Finding;
use crate::judged::ProfileResult;
use crate::statistics::median;
pub use crate::statistics::ratio::{Ratio, Verdict};

/// Version of the JSON form of [`BoostResult`].
pub const SCHEMA: &str = "udpath.boost/2";

/// The whole climb.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct BoostResult {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// When the climb began, seconds since 1970-01-01 UTC.
    pub started: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Where it was measured.
    pub machine: Machine,
    /// The load, the same for every rung.
    pub load: LoadSummary,
    /// The rungs in the order they were tried.
    pub rungs: Vec<RungResult>,
    /// Rungs of the ladder that could not be tried here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Name of the best rung: the one that was kept.
    pub best: String,
    /// Best rung over first rung, with its 95 % interval. From trials of the two interleaved.
    pub gain: Ratio,
    /// How the rungs were compared in duets; none if in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duets: Option<Duets>,
    /// Caveats that apply to all figures.
    pub warnings: Vec<String>,
    /// The command line that repeats it, if there is one.
    #[serde(default)]
    pub command: Option<String>,
    /// Profiles of the first and the best rung; none with `--no-profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Profiles>,
    /// What limited the first and the best rung under load; empty if they were not looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<RungDiagnosis>,
    /// Of a server that was running already: what was found, and what helps; none of a climb in a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// When and where it was measured, if the program that ran it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What limited a rung.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RungDiagnosis {
    /// The rung's name.
    pub rung: String,
    /// What was seen of it.
    pub diagnosis: Diagnosis,
}

/// A running server that was boosted from outside.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Running {
    /// The name of its program.
    pub server: String,
    /// Its processes, ascending.
    pub pids: Vec<u32>,
    /// Its UDP port.
    pub port: u16,
    /// The interface on which its datagrams arrive.
    pub interface: String,
    /// What was wrong as found, the most severe first.
    pub findings: Vec<Finding>,
    /// What helps, in the order in which it was found.
    pub kept: Vec<Helps>,
    /// How the server was restarted, if systemd did not do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// The applies that make it stay, with `--keep`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applies: Vec<u64>,
    /// What of them does not stay for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fleeting: Vec<Fleeting>,
    /// Changes that were tried in the screening, which decides what is compared first. 0 in results that are older than
    /// this field.
    #[serde(default)]
    pub screened: u32,
    /// The budget ended the search; not everything was tried.
    #[serde(default)]
    pub out_of_time: bool,
    /// Trials that were refused because the counts of generator and interfaces did not agree.
    #[serde(default)]
    pub refused_trials: u32,
}

/// Settings that were applied, and end by themselves.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Fleeting {
    /// The settings.
    pub settings: Vec<String>,
    /// When they end.
    pub until: Until,
    /// Why.
    pub why: String,
}

/// When a setting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// When the server is restarted.
    ServerRestart,
    /// At the next boot.
    Boot,
}

/// A group of settings that helps.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Helps {
    /// Its name.
    pub name: String,
    /// What it does.
    pub what: String,
    /// `SETTING=VALUE` each, as `udpath plan` accepts them.
    pub settings: Vec<String>,
    /// The same as shell commands, without udpath.
    pub shell: Vec<String>,
    /// The rate with everything that helps, over the rate without this group; none if it was not left out once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contribution: Option<Ratio>,
}

/// Profiles, each from an extra trial that is not scored: sampling costs CPU time.
#[derive(Debug, Clone, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Profiles {
    /// Of the first rung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Box<ProfileResult>>,
    /// Of the best rung, unless that is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Box<ProfileResult>>,
    /// Why one is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// Where it was measured.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPU model as in /proc/cpuinfo.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory: u64,
    /// Receive and transmit queues of the lab's link.
    pub queues: u32,
    /// Description of the link between generator and server.
    pub link: String,
}

/// The engine of a [`LoadSummary`] where no load was sent: the server had the traffic of its clients, and figures are
/// datagrams per second of CPU time instead of transactions per second.
pub const LIVE: &str = "live";

/// The load.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LoadSummary {
    /// Its protocol; empty for [`LIVE`], and in results that are older than this field.
    #[serde(default)]
    pub protocol: String,
    /// `kernel`, `socket` or another engine's name; [`LIVE`].
    pub engine: String,
    /// Number of flows.
    pub flows: u32,
    /// Requests in flight over all flows.
    pub inflight: u32,
    /// Payload bytes; where requests differ in length, their mean.
    pub size: u32,
    /// Bytes one request takes on an Ethernet wire: headers, FCS, preamble and gap included.
    pub wire_bytes: u32,
    /// 10 GbE line rate for that size, transactions per second.
    pub line_rate_tps: f64,
    /// Length of one trial, seconds.
    pub trial_seconds: f64,
}

/// A rung that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why, and what makes it possible.
    pub reason: String,
}

/// One rung: its configuration, its interleaved trials, its verdict.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RungResult {
    /// Short name: `shared`, `xps`, `reuseport`, ...
    pub name: String,
    /// Description of the change to the best rung before it.
    pub change: String,
    /// Every setting of the rung, as `key=value`, in a fixed order.
    pub settings: Vec<(String, String)>,
    /// Median tps over the rung's trials.
    pub tps: f64,
    /// `tps` as Mbit/s on the wire (headers, FCS, preamble and gap included).
    pub wire_mbits: f64,
    /// `tps` over the 10 GbE line rate for the size, 0..=1.
    pub line_share: f64,
    /// tps of this rung over tps of the best rung before it.
    pub ratio: f64,
    /// Lower end of the 95 % interval of `ratio`.
    pub ratio_low: f64,
    /// Upper end.
    pub ratio_high: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// True if the rung was kept as the best so far.
    pub kept: bool,
    /// True if it was measured under another load than the others, as was what it was compared with.
    #[serde(default)]
    pub other_load: bool,
    /// Of a rung that was compared in duets: the interval of `ratio` if their trials are taken for trials in turn,
    /// which take the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_turn: Option<Ratio>,
    /// Name of the rung it was compared with; none for the first.
    pub against: Option<String>,
    /// tps of each trial of this rung, in order.
    pub trials: Vec<f64>,
    /// Requests and replies over all its trials.
    pub counts: Counts,
    /// Share of requests without a valid reply in time.
    pub loss: f64,
    /// Latency over all its trials, sent -> answered; of live traffic: from the stack to the reader, of a sample.
    pub latency: Option<Latency>,
    /// Busy CPU time of the whole machine per transaction, nanoseconds; generator included.
    pub cpu_ns_per_transaction: f64,
    /// How each CPU spent the trials, averaged.
    pub cpus: Vec<CpuUse>,
    /// Why it failed, or warnings of the server or the generator.
    pub note: Option<String>,
}

/// The CPUs of the two sides: disjoint, and equally many.
pub type Sides = [CpuSet; 2];

/// What duets were worth.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Duets {
    /// The CPUs of each side.
    pub cpus: Sides,
    /// Rungs that were compared in duets, with enough trials to compare their intervals with those of trials in turn.
    pub rungs: usize,
    /// By how much the interval of a ratio is narrower than that of trials in turn which take the same time: the median
    /// over those rungs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrower: Option<f64>,
}

impl Duets {
    pub(crate) fn new(cpus: &Sides, rungs: &[RungResult]) -> Self {
        let gains: Vec<f64> = rungs.iter().filter_map(narrower).collect();
        Self { cpus: cpus.clone(), rungs: gains.len(), narrower: median(gains) }
    }
}

/// By how much a rung's interval is narrower than that of trials in turn: the ratio of their widths, both as
/// logarithms. None of a rung that was compared in turn, or in too few duets.
#[must_use]
pub fn narrower(rung: &RungResult) -> Option<f64> {
    let width = |low: f64, high: f64| (low > 0.0 && high > low).then(|| (high / low).ln());
    let in_turn = rung.in_turn?;
    Some(width(in_turn.low, in_turn.high)? / width(rung.ratio_low, rung.ratio_high)?)
}
