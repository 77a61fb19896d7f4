//! The arguments, and from them what to sample and the profile's focus.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use udpath_host::Snapshot;
use udpath_host::namespace::Place;
use udpath_profile::facts::Focus;
use udpath_profile::recorder::RATE;
use udpath_profile::trace::Source;
use udpath_steer::CpuSet;

use crate::exit::Failure;
use crate::verbs::load::units;

/// Arguments of `udpath profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profile this process. All CPUs are sampled: softirq time is not charged to any process
    #[arg(long, value_name = "PID", conflicts_with = "port")]
    pub(super) pid: Option<u32>,
    /// Profile the processes that serve this UDP port
    #[arg(long, value_name = "PORT")]
    pub(super) port: Option<std::num::NonZeroU16>,
    /// Sample these CPUs only
    #[arg(long, value_name = "LIST")]
    pub(super) cpu: Option<CpuSet>,
    /// How long to sample
    #[arg(short, long, default_value = "5s", value_parser = length, allow_hyphen_values = true, value_name = "TIME")]
    pub(super) duration: Duration,
    /// Samples per second and CPU
    #[arg(long, default_value_t = RATE, value_parser = rate, allow_hyphen_values = true, value_name = "HZ")]
    pub(super) rate: u32,
    /// Also count with tracepoints: locks (waits and owners), drops (reasons and ports), softirqs (with polls, IPIs and
    /// wake-ups), delays (from the stack to the reader); comma-separated, or all, or none. Each has a cost, the last
    /// two at every packet: the result reports it
    #[arg(long, value_name = "LIST", default_value = "locks,drops", value_parser = traced)]
    pub(super) trace: Traced,
    /// Count datagrams and look for sockets in this network namespace, as listed by `ip netns`
    #[arg(long, value_name = "NAME")]
    pub(super) netns: Option<String>,
    /// Print one JSON document (udpath.profile/2)
    #[arg(long)]
    pub(super) json: bool,
    /// Write the stacks for other tools: `context;process;function;... N`, N in microseconds of CPU time
    #[arg(long, value_name = "FILE")]
    pub(super) folded: Option<PathBuf>,
    /// Write one self-contained HTML file with the flame graph
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Compare two results of --json, the second with the first, without sampling
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"],
          conflicts_with_all = ["pid", "port", "cpu", "duration", "rate", "trace", "netns", "folded"])]
    pub(super) diff: Option<Vec<PathBuf>>,
}

/// Shortest and longest duration. Shorter: a few hundred samples are not representative; longer: slices of the time
/// line fill memory.
const LENGTH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// Highest sampling rate. Higher: the profile mostly measures the sampling itself.
const FASTEST: u32 = 20_000;

/// A length of time.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = units::time(text)?;
    if (LENGTH.0..=LENGTH.1).contains(&length) { Ok(length) } else { Err("give 100ms to 1h".to_owned()) }
}

/// A rate of samples.
pub(super) fn rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|rate| (1..=FASTEST).contains(rate));
    rate.ok_or_else(|| format!("give 1 to {FASTEST} samples a second of each CPU"))
}

/// What to trace besides the samples.
#[derive(Debug, Clone, Default)]
pub(super) struct Traced(pub(super) BTreeSet<Source>);

/// `all`, `none`, or a comma-separated list of names.
pub(super) fn traced(text: &str) -> Result<Traced, String> {
    match text {
        "all" => Ok(Traced(Source::ALL.into())),
        "none" => Ok(Traced::default()),
        list => list.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Traced),
    }
}

/// The namespace whose sockets and counters are read: the requested one, or that of the process.
pub(super) fn place(args: &Args) -> Result<Place, Failure> {
    if let Some(pid) = args.pid
        && !Path::new(&format!("/proc/{pid}")).is_dir()
    {
        return Err(Failure::Usage(format!("--pid {pid}: no such process")));
    }
    Ok(match (&args.netns, args.pid) {
        (Some(name), _) => Place::Named(name.clone()),
        // Entering needs privileges, so it is done only for another namespace.
        (None, Some(pid)) if !is_here(pid) => Place::Process(pid),
        _ => Place::Here,
    })
}

/// Is a process in this network namespace, or is its namespace unknown?
fn is_here(pid: u32) -> bool {
    let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/net")).ok();
    namespace(&pid.to_string()).is_none_or(|its| Some(its) == namespace("self"))
}

/// The profile's focus.
pub(super) fn focus(args: &Args, now: &Snapshot) -> Result<Focus, Failure> {
    let Some(port) = args.port.map(std::num::NonZeroU16::get) else {
        return Ok(Focus { port: None, pids: args.pid.into_iter().collect() });
    };
    let sockets: Vec<_> = now.sockets.list.iter().filter(|socket| socket.local.port() == port).collect();
    if sockets.is_empty() {
        return Err(Failure::Usage(format!(
            "--port {port}: no UDP socket is bound to it; `udpath show` lists those there are"
        )));
    }
    let mut pids: Vec<u32> =
        sockets.iter().flat_map(|socket| &socket.owners).map(|owner| owner.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(Focus { port: Some(port), pids })
}

/// The CPUs to sample.
pub(super) fn cpus(args: &Args, now: &Snapshot) -> Result<CpuSet, Failure> {
    let online = &now.cpus.online;
    let Some(wanted) = &args.cpu else { return Ok(online.clone()) };
    let missing = wanted.difference(online);
    if wanted.is_empty() || !missing.is_empty() {
        return Err(Failure::Usage(format!("--cpu {wanted}: CPUs that run are {online}")));
    }
    Ok(wanted.clone())
}
