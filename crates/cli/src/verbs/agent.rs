//! `udpath agent`: carries out segments of loads that callers announce over NATS.
//!
//! stderr: a line for each load, or refusal.

mod results;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Access, access};
use rustix::thread::CapabilitySet;
use udpath_fleet::agent::{self, Config, Event, Worker};
use udpath_fleet::{Order, is_name};
use udpath_load::plan::Mode;
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_load::{Engine, Error, Progress};
use udpath_protocols::{Options, PROTOCOLS, ProtocolEntry};

use super::load::{cut, run_number};
use super::record;
use crate::args::agent::Args;
use crate::confine::{self, Choice, Connections, Needs};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use results::Results;

/// Serves until a signal.
pub(crate) fn run(args: &Args) -> Done {
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    let config = Config {
        access: args.access.of(&args.nats),
        fleet: args.access.fleet_name.clone(),
        name: name.clone(),
        limits: args.limits(),
    };
    let stop = signals::watch(Left::Nothing)?.flag();
    let user = Choice::of(args.user.user.as_deref())?;
    give_up(&user, args.results.as_deref(), args.user.require_confinement)?;
    let program = Program {
        results: args.results.clone().map(|folder| Results {
            agent: name.clone(),
            folder,
            most: args.max_results as usize,
            size: args.max_results_size as u64,
        }),
        // What the user that started it may do is gone as well.
        privileged: user == Choice::Root,
    };
    let fleet = &config.fleet;
    let mut log = |event| match event {
        Event::Ready => stderrln!("{name}: ready for loads of fleet {fleet}"),
        Event::Refused(why) => stderrln!("{name}: refused a load: {why}"),
        Event::Started(segment, what) => stderrln!("{name}: segment {segment} of {what}"),
        Event::Ended(how) => stderrln!("{name}: ended: {how}"),
        Event::Delivered => stderrln!("{name}: the caller has the result"),
        Event::CallerLost => stderrln!("{name}: the caller is silent: its load is discarded"),
    };
    Ok(agent::serve(&config, Arc::new(program), stop, &mut log)?)
}

/// Gives up everything but the folder of results, before anything is read from the network.
fn give_up(user: &Choice, results: Option<&Path>, required: bool) -> Done {
    let needs = Needs {
        writes: &results.into_iter().collect::<Vec<_>>(),
        connections: Connections::Made,
        capabilities: CapabilitySet::empty(),
        required,
    };
    confine::before_threads(user, &needs)?;
    confine::give_up(user, &needs)?;
    if let Some(folder) = results {
        access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            let folder = folder.display();
            let (who, fix) = match user.becomes() {
                Some(_) if user.is_temporary() => {
                    ("a temporary user", format!("make a user `udpath` and `chown udpath {folder}`"))
                }
                who => {
                    let who = who.unwrap_or("this user");
                    (who, format!("`chown {who} {folder}`"))
                }
            };
            Failure::Usage(format!("cannot keep results in {folder} as {who}: {error}; {fix}, or --user"))
        })?;
    }
    Ok(())
}

/// The host's name, if it can be an agent's.
fn host_name() -> Result<String, Failure> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    if is_name(&host) {
        Ok(host.into_owned())
    } else {
        Err(Failure::Usage(format!("the host's name `{host}` cannot be an agent's: give one with --name")))
    }
}

/// Carries out orders with this program's protocols and engines.
struct Program {
    /// Where results are kept.
    results: Option<Results>,
    /// It has kept root's privileges, which all engines but `socket` need.
    privileged: bool,
}

impl Worker for Program {
    fn check(&self, order: &Order) -> Result<usize, String> {
        let entry = entry(order)?;
        let plan = &order.plan;
        let engine = engine(order)?;
        if engine != Engine::Socket && !self.privileged {
            return Err(format!(
                "engine {engine} needs root, which this agent has given up: use engine socket, or `udpath agent --user root`"
            ));
        }
        if !entry.engines.contains(&engine) || !entry.transports.contains(&plan.transport) {
            return Err(format!("{} does not run over {} with engine {engine}", entry.name, plan.transport));
        }
        if plan.mode != Mode::Rr || !entry.modes.contains(&plan.mode) {
            return Err(format!("a fleet sends requests and awaits replies; {} does not", entry.name));
        }
        let protocol = protocol(order)?;
        // Those are the ones that its limits are about.
        if protocol.targets().iter().any(|target| !plan.targets.contains(target)) {
            return Err("the protocol's options name other targets than the order".to_owned());
        }
        Ok(protocol.lengths().map_or(plan.size, |lengths| lengths.longest))
    }

    fn run(
        &self,
        order: &Order,
        progress: &mut dyn FnMut(&Progress),
        stop: &AtomicBool,
    ) -> Result<LoadResult, String> {
        let (protocol, engine) = (protocol(order)?, engine(order)?);
        let mut result = match udpath_load::run(&order.plan, engine, &*protocol, progress, stop) {
            Ok(result) => result,
            Err(Error::Cut { mut result, why }) => {
                result.warnings.push(cut(&result, &why));
                *result
            }
            Err(error) => return Err(format!("{:#}", anyhow::Error::from(error))),
        };
        result.origin = Some(record::origin());
        if let Some(Err(error)) = self.results.as_ref().map(|results| results.keep(&result)) {
            result.warnings.push(format!("the agent did not keep its result: {error:#}"));
        }
        Ok(result)
    }
}

fn entry(order: &Order) -> Result<&'static ProtocolEntry, String> {
    let known = PROTOCOLS.iter().copied().find(|entry| entry.name == order.protocol);
    known.ok_or_else(|| "this version does not know the protocol".to_owned())
}

fn engine(order: &Order) -> Result<Engine, String> {
    let known = Engine::ALL.into_iter().find(|engine| engine.name() == order.engine);
    known.ok_or_else(|| "this version does not know the engine".to_owned())
}

fn protocol(order: &Order) -> Result<Box<dyn Protocol>, String> {
    let entry = entry(order)?;
    let mut options = Options::default();
    for (name, value) in &order.options {
        let spec = entry.load_options.iter().find(|spec| spec.name == name);
        let spec = spec.ok_or_else(|| format!("this version's {} has no such option", entry.name))?;
        options.push(spec, OsString::from(Path::new(value)));
    }
    let run = run_number(order.plan.start_at, order.plan.seed);
    (entry.load)(run, &options).map_err(|error| error.to_string())
}
