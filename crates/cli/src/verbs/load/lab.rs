//! `udpath load --lab`: traffic patterns between hosts, on machines created for the run.
//!
//! ```text
//!   single       c ─▶ s          one client, one server, one flow
//!   one-to-one   c ─▶ s  (N x)   N pairs, each with a link of its own
//!   incast       N c ─▶ s        many clients, one server
//!   outcast      c ─▶ N s        one client, many servers
//!   all-to-all   N c ─▶ N s      every client to every server
//! ```
//! Every server is a process (`udpath serve`) on its own machine, every client a load on its own machine. The loads
//! start together, and their results are merged: counts and histograms are summed.

mod receivers;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::{Interface, Lab, LabBuilder, LinkSpec, Machine, NapiGuard};
use udpath_load::plan::{Mode, Plan, Transport};
use udpath_load::record::Arrived;
use udpath_load::result::{Core, LoadResult};
use udpath_load::{Engine, Error, Progress};

use super::options::Task;
use super::progress::ProgressLine;
use crate::exit::{Done, Failure};

/// The servers' port; the machines are empty, so any port is free.
const PORT: u16 = 7007;
/// Most hosts on each side. All-to-all makes a link for every pair: 32 x 32 is a thousand.
const MAX_HOSTS: usize = 32;
/// How long a server may take to get ready, and to stop.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the lab.
#[derive(Debug, clap::Args)]
pub(super) struct LabArgs {
    /// Run clients and servers on machines created for the run, instead of connecting to a server
    #[arg(long)]
    pub(super) lab: bool,
    /// Lab: which clients send to which servers [default: single]
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<Pattern>,
    /// Lab: number of clients, servers, or both, depending on the pattern [default: 2]
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// Lab: receive and transmit queues per link [default: 1]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// one client, one server, one flow
    Single,
    /// pairs of a client and a server
    OneToOne,
    /// many clients, one server
    Incast,
    /// one client, many servers
    Outcast,
    /// every client to every server
    AllToAll,
}

impl Pattern {
    /// Clients and servers.
    fn sides(self, hosts: usize) -> (usize, usize) {
        match self {
            Self::Single => (1, 1),
            Self::OneToOne | Self::AllToAll => (hosts, hosts),
            Self::Incast => (hosts, 1),
            Self::Outcast => (1, hosts),
        }
    }

    fn describe(self, lab: LabBuilder, spec: &LinkSpec) -> LabBuilder {
        match self {
            Self::OneToOne => lab.pairs("client", "server", spec),
            _ => lab.mesh("client", "server", spec),
        }
    }
}

/// Rejects options that conflict with --lab, or require it.
pub(super) fn check(args: &super::Args) -> Result<(), String> {
    let LabArgs { lab, pattern, hosts, queues } = &args.lab;
    if !lab {
        return match (pattern, hosts, queues) {
            (None, None, None) => Ok(()),
            _ => Err("--pattern, --hosts and --queues need --lab".into()),
        };
    }
    if !args.targets.is_empty() {
        return Err(format!("--lab makes its own servers: remove {}", args.targets[0]));
    }
    if !args.sources.is_empty() {
        return Err("--lab does not support --source: its clients have one address per link".into());
    }
    let pattern = pattern.unwrap_or(Pattern::Single);
    if pattern == Pattern::Single && hosts.is_some_and(|n| n != 1) {
        return Err(
            "--pattern single has one client and one server: remove --hosts, or choose another pattern"
                .into(),
        );
    }
    if pattern == Pattern::Single && args.flows != 1 {
        return Err(
            "--pattern single has one flow: remove --flows, or use --pattern one-to-one --hosts 1".into()
        );
    }
    if !args.protocol.modes.contains(&Mode::Rr) && !args.warmup.is_zero() {
        return Err(format!(
            "--lab reads the {} counters before and after the whole run: remove --warmup",
            args.protocol.name
        ));
    }
    match hosts {
        Some(n) if !(1..=MAX_HOSTS).contains(n) => {
            Err(format!("invalid --hosts {n}: expected 1 to {MAX_HOSTS}"))
        }
        _ => Ok(()),
    }
}

