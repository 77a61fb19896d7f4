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
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::{Interface, Lab, LabBuilder, LinkSpec, Machine, NapiGuard};
use udpath_load::plan::{Mode, Plan, Transport};
use udpath_load::record::Arrived;
use udpath_load::result::{Core, LoadResult};
use udpath_load::{Engine, Error, Progress};

use super::progress::ProgressLine;
use super::single;
use crate::args::load::task::Task;
use crate::args::load::{Args, Pattern};
use crate::exit::{Done, Failure};
use crate::verbs::record::Recorder;

/// The servers' port; the machines are empty, so any port is free.
const PORT: u16 = 7007;
/// How long a server may take to get ready, and to stop.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients and servers of a pattern.
const fn sides(pattern: Pattern, hosts: usize) -> (usize, usize) {
    match pattern {
        Pattern::Single => (1, 1),
        Pattern::OneToOne | Pattern::AllToAll => (hosts, hosts),
        Pattern::Incast => (hosts, 1),
        Pattern::Outcast => (1, hosts),
    }
}

/// Creates the machines, starts the servers, runs one load per client, and prints the merged result.
pub(super) fn run(args: &Args, task: &Task, record: Option<Recorder>, stop: &AtomicBool) -> Done {
    let pattern = args.lab.pattern.unwrap_or(Pattern::Single);
    let (clients, servers) = sides(pattern, args.lab.hosts.unwrap_or(2));
    if !rustix::process::geteuid().is_root() {
        udpath_lab::enter_user_namespace().context("a lab without root needs a user namespace")?;
    }
    let lab = LabBuilder::new("load").machines("client", clients).machines("server", servers);
    let spec = LinkSpec::with_queues(args.lab.queues.unwrap_or(1));
    let lab = match pattern {
        Pattern::OneToOne => lab.pairs("client", "server", &spec),
        _ => lab.mesh("client", "server", &spec),
    };
    let lab = lab.up()?;
    let done = in_lab(args, task, &lab, stop);
    // Dropping it would do the same, but without reporting errors. An earlier error is reported first.
    let down = lab.down().context("cannot take the lab down");
    let (result, cut) = done?;
    down?;
    single::finish(args, result, cut, record)
}

fn in_lab(
    args: &Args,
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
    let outcomes = together(args, task, &loads, stop)?;
    let (at_the_end, cpu_after) = (ask()?, cpu_seconds(&running));
    let after = udpath_load::settle(task.plan.transport, ask)?;
    drop(napi);
    drop(running);
    let (mut results, mut cuts) = (Vec::new(), Vec::new());
    for (outcome, (machine, _)) in outcomes.into_iter().zip(&loads) {
        match outcome {
            Ok(result) => results.push(result),
            Err(Error::Cut { result, why }) => {
                cuts.push(format!("{}: {}", machine.name(), single::cut(&result, &why)));
                results.push(*result);
            }
            Err(error) => return Err(error.into()),
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
    plan.check().map_err(Failure::usage)?;
    Ok(plan)
}

/// Runs all loads at the same time, each on its machine.
fn together(
    args: &Args,
    task: &Task,
    loads: &[(&Machine, Plan)],
    stop: &AtomicBool,
) -> Result<Vec<Result<LoadResult, Error>>, Failure> {
    let protocol = receivers::WithoutReports(single::protocol(args)?);
    let protocol = &protocol;
    let line = Mutex::new(ProgressLine::new(loads.len()));
    let ready = Barrier::new(loads.len());
    let results = thread::scope(|scope| {
        let handles: Vec<_> = loads
            .iter()
            .enumerate()
            .map(|(i, (machine, plan))| {
                let (line, ready) = (&line, &ready);
                scope.spawn(move || {
                    let mut progress = |p: &Progress| lock(line).show(i, p);
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
    lock(&line).clear();
    Ok(results)
}

fn lock(line: &Mutex<ProgressLine>) -> MutexGuard<'_, ProgressLine> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A `udpath serve` on a machine; stopped when dropped.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, machine: &Machine, args: &Args, task: &Task) -> Result<Self, Failure> {
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
        let stderr = stderr.context("the server's stderr is not a pipe")?;
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
        Err(anyhow!("the server on {} did not become ready: {words}", machine.name()).into())
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
