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
//! start together, and their results are merged: counts and histograms are summed. A search (`--find-max`) does that at
//! several rates with the same servers.

mod receivers;
mod servers;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use udpath_lab::{Interface, Lab, LabBuilder, LinkSpec, Machine, NapiGuard, Rps};
use udpath_load::plan::{Arrivals, Mode, Plan, Transport};
use udpath_load::record::Arrived;
use udpath_load::result::{Core, LoadResult};
use udpath_load::search::Limits;
use udpath_load::{Engine, Error, Progress};

use super::progress::ProgressLine;
use super::single;
use servers::{PORT, Server};

use crate::args::load::task::Task;
use crate::args::load::{Args, LabArgs, Pattern};
use crate::exit::{Done, Failure};
use crate::verbs::record::Recorder;
use crate::verbs::server_options::ServerOptions;

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
    let (result, cut) = with_lab(args, task, stop, |hosts| hosts.measure(&task.plan))?;
    single::finish(args, result, cut, record)
}

/// The same at several rates, each of which is that of all clients together, and prints which of them the servers hold.
pub(super) fn search(args: &Args, task: &Task, limits: &Limits, stop: &AtomicBool) -> Done {
    let found = with_lab(args, task, stop, |hosts| {
        let mut failure = None;
        let found = super::search::find(&task.plan, limits, stop, &mut |plan| {
            let ended = |why: String| Error::Engine { engine: task.engine.name(), source: why.into() };
            match hosts.measure(&hosts.shared(plan)) {
                Ok((result, None)) => Ok(result),
                Ok((_, Some(why))) => Err(ended(why)),
                Err(error) => {
                    failure = Some(error);
                    Err(ended(String::new()))
                }
            }
        });
        match failure {
            Some(failure) => Err(failure),
            None => Ok(found?),
        }
    })?;
    super::search::print(args, "the lab's servers", &found)
}

/// Calls `work` with the machines of the lab, whose servers run.
fn with_lab<T>(
    args: &Args,
    task: &Task,
    stop: &AtomicBool,
    work: impl FnOnce(&Hosts<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let options = ServerOptions::new(args.protocol, &args.options.of(args.protocol)?)?;
    let pattern = args.lab.pattern.unwrap_or(Pattern::Single);
    let (clients, servers) = sides(pattern, args.lab.hosts.unwrap_or(2));
    if !rustix::process::geteuid().is_root() {
        udpath_lab::enter_user_namespace().context("a lab without root needs a user namespace")?;
    }
    let lab = LabBuilder::new("load").machines("client", clients).machines("server", servers);
    let spec = link(&args.lab);
    let lab = match pattern {
        Pattern::OneToOne => lab.pairs("client", "server", &spec),
        _ => lab.mesh("client", "server", &spec),
    };
    let lab = lab.up().map_err(|error| match error {
        // What --mtu and --queues name.
        udpath_lab::Error::Spec(wrong) => Failure::usage(wrong),
        error => error.into(),
    })?;
    if args.lab.rfs {
        follow_readers(&lab).context("cannot turn RFS on in the lab")?;
    }
    let done = Hosts::start(args, task, &options, &lab, stop).and_then(|hosts| work(&hosts));
    // Dropping it would do the same, but without reporting errors. An earlier error is reported first.
    let down = lab.down().context("cannot take the lab down");
    match done {
        // A signal to the whole group has ended its servers too, before they were ready.
        Err(_) if stop.load(Ordering::Relaxed) => {
            down?;
            Err(Failure::Cannot(anyhow!("interrupted; the lab has been removed")))
        }
        Err(failure) => Err(failure),
        Ok(done) => {
            down?;
            Ok(done)
        }
    }
}

/// The links that the arguments describe.
fn link(args: &LabArgs) -> LinkSpec {
    let default = LinkSpec::default();
    LinkSpec {
        queues: args.queues.unwrap_or(default.queues),
        mtu: args.mtu.unwrap_or(default.mtu),
        offloads: args.offloads.unwrap_or(default.offloads),
        ..default
    }
}

/// Flows that each queue follows to their readers. Fewer: flows share an entry and move between CPUs. More: eight bytes
/// each.
const RFS_FLOWS: u32 = 4096;

/// Every link's end processes a packet on the CPU of the thread that reads its flow.
fn follow_readers(lab: &Lab) -> Result<(), udpath_lab::Error> {
    let steering = Rps { cpus: udpath_lab::online_cpus()?, flows: RFS_FLOWS };
    for interface in lab.machines().iter().flat_map(Machine::interfaces) {
        interface.set_rps(&steering)?;
    }
    lab.set_flow_table(true)
}

/// The clients, and the servers while they run.
struct Hosts<'a> {
    args: &'a Args,
    task: &'a Task,
    lab: &'a Lab,
    stop: &'a AtomicBool,
    servers: Vec<Server>,
    _napi: Vec<NapiGuard>,
}