/// Creates the machines, starts the servers, runs one load per client, and prints the merged result.
pub(super) fn run(args: &super::Args, task: &Task, stop: &AtomicBool) -> Done {
    let pattern = args.lab.pattern.unwrap_or(Pattern::Single);
    let (clients, servers) = pattern.sides(args.lab.hosts.unwrap_or(2));
    if !rustix::process::geteuid().is_root() {
        udpath_lab::enter_user_namespace().context("a lab without root needs a user namespace")?;
    }
    let lab = LabBuilder::new("load").machines("client", clients).machines("server", servers);
    let spec = LinkSpec::with_queues(args.lab.queues.unwrap_or(1));
    let lab = pattern.describe(lab, &spec).up().map_err(|error| match error {
        udpath_lab::Error::Spec(error) => Failure::Usage(error.to_string()),
        error => Failure::Cannot(error.into()),
    })?;
    let done = in_lab(args, task, &lab, stop);
    // Dropping it would do the same, but without reporting errors. An earlier error is reported first.
    let down = lab.down().context("cannot take the lab down");
    let (result, cut) = done?;
    down?;
    super::show(&result, args.json)?;
    match cut {
        Some(why) => Err(Failure::Cannot(anyhow!(why))),
        None => super::answered(&result),
    }
}

fn in_lab(
    args: &super::Args,
    task: &Task,
    lab: &Lab,
    stop: &AtomicBool,
) -> Result<(LoadResult, Option<String>), Failure> {
    let of = |side: &str| -> Vec<&Machine> {
        lab.machines().iter().filter(|m| m.name().starts_with(side)).collect()
    };
    let mut running = Vec::new();
    for machine in of("server") {
        running.push(Server::start(lab, machine, args, task)?);
    }
    let mut loads = Vec::new();
    for machine in of("client") {
        loads.push((machine, plan_for(lab, machine, task)?));
    }
    // Requests sent by the driver are lost unless the server's end has NAPI.
    let napi: Vec<NapiGuard> = match task.engine {
        Engine::Socket | Engine::Xdp | Engine::XdpRings => Vec::new(),
        Engine::Kernel => of("server")
            .iter()
            .flat_map(|m| m.interfaces())
            .map(Interface::ensure_napi)
            .collect::<Result<_, _>>()
            .context("cannot enable NAPI at the servers")?,
    };
    let one_way = task.plan.mode != Mode::Rr;
    let ask = || if one_way { receivers::received(&loads, args) } else { Ok(None) };
    let (before, cpu_before) = (ask()?, cpu_seconds(&running));
    let outcomes = together(args, task, &loads, stop);
    let (at_the_end, cpu_after) = (ask()?, cpu_seconds(&running));
    let after = udpath_load::settle(task.plan.transport, ask)?;
    drop(napi);
    drop(running);
    let (mut results, mut cuts) = (Vec::new(), Vec::new());
    for (outcome, (machine, _)) in outcomes.into_iter().zip(&loads) {
        match outcome {
            Ok(result) => results.push(result),
            Err(Error::Cut { result, why }) => {
                cuts.push(format!("{}: the run ended after {:.1} s: {why}", machine.name(), result.seconds));
                results.push(*result);
            }
            Err(error) => return Err(super::failure(error)),
        }
    }
    let mut merged = LoadResult::merge(&results).ok_or_else(|| anyhow!("no client ran"))?;
    match (before, at_the_end, after) {
        (Some(before), Some(at_the_end), Some(after)) => {
            let all = after.since(before);
            let in_window = match task.plan.transport {
                Transport::Udp => all.bytes,
                Transport::Tcp => at_the_end.since(before).bytes,
            };
            merged.deliver(Arrived { all, in_window });
        }
        _ if one_way => {
            let warning =
                udpath_load::unreported(args.protocol.name, task.plan.transport, &merged.targets.join(", "));
            merged.warnings.push(warning);
        }
        _ => {
            let answered = merged.tps * merged.seconds;
            let used = cpu_before.zip(cpu_after).map(|(before, after)| after - before);
            let used = used.filter(|used| *used >= MIN_CPU_SECONDS);
            merged.per_core.receiver =
                used.and_then(|used| Core::new(used, answered, answered * f64::from(merged.size)));
        }
    }
    Ok((merged, cuts.into_iter().next()))
}

/// Shortest CPU time of servers that is reported, seconds: the kernel counts it in ticks of 10 ms. Lower: the figure is
/// mostly rounding error. Higher: short runs have none.
const MIN_CPU_SECONDS: f64 = 0.1;

