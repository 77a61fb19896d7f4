//! `udpath boost --port, --pid, --unit`: of a server that runs already.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::parser::ValueSource;
use udpath_advise::result::BoostResult;
use udpath_advise::statistics::Bound;
use udpath_advise::{Allow, Event, LoadConfig, RunningConfig, Served, Traffic, boost_running};
use udpath_host::namespace::{self, Place};
use udpath_host::source::Folder;
use udpath_host::{Map, Snapshot, UnitName};
use udpath_load::plan::Mode;
use udpath_tune::units::processes_of;

use super::load_line;
use crate::args::boost::Args;
use crate::args::load::{self, task};
use crate::args::place::of_process;
use crate::exit::Failure;
use crate::verbs::levers::{self, Arguments};

/// Flows of a load that does not say: enough for the hashes of queues and sockets to spread. Fewer: one socket of a
/// group may get most of them.
const FLOWS: u32 = 64;
/// Requests in flight over all flows of a load that does not say. Fewer: the server idles while requests travel. More:
/// receive buffers of 212,992 bytes, the kernel's default, hold 256 datagrams, and the rest is lost.
const IN_FLIGHT: u32 = 192;

/// Shortest trial of live traffic. Shorter: CPU time is counted in ticks of 10 ms, too coarse for a gain of a few per
/// cent.
const LIVE_TRIAL: Duration = Duration::from_secs(1);

/// A server to boost, and its traffic.
pub(super) struct Task {
    config: RunningConfig,
}

impl Task {
    /// Boosts it.
    pub(super) fn run(
        &self,
        watch: &mut (dyn FnMut(&Event<'_>) + Send),
        stop: &AtomicBool,
    ) -> Result<BoostResult, Failure> {
        let mut result = boost_running(&self.config, watch, stop).map_err(anyhow::Error::from)?;
        // What only a restart or other arguments do is said, though it was not tried.
        let place = &self.config.place;
        namespace::inside(place, || {
            let now = Snapshot::read(&Folder::live());
            for rung in &mut result.diagnoses {
                levers::offer(&now, &mut rung.diagnosis, place, Arguments::Hidden);
            }
        })?;
        Ok(result)
    }
}

/// The task that the arguments describe; none if they name no server.
pub(super) fn task(args: &Args, command: String) -> Result<Option<Task>, Failure> {
    let running = &args.running;
    let (served, at) = match (running.port, running.pid, &running.unit) {
        (Some(port), ..) => (Served::Port(port), namespace(running.netns.as_deref())?),
        (_, Some(pid), _) => (Served::Process(pid), place_of(pid)),
        (.., Some(unit)) => {
            let pid = pid_of(unit)?;
            (Served::Process(pid), place_of(pid))
        }
        _ if running.load.is_empty() && !running.live => return Ok(None),
        _ => {
            let option = if running.live { "--live" } else { "--load" };
            return Err(Failure::Usage(format!(
                "{option} is for a running server: name it with --port, --pid or --unit"
            )));
        }
    };
    let traffic = match running.live {
        true => Traffic::Live(args.duration.max(LIVE_TRIAL)),
        false => Traffic::Load(Box::new(load(args)?)),
    };
    let bound = Bound::new(args.bound / 100.0, args.blocks).map_err(Failure::usage)?.for_verdict();
    let allowed = |what: &str| running.allow.iter().any(|allowed| allowed == what);
    let config = RunningConfig {
        served,
        place: at,
        traffic,
        bound,
        budget: running.budget,
        allow: Allow {
            security: allowed("security"),
            link_reset: allowed("link-reset"),
            config: allowed("config"),
            restart: allowed("restart"),
        },
        restart: running.restart.clone(),
        keep: running.keep.then(own_file).transpose()?,
        journal: running.state.clone(),
        profile: !args.no_profile,
        command: Some(command),
    };
    Ok(Some(Task { config }))
}

/// The network namespace of a process. One that cannot be read is refused where it is entered.
fn place_of(pid: u32) -> Place {
    of_process(pid).unwrap_or(Place::Process(pid))
}

/// This program's own file.
fn own_file() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// The load that the arguments describe.
fn load(args: &Args) -> Result<LoadConfig, Failure> {
    let running = &args.running;
    let load = parsed(&running.load)?;
    let protocol = crate::verbs::load::protocol(&load)?;
    let task = task::task(&load, &*protocol).map_err(|why| Failure::Usage(format!("--load: {why}")))?;
    let mut plan = task.plan;
    plan.duration = args.duration;
    plan.check().map_err(|why| Failure::Usage(format!("--load: {why}")))?;
    Ok(LoadConfig { from: namespace(running.from.as_deref())?, plan, engine: task.engine, protocol })
}

/// A network namespace by its name, or by that of a lab's machine, `LAB/MACHINE`; the caller's without either.
fn namespace(name: Option<&str>) -> Result<Place, Failure> {
    let Some(name) = name else { return Ok(Place::Here) };
    let Some((lab, machine)) = name.split_once('/') else { return Ok(Place::Named(name.to_owned())) };
    let lab = udpath_lab::attach(lab)?;
    Ok(Place::Named(lab.machine(machine)?.namespace().to_owned()))
}

/// The load's own arguments; what boost decides is not among them.
fn parsed(words: &[OsString]) -> Result<load::Args, Failure> {
    let (mut args, matches) = load_line("--load", words)?;
    let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let boosts = [
        ("duration", "the length of a trial is boost's own --duration"),
        ("warmup", "trials have their own"),
        ("find_max", "a trial is one run, not a search"),
        ("lab", "the server runs already"),
        ("start_at", "trials follow each other"),
        ("segment", "boost sends from one machine"),
        ("json", "boost has its own --json"),
    ];
    if let Some((name, why)) = boosts.into_iter().find(|(name, _)| given(name)) {
        let option = name.replace('_', "-");
        return Err(Failure::Usage(format!("--load: remove --{option}: {why}")));
    }
    if args.mode.is_some_and(|mode| mode != Mode::Rr) || args.tcp {
        return Err(Failure::Usage(
            "--load: trials count transactions over UDP: remove --mode and --tcp".into(),
        ));
    }
    if !given("flows") {
        args.flows = FLOWS;
        if args.inflight.is_none() && args.rate.is_none() && args.ramp.is_none() {
            args.inflight = Some(IN_FLIGHT / FLOWS);
        }
    }
    Ok(args)
}

/// The process of a unit that has UDP sockets; the first, if several have. systemd says which processes are the unit's:
/// any user with control groups of their own can name one like it.
fn pid_of(unit: &str) -> Result<u32, Failure> {
    let source = Folder::live();
    let unit = unit.parse().or_else(|_| format!("{unit}.service").parse());
    let unit: UnitName = unit.map_err(Failure::usage)?;
    let pids = processes_of(&source, &unit).map_err(|why| Failure::Cannot(anyhow!(why)))?;
    let map = Map::whole(&Snapshot::read(&source), None);
    let found = pids.iter().find(|pid| map.processes.iter().any(|process| process.pid == **pid));
    found.copied().ok_or_else(|| {
        let mut units: Vec<&str> =
            map.processes.iter().filter_map(|process| process.unit.as_deref()).collect();
        units.dedup();
        let known = if units.is_empty() {
            "no unit has".to_owned()
        } else {
            format!("these have: {}", units.join(", "))
        };
        Failure::Cannot(anyhow!("no process of unit {unit} has a UDP socket; {known}"))
    })
}
