//! Arguments of `udpath boost`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use udpath_load::Engine;
use udpath_serve::Io;
use udpath_tune::journal::DIRECTORY;

use super::history::RecordArgs;
use super::{choice, value};

/// Length of a trial. Shorter: the first milliseconds dominate. Longer: a climb takes days.
const TRIAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(3600);

/// Arguments of `udpath boost`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Climb the ladder with a server of udpath's own in a lab, two network namespaces joined by a veth pair: what
    /// happens when no server is named
    #[arg(long)]
    pub(crate) lab: bool,
    /// Climb with this service of udpath's own and the load of these options, as for `udpath load`: SERVICE
    /// [OPTION...]. The last option: everything after it belongs to the load [default: echo]
    #[arg(long, value_name = "SERVICE", num_args = 1.., allow_hyphen_values = true,
          conflicts_with_all = ["port", "pid", "unit", "live", "load"])]
    pub(crate) serve: Vec<OsString>,
    #[command(flatten)]
    pub(crate) running: RunningArgs,
    /// Receive and transmit queues of the link [default: one per CPU, at most 8]
    #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) queues: Option<u32>,
    /// Interrupt moderation of the link, microseconds: how long an end waits for more frames; 0: off [default: 75 with
    /// the kernel engine, 0 with the socket engine]
    #[arg(long, value_name = "US", value_parser = value::count::<u32>)]
    pub(crate) moderation: Option<u32>,
    /// Ios to try, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "shared,reuseport,percpu,xdp",
          value_parser = io())]
    pub(crate) io: Vec<Io>,
    /// Worker threads of the server [default: one per queue]
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) workers: Option<usize>,
    /// Payload of a request [default: 100, or the size that the service prescribes]
    #[arg(long, value_name = "BYTES", value_parser = value::size)]
    pub(crate) size: Option<usize>,
    /// Number of flows: sockets, each with its own source port
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value::count::<u32>)]
    pub(crate) flows: u32,
    /// Requests in flight per flow [default: 384 over all flows]
    #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) inflight: Option<u32>,
    // Earlier versions called it --seconds.
    /// Length of one trial
    #[arg(short, long, alias = "seconds", value_name = "TIME", default_value = "500ms",
          value_parser = value::duration_within(TRIAL))]
    pub(crate) duration: Duration,
    /// Stop comparing once the half-width of the ratio's 95 % interval is below this, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.7)]
    pub(crate) bound: f64,
    /// At most this many blocks of four trials per rung; a rung undecided by then is "not shown"
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = value::count::<usize>)]
    pub(crate) blocks: usize,
    /// Measure the two rungs of a comparison at once, each with half of the CPUs for itself and its load, instead of in
    /// turn. auto: where each half has 2 CPUs, and one for each worker and queue
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = when())]
    pub(crate) duet: When,
    /// What sends the requests [default: kernel as root if it carries the service, otherwise socket]
    #[arg(long, value_name = "ENGINE", value_parser = engine())]
    pub(crate) engine: Option<Engine>,
    /// Use IPv6
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Skip the profiles of the first and the best rung
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// Print everything: notes, latency, costs and CPU time of the rungs, classes of CPU time, load and machine
    #[arg(long, conflicts_with = "json")]
    pub(crate) details: bool,
    /// Also write the result as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Print one JSON document (udpath.boost/2)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of a boost of a server that runs already.
#[derive(Debug, clap::Args)]
pub(crate) struct RunningArgs {
    /// Boost the running server on this UDP port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "traffic",
          conflicts_with = "lab")]
    pub(crate) port: Option<u16>,
    /// Boost this running process, in its own network namespace
    #[arg(long, value_name = "PID", conflicts_with_all = ["lab", "port"], requires = "traffic")]
    pub(crate) pid: Option<u32>,
    /// Boost the processes of this running systemd unit, such as nsd.service
    #[arg(long, value_name = "UNIT", conflicts_with_all = ["lab", "port", "pid"], requires = "traffic")]
    pub(crate) unit: Option<String>,
    /// With --port: the server is in this network namespace, or in this machine of a lab [default: the caller's]
    #[arg(long, value_name = "NAME|LAB/MACHINE", requires = "port")]
    pub(crate) netns: Option<String>,
    /// Send the load from this network namespace, or from this machine of a lab [default: the caller's]
    #[arg(long, value_name = "NAME|LAB/MACHINE", requires = "load")]
    pub(crate) from: Option<String>,
    /// How long it may take, measuring the gain included; one change is compared however short it is
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = value::duration, requires = "traffic")]
    pub(crate) budget: Duration,
    /// Also try changes that lower security, changes that reset the link, changes of the server's configuration files,
    /// and restarts of the server (configuration needs both)
    #[arg(long, value_name = "security,link-reset,config,restart", value_delimiter = ',',
          value_parser = ["security", "link-reset", "config", "restart"], requires = "traffic")]
    pub(crate) allow: Vec<String>,
    /// Restart the server with this shell command [default: systemd restarts its unit]
    #[arg(long, value_name = "COMMAND", requires = "traffic")]
    pub(crate) restart: Option<String>,
    /// Apply what was shown to help, over restarts and boots where possible, as `udpath apply --persist` does;
    /// otherwise everything is as found at the end
    #[arg(long, requires = "traffic")]
    pub(crate) keep: bool,
    /// Journal folder
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub(crate) state: PathBuf,
    /// Send nothing: measure what the server's clients send anyway, in trials of at least 1 s, by the datagrams that a
    /// second of CPU time carries
    #[arg(long, group = "traffic",
          conflicts_with_all = ["queues", "moderation", "io", "workers", "size", "flows", "inflight", "engine", "ipv6", "duet"])]
    pub(crate) live: bool,
    /// The load of every trial, as for `udpath load`: PROTOCOL ADDR:PORT [OPTION...]. The last option: everything after
    /// it belongs to the load
    #[arg(long, value_name = "LOAD", num_args = 1.., allow_hyphen_values = true, group = "traffic",
          conflicts_with_all = ["queues", "moderation", "io", "workers", "size", "flows", "inflight", "engine", "ipv6", "duet"])]
    pub(crate) load: Vec<OsString>,
}

/// `udpath load`, as a line of its own.
#[derive(Debug, clap::Parser)]
#[command(name = "load", no_binary_name = true, disable_help_flag = true)]
pub(crate) struct LoadLine {
    #[command(flatten)]
    pub(crate) args: super::load::Args,
}

/// When something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

fn when() -> impl TypedValueParser<Value = When> {
    const WHENS: &[(When, &str)] =
        &[(When::Auto, "where there are enough CPUs"), (When::Always, "or fail"), (When::Never, "in turn")];
    choice::one_of(WHENS, |when| match when {
        When::Auto => "auto",
        When::Always => "always",
        When::Never => "never",
    })
}

fn io() -> impl TypedValueParser<Value = Io> {
    const IOS: &[(Io, &str)] = &[
        (Io::Shared, "one socket that all workers read"),
        (Io::Reuseport, "a socket per worker; the kernel chooses by flow hash"),
        (Io::Percpu, "a socket per worker; the kernel chooses by the CPU that received the datagram"),
        (Io::Xdp, "frames from the device's queues, bypassing the kernel's UDP (AF_XDP)"),
    ];
    choice::one_of(IOS, Io::name)
}

fn engine() -> impl TypedValueParser<Value = Engine> {
    const ENGINES: &[(Engine, &str)] = &[
        (Engine::Kernel, "closed loop in the driver, by BPF; needs root"),
        (Engine::Socket, "kernel sockets"),
    ];
    choice::one_of(ENGINES, Engine::name)
}
