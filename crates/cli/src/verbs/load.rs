//! `udpath load`: sends requests according to a plan, checks every reply, and reports first whether the generator was
//! the limit.
//!
//! stdout: the result; stderr: progress, on a terminal.

mod lab;
mod options;
mod progress;
pub(super) mod units;

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::builder::TypedValueParser;
use udpath_load::plan::{Mode, Plan, PortRange, Process, Transport};
use udpath_load::result::LoadResult;
use udpath_load::search::{FindMax, Limits, find_max};
use udpath_load::template::Protocol;
use udpath_load::{Engine, Error};
use udpath_protocols::ProtocolEntry;
use udpath_report::Render;

use super::choice;
use crate::exit::{Done, Failure};
use crate::terminal;
use options::Task;
use progress::ProgressLine;

/// Arguments of `udpath load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Protocol of the server
    #[arg(value_name = "PROTOCOL", value_parser = choice::protocol())]
    protocol: &'static ProtocolEntry,
    /// Address of the server; several servers share the flows
    #[arg(value_name = "ADDR:PORT")]
    targets: Vec<String>,
    /// What sends the requests
    #[arg(long, default_value = "socket", value_name = "ENGINE", value_parser = engine_parser())]
    engine: Engine,
    /// Transport [default: udp]
    #[arg(long, value_name = "TRANSPORT", value_parser = transport_parser())]
    transport: Option<Transport>,
    /// Same as --transport tcp
    #[arg(long)]
    tcp: bool,
    /// What a flow does [default: the first mode that the protocol supports]
    #[arg(long, value_name = "MODE", value_parser = mode_parser())]
    mode: Option<Mode>,
    /// Number of flows: sockets, each with its own source port
    #[arg(long, default_value_t = 1, value_name = "N")]
    flows: u32,
    /// Closed loop: requests in flight per flow [default: 1]
    #[arg(long, value_name = "N")]
    inflight: Option<u32>,
    /// Open loop: transactions per second over all flows, such as 100k
    #[arg(long, value_parser = units::rate, allow_hyphen_values = true, value_name = "RATE")]
    rate: Option<f64>,
    /// Arrival process of --rate: constant, poisson, burst or burst:N [default: constant]
    #[arg(long, value_parser = process, value_name = "PROCESS")]
    arrivals: Option<Process>,
    /// Open loop with a rate that changes from A to B over the duration
    #[arg(long, value_parser = units::ramp, allow_hyphen_values = true, value_name = "A..B")]
    ramp: Option<(f64, f64)>,
    /// Length of the measured window [default: 5s; 2s for each run of a search]
    #[arg(short, long, value_parser = units::time, allow_hyphen_values = true, value_name = "TIME")]
    duration: Option<Duration>,
    /// Time under the same load before the window
    #[arg(long, default_value = "0s", value_parser = units::time, allow_hyphen_values = true, value_name = "TIME")]
    warmup: Duration,
    /// A reply after this time is late; after twice this time, it is lost
    #[arg(long, default_value = "1s", value_parser = units::time, allow_hyphen_values = true, value_name = "TIME")]
    timeout: Duration,
    /// Payload size of a request
    #[arg(long, default_value = "100", value_parser = units::count, allow_hyphen_values = true, value_name = "BYTES")]
    size: u64,
    /// Source address; repeatable
    #[arg(long = "source", value_name = "ADDR")]
    sources: Vec<IpAddr>,
    /// Source ports
    #[arg(long, value_parser = units::ports, value_name = "LOW-HIGH")]
    source_ports: Option<PortRange>,
    /// Sending threads [default: half of the CPUs]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seed of the arrival times
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Search for the highest rate within --loss and --p99
    #[arg(long)]
    find_max: bool,
    /// Search: largest share of requests lost or late [default: 0.1%]
    #[arg(long, value_parser = units::share, allow_hyphen_values = true, value_name = "SHARE")]
    loss: Option<f64>,
    /// Search: largest 99th percentile of latency [default: no limit]
    #[arg(long, value_parser = units::time, allow_hyphen_values = true, value_name = "TIME")]
    p99: Option<Duration>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    lab: lab::LabArgs,
}

fn engine_parser() -> impl TypedValueParser<Value = Engine> {
    let engines = &[
        (Engine::Socket, "kernel sockets; every plan"),
        (Engine::Kernel, "closed loop in the driver, by BPF; UDP only, not over the loopback"),
        (Engine::Xdp, "AF_XDP, bypassing the kernel's UDP; UDP only, not over the loopback"),
        (Engine::XdpRings, "like xdp, but never sends live frames"),
    ];
    choice::one_of(engines, Engine::name)
}

fn transport_parser() -> impl TypedValueParser<Value = Transport> {
    choice::one_of(
        &[(Transport::Udp, "datagrams"), (Transport::Tcp, "one connection per flow")],
        Transport::name,
    )
}

fn mode_parser() -> impl TypedValueParser<Value = Mode> {
    let modes = &[
        (Mode::Rr, "requests and replies"),
        (Mode::Stream, "one way, batched with GSO"),
        (Mode::Flood, "one way, one datagram per message"),
    ];
    choice::one_of(modes, Mode::name)
}

/// Transactions per burst if `burst` has no number.
const BURST: u32 = 16;

fn process(text: &str) -> Result<Process, String> {
    match text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n))) {
        ("constant", None) => Ok(Process::Constant),
        ("poisson", None) => Ok(Process::Poisson),
        ("burst", None) => Ok(Process::Burst { len: BURST }),
        ("burst", Some(n)) => match n.parse() {
            Ok(len) => Ok(Process::Burst { len }),
            Err(_) => Err(format!("invalid burst length `{n}`: expected a number, as in burst:16")),
        },
        _ => Err(format!("unknown process `{text}`: expected constant, poisson, burst or burst:N")),
    }
}

