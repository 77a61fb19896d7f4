//! Arguments of `udpath profile`.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use udpath_profile::recorder::RATE;
use udpath_profile::trace::Source;
use udpath_steer::CpuSet;

use super::place::NetnsArgs;
use super::value;

/// How long to sample. Shorter: a few hundred samples are not representative; longer: slices of the time line fill
/// memory.
const LENGTH: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// Sampling rate of a CPU. Higher: the profile mostly measures the sampling itself.
const RATES: RangeInclusive<u32> = 1..=20_000;

/// Arguments of `udpath profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profile this process. All CPUs are sampled: softirq time is not charged to any process
    #[arg(long, value_name = "PID", conflicts_with = "port")]
    pub(crate) pid: Option<u32>,
    /// Profile the processes that serve this UDP port
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<NonZeroU16>,
    // Earlier versions called it --cpu.
    /// CPUs to sample, such as 0-3,8 [default: all online CPUs]
    #[arg(long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// How long to sample
    #[arg(short, long, default_value = "5s", value_parser = value::duration_within(LENGTH), allow_hyphen_values = true,
          value_name = "TIME")]
    pub(crate) duration: Duration,
    /// Samples per second and CPU
    #[arg(long, default_value_t = RATE, value_parser = value::rate_within(RATES), allow_hyphen_values = true,
          value_name = "HZ")]
    pub(crate) rate: u32,
    /// Also count with tracepoints: locks (waits and owners), drops (reasons and ports), softirqs (with polls, IPIs and
    /// wake-ups), delays (from the stack to the reader); comma-separated, or all, or none. Each has a cost, the last
    /// two at every packet: the result reports it
    #[arg(long, value_name = "LIST", default_value = "locks,drops", value_parser = traced)]
    pub(crate) trace: Traced,
    #[command(flatten)]
    pub(crate) netns: NetnsArgs,
    /// Write the stacks for other tools: `context;process;function;... N`, N in microseconds of CPU time
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Also write the result as one self-contained HTML file, with the flame graph
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Compare two results of --json, the second with the first, without sampling
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"],
          conflicts_with_all = ["pid", "port", "cpus", "duration", "rate", "trace", "netns", "folded"])]
    pub(crate) diff: Option<Vec<PathBuf>>,
    /// Print one JSON document (udpath.profile/2)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to trace besides the samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traced(pub(crate) BTreeSet<Source>);

/// `all`, `none`, or a comma-separated list of names.
fn traced(text: &str) -> Result<Traced, String> {
    match text {
        "all" => Ok(Traced(Source::ALL.into())),
        "none" => Ok(Traced::default()),
        list => list.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Traced),
    }
}
