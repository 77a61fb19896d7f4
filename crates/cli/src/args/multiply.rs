//! Arguments of `udpath multiply`, and of the guard that it starts.

use std::time::Duration;

use clap::builder::TypedValueParser;
use udpath_multiply::Choose;
use udpath_steer::CpuSet;
use udpath_tune::services::Probe;

use super::settings::JournalArgs;
use super::{choice, value};

/// How long an instance may take until it serves, by default. Servers with large configurations load for seconds.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(10);
/// How long an instance may take to read what is queued, by default. A full queue of 200 kB is read in milliseconds.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Arguments of `udpath multiply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the instances: with COMMAND, the name to run under [default: the program's]; without, the running
    /// instances to change, or a service of systemd to run in instances
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Number of instances, at most one for each CPU that they may use [default: that many]
    #[arg(short = 'n', long = "instances", value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) count: Option<usize>,
    /// UDP port that each instance must bind [default: that of a known server, or any]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// How an instance is chosen for a datagram
    #[arg(long, value_name = "RULE", default_value = "hash", value_parser = choose())]
    pub(crate) choose: Choose,
    /// Query that each instance must answer [default: that of a known server, or none]
    #[arg(long, value_name = "PROTOCOL", value_parser = probe())]
    pub(crate) probe: Option<Probe>,
    /// CPUs for the instances, one each, such as 0-3,8 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// How long an instance may take until it serves
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = limit())]
    pub(crate) start_limit: Duration,
    /// How long an instance may take to read what is queued, and again to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = limit())]
    pub(crate) drain_limit: Duration,
    /// List all running instances
    #[arg(long, conflicts_with_all = ["name", "count", "stop", "command"])]
    pub(crate) list: bool,
    /// End the instances of NAME in order; a service runs as before
    #[arg(long, requires = "name", conflicts_with_all = ["count", "command"])]
    pub(crate) stop: bool,
    /// NAME is the supervisor of a service, as its drop-in starts it
    #[arg(long, hide = true, requires = "name")]
    pub(crate) unit: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
    /// Print one JSON document (udpath.multiply/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// The server and its arguments, after `--`. In each, {n} is the instance's number from 1, {cpu} its CPU, {folder}
    /// a folder of its own
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
}

/// Arguments of `udpath multiply-guard`, which `udpath multiply` sets.
#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// Name of the instances
    pub(crate) name: String,
}

fn choose() -> impl TypedValueParser<Value = Choose> {
    const RULES: &[(Choose, &str)] = &[
        (Choose::Hash, "by the hash of its flow: a flow stays with one instance"),
        (Choose::Cpu, "by the CPU that received it"),
    ];
    choice::one_of(RULES, |rule| match rule {
        Choose::Hash => "hash",
        Choose::Cpu => "cpu",
    })
}

fn probe() -> impl TypedValueParser<Value = Probe> {
    const PROBES: &[(Probe, &str)] = &[
        (Probe::Dns, "a DNS query for the root's NS"),
        (Probe::Ntp, "an NTP request of a client"),
        (Probe::Stun, "a STUN binding request"),
        (Probe::Bound, "no query: an instance must have its sockets, and read them"),
    ];
    choice::one_of(PROBES, |probe| match probe {
        Probe::Dns => "dns",
        Probe::Ntp => "ntp",
        Probe::Stun => "stun",
        Probe::Bound => "none",
    })
}

fn limit() -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    value::duration_within(Duration::from_millis(10)..=Duration::from_secs(300))
}