/// Carries out the arguments.
pub(crate) fn run(args: Args) -> Done {
    let args = &args;
    lab::check(args).map_err(Failure::Usage)?;
    let task = options::task(args).map_err(Failure::Usage)?;
    let stop = Arc::new(AtomicBool::new(false));
    terminal::stop_on_signals(&stop)?;
    if args.lab.lab {
        return lab::run(args, &task, &stop);
    }
    match task.search {
        Some(limits) => search(args, &task, &limits, &stop),
        None => load(args, &task, &stop),
    }
}

/// The protocol's side of a load, with a run number that distinguishes its replies from those of other runs.
fn protocol(entry: &ProtocolEntry) -> Box<dyn Protocol> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (entry.load)(now.as_nanos() as u64 ^ u64::from(std::process::id()))
}

fn load(args: &Args, task: &Task, stop: &AtomicBool) -> Done {
    let protocol = protocol(args.protocol);
    let mut line = ProgressLine::new();
    let run = udpath_load::run(&task.plan, task.engine, &*protocol, &mut |p| line.show(p), stop);
    line.clear();
    let (result, cut) = match run {
        Ok(result) => (result, None),
        Err(Error::Cut { result, why }) => {
            let sentence = format!("the run ended after {:.1} s: {why}", result.seconds);
            (*result, Some(sentence))
        }
        Err(error) => return Err(failure(error)),
    };
    show(&result, args.json)?;
    match cut {
        Some(sentence) => Err(Failure::Cannot(anyhow::anyhow!(sentence))),
        None => answered(&result),
    }
}

/// Fails if no reply came back: that is not a measurement.
fn answered(result: &LoadResult) -> Done {
    if !result.unanswered() {
        return Ok(());
    }
    let hint = result.warnings.first().map_or_else(String::new, |w| format!(" ({w})"));
    Err(Failure::Cannot(anyhow::anyhow!(
        "{} answered none of {} requests: check that a server of protocol {} is running there and reachable{hint}",
        result.targets.join(", "),
        result.counts.sent,
        result.protocol,
    )))
}

fn search(args: &Args, task: &Task, limits: &Limits, stop: &AtomicBool) -> Done {
    let mut run = |plan: &Plan| {
        let protocol = protocol(args.protocol);
        let mut line = ProgressLine::new();
        let result = udpath_load::run(plan, task.engine, &*protocol, &mut |p| line.show(p), stop);
        line.clear();
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Engine { engine: "socket", source: "search interrupted".into() });
        }
        result
    };
    let mut show_probe = |probe: &udpath_load::search::Probe| {
        // Progress, not data: the table comes at the end.
        if io::stderr().is_terminal() {
            eprintln!("{:>12.0}/s  {:?}: {}", probe.rate, probe.verdict, probe.reason);
        }
    };
    let found = find_max(&task.plan, limits, &mut run, &mut show_probe).map_err(failure)?;
    if args.json {
        terminal::print(&serde_json::to_string(&found).context("cannot write the result as JSON")?)?;
    } else {
        terminal::print(&search_text(&found))?;
    }
    match found.max_rate {
        Some(_) => Ok(()),
        None if found.probes.iter().all(|p| p.loss >= 1.0) => Err(Failure::Cannot(anyhow::anyhow!(
            "{} answered no request at any rate: check that a server of protocol {} is running there and reachable",
            task.plan.targets[0],
            args.protocol.name,
        ))),
        None => Err(Failure::Findings("no rate stayed within the limits".into())),
    }
}

fn search_text(found: &FindMax) -> String {
    let mut out = format!("{}\n\n", found.sentence());
    let _ = writeln!(out, "{:>12} {:>12} {:>9} {:>10}  verdict", "offered/s", "completed/s", "loss", "p99");
    for probe in &found.probes {
        let p99 = probe.p99.map_or_else(|| "-".into(), |ns| format!("{:.1?}", Duration::from_nanos(ns)));
        let verdict = match probe.verdict {
            udpath_load::search::RateVerdict::Held => "held",
            udpath_load::search::RateVerdict::Exceeded => "exceeded",
            udpath_load::search::RateVerdict::GeneratorLimited => "generator limited",
        };
        let _ = writeln!(
            out,
            "{:>12.0} {:>12.0} {:>8.3}% {p99:>10}  {verdict}: {}",
            probe.rate,
            probe.tps,
            probe.loss * 100.0,
            probe.reason
        );
    }
    if let Some(best) = &found.best {
        let _ = write!(out, "\nLast run at the highest rate held:\n{}", text(best));
    }
    out
}

/// Plan errors are usage errors, all others are not.
fn failure(error: Error) -> Failure {
    match error {
        Error::Plan(error) => Failure::Usage(error.to_string()),
        error => Failure::Cannot(error.into()),
    }
}

fn show(result: &LoadResult, json: bool) -> Done {
    if json { terminal::print(&result.json()) } else { terminal::print(&text(result)) }
}

fn text(result: &LoadResult) -> String {
    let mut out = result.terminal(&terminal::style());
    let busy = result.busy_cpus();
    if busy > 0.0 {
        let _ = writeln!(
            out,
            "  per busy CPU ({busy:.2} were busy, generator included): {:.0} tps, {:.1} Mbit/s",
            result.tps / busy,
            result.mbits / busy
        );
    }
    out
}