/// CPU time that the servers have used so far, seconds; `None` if it cannot be read.
fn cpu_seconds(servers: &[Server]) -> Option<f64> {
    let of = |server: &Server| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.0.id())).ok()?;
        // The name in the earlier field may contain spaces and brackets. Fields 14 and 15: user and system time
        // (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok());
        Some(ticks.sum::<Option<u64>>()? as f64 / rustix::param::clock_ticks_per_second() as f64)
    };
    servers.iter().map(of).sum()
}

/// The task's plan towards all servers that this client has a link to, with the plan's flows to each.
fn plan_for(lab: &Lab, machine: &Machine, task: &Task) -> Result<Plan, Failure> {
    let targets: Vec<SocketAddr> = machine
        .interfaces()
        .iter()
        .map(|i| {
            Ok(SocketAddr::new(IpAddr::V4(lab.address_of(i.peer_machine(), machine.name())?.ipv4), PORT))
        })
        .collect::<Result<_, udpath_lab::Error>>()
        .context("cannot read the servers' addresses")?;
    let flows = task.plan.flows.saturating_mul(targets.len() as u32);
    let plan = Plan { targets, flows, ..task.plan.clone() };
    plan.check().map_err(|e| Failure::Usage(e.to_string()))?;
    Ok(plan)
}

/// Runs all loads at the same time, each on its machine.
fn together(
    args: &super::Args,
    task: &Task,
    loads: &[(&Machine, Plan)],
    stop: &AtomicBool,
) -> Vec<Result<LoadResult, Error>> {
    let protocol = receivers::WithoutReports(super::protocol(args.protocol));
    let protocol = &protocol;
    let line = Mutex::new((ProgressLine::new(), vec![Progress::default(); loads.len()]));
    let ready = Barrier::new(loads.len());
    let results = thread::scope(|scope| {
        let handles: Vec<_> = loads
            .iter()
            .enumerate()
            .map(|(i, (machine, plan))| {
                let (line, ready) = (&line, &ready);
                scope.spawn(move || {
                    let mut progress = |p: &Progress| show_sum(line, i, p);
                    let inside = machine.run(|| {
                        ready.wait();
                        udpath_load::run(plan, task.engine, protocol, &mut progress, stop)
                    });
                    inside.unwrap_or_else(|e| {
                        // It never reached the barrier: do not let the others wait for it.
                        ready.wait();
                        Err(Error::Engine { engine: "socket", source: e.into() })
                    })
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    line.into_inner().unwrap_or_else(PoisonError::into_inner).0.clear();
    results
}

/// Shows the sum of the loads' last reports.
fn show_sum(line: &Mutex<(ProgressLine, Vec<Progress>)>, load: usize, progress: &Progress) {
    let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
    line.1[load] = *progress;
    let sum = line.1.iter().fold(Progress::default(), |sum, p| Progress {
        elapsed: sum.elapsed.max(p.elapsed),
        total: sum.total.max(p.total),
        sent: sum.sent + p.sent,
        ok: sum.ok + p.ok,
        lost: sum.lost + p.lost,
        tps: sum.tps + p.tps,
    });
    line.0.show(&sum);
}

/// A `udpath serve` on a machine; stopped when dropped.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, machine: &Machine, args: &super::Args, task: &Task) -> Result<Self, Failure> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = machine.command(program);
        command.args(["serve", args.protocol.name, "--json", "--bind", &format!("0.0.0.0:{PORT}")]);
        if task.plan.transport == Transport::Tcp {
            command.arg("--tcp");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = lab.spawn(command).context("cannot start a server in the lab")?;
        let stderr = child.stderr.take();
        let server = Self(child);
        let stderr = stderr.context("a server without stderr")?;
        let (said, heard) = mpsc::channel();
        // Keeps reading after `ready`, so that the server never blocks on a full pipe; ends with the server.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut words = Vec::new();
        while let Ok(line) = heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.starts_with("ready") {
                return Ok(server);
            }
            words.push(line);
        }
        let words = if words.is_empty() { "it printed nothing".into() } else { words.join(" ") };
        Err(anyhow!("the server on {} did not get ready: {words}", machine.name()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // Not reaped yet, so the pid still belongs to the server.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