impl<'a> Hosts<'a> {
    fn start(
        args: &'a Args,
        task: &'a Task,
        options: &ServerOptions,
        lab: &'a Lab,
        stop: &'a AtomicBool,
    ) -> Result<Self, Failure> {
        let servers = machines(lab, "server");
        let running = servers.iter().map(|machine| Server::start(lab, machine, args, task, options));
        let running = running.collect::<Result<_, _>>()?;
        // Requests sent by the driver are lost unless the server's end has NAPI.
        let napi = match task.engine {
            Engine::Socket | Engine::Xdp | Engine::XdpRings => Vec::new(),
            Engine::Kernel => servers
                .iter()
                .flat_map(|machine| machine.interfaces())
                .map(Interface::ensure_napi)
                .collect::<Result<_, _>>()
                .context("cannot enable NAPI at the servers")?,
        };
        Ok(Self { args, task, lab, stop, servers: running, _napi: napi })
    }

    /// The plan of one client, if all of them together follow `plan`'s rate.
    fn shared(&self, plan: &Plan) -> Plan {
        let clients = machines(self.lab, "client").len() as f64;
        let arrivals = match plan.arrivals {
            Arrivals::Open { rate, process } => Arrivals::Open { rate: rate / clients, process },
            other => other,
        };
        Plan { arrivals, ..plan.clone() }
    }

    /// The merged result of all clients, each with `plan` towards its servers, and why it was cut short if it was.
    fn measure(&self, plan: &Plan) -> Result<(LoadResult, Option<String>), Failure> {
        let args = self.args;
        let mut loads = Vec::new();
        for machine in machines(self.lab, "client") {
            loads.push((machine, plan_for(self.lab, machine, plan)?));
        }
        let one_way = plan.mode != Mode::Rr;
        let ask = || if one_way { receivers::received(&loads, args) } else { Ok(None) };
        let (before, cpu_before) = (ask()?, cpu_seconds(&self.servers));
        let outcomes = together(args, self.task, &loads, self.stop)?;
        let (at_the_end, cpu_after) = (ask()?, cpu_seconds(&self.servers));
        let after = udpath_load::settle(plan.transport, ask)?;
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
                let in_window = match plan.transport {
                    Transport::Udp => all.bytes,
                    Transport::Tcp => at_the_end.since(before).bytes,
                };
                merged.deliver(Arrived { all, in_window });
            }
            _ if one_way => {
                let targets = merged.targets.join(", ");
                merged.warnings.push(udpath_load::unreported(args.protocol.name, plan.transport, &targets));
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
}

/// The machines of one side.
fn machines<'a>(lab: &'a Lab, side: &str) -> Vec<&'a Machine> {
    lab.machines().iter().filter(|machine| machine.name().starts_with(side)).collect()
}

/// Shortest CPU time of servers that is reported, seconds: the kernel counts it in ticks of 10 ms. Lower: the figure is
/// mostly rounding error. Higher: short runs have none.
const MIN_CPU_SECONDS: f64 = 0.1;

/// CPU time that the servers have used so far, seconds; `None` if it cannot be read.
fn cpu_seconds(servers: &[Server]) -> Option<f64> {
    let of = |server: &Server| {
        let stat = udpath_files::kernel::text(format!("/proc/{}/stat", server.id())).ok()?;
        // The name in the earlier field may contain spaces and brackets. Fields 14 and 15: user and system time
        // (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok());
        Some(ticks.sum::<Option<u64>>()? as f64 / rustix::param::clock_ticks_per_second() as f64)
    };
    servers.iter().map(of).sum()
}

/// The plan towards all servers that this client has a link to, with the plan's flows to each.
fn plan_for(lab: &Lab, machine: &Machine, plan: &Plan) -> Result<Plan, Failure> {
    let targets: Vec<SocketAddr> = machine
        .interfaces()
        .iter()
        .map(|i| {
            Ok(SocketAddr::new(IpAddr::V4(lab.address_of(i.peer_machine(), machine.name())?.ipv4), PORT))
        })
        .collect::<Result<_, udpath_lab::Error>>()
        .context("cannot read the servers' addresses")?;
    let flows = plan.flows.saturating_mul(targets.len() as u32);
    let plan = Plan { targets, flows, ..plan.clone() };
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
