//! One load: with progress while it runs, its result, and the failure if it is not a measurement.

use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use udpath_history::NewRun;
use udpath_load::Error;
use udpath_load::plan::Plan;
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_protocols::{OptionError, ProtocolEntry};
use udpath_report::Render;

use super::progress::ProgressLine;
use crate::args::load::Args;
use crate::args::load::task::Task;
use crate::exit::{Done, Failure};
use crate::terminal;
use crate::verbs::record::{self, Recorder};

/// The number of a run, which distinguishes its replies from those of other runs. Machines that start together have the
/// same one, so that their requests are those of one plan.
pub(in crate::verbs) fn run_number(start_at: Option<SystemTime>, seed: u64) -> u64 {
    let nanos = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    match start_at {
        Some(at) => nanos(at) ^ seed.rotate_left(32),
        None => nanos(SystemTime::now()) ^ u64::from(std::process::id()),
    }
}

/// The protocol's side of a load.
pub(in crate::verbs) fn protocol(args: &Args) -> Result<Box<dyn Protocol>, OptionError> {
    let run = run_number(args.start_at, args.seed);
    let protocol = (args.protocol.load)(run, &args.options.of(args.protocol)?)?;
    match args.size {
        Some(size) if protocol.lengths().is_some() => Err(OptionError::Invalid {
            option: "size",
            value: size.to_string(),
            reason: format!("the requests of {} have their own lengths: remove it", protocol.name()),
        }),
        _ => Ok(protocol),
    }
}

/// Carries out a plan, with a progress line.
pub(super) fn watched(args: &Args, task: &Task, plan: &Plan, stop: &AtomicBool) -> Result<LoadResult, Error> {
    let protocol =
        protocol(args).map_err(|error| Error::Engine { engine: "socket", source: error.into() })?;
    let mut line = ProgressLine::new(1);
    let run = udpath_load::run(plan, task.engine, &*protocol, &mut |p| line.show(0, p), stop);
    line.clear();
    run
}

/// Carries out the task's plan and prints the result.
pub(super) fn once(args: &Args, task: &Task, record: Option<Recorder>, stop: &AtomicBool) -> Done {
    match watched(args, task, &task.plan, stop) {
        Ok(result) => finish(args, result, None, record),
        Err(Error::Cut { result, why }) => {
            let why = cut(&result, &why);
            finish(args, *result, Some(why), record)
        }
        Err(error) => Err(error.into()),
    }
}

/// Why a run is shorter than planned.
pub(in crate::verbs) fn cut(result: &LoadResult, why: &impl std::fmt::Display) -> String {
    format!("the run ended after {:.1} s: {why}", result.seconds)
}

/// Prints the result and keeps it if asked to; fails if the run was cut short, or if no reply came back: that is not a
/// measurement.
pub(super) fn finish(
    args: &Args,
    mut result: LoadResult,
    cut: Option<String>,
    record: Option<Recorder>,
) -> Done {
    result.origin = Some(record::origin());
    let text = if args.json { result.json() } else { result.terminal(&terminal::style()) };
    terminal::print(&text)?;
    if let Some(why) = cut {
        return Err(anyhow!(why).into());
    }
    if !result.unanswered() {
        return record.map_or(Ok(()), |record| record.keep(|name| NewRun::of_load(&result, name, None)));
    }
    let hint = result.warnings.first().map_or_else(String::new, |warning| format!(" ({warning})"));
    let requests = format!("none of {} requests", result.counts.sent);
    Err(no_answer(&result.targets.join(", "), &requests, args.protocol, &hint))
}

/// The servers answered nothing.
pub(super) fn no_answer(servers: &str, what: &str, protocol: &ProtocolEntry, hint: &str) -> Failure {
    let name = protocol.name;
    Failure::Cannot(anyhow!(
        "{servers} answered {what}: check that a server of protocol {name} is running there and reachable{hint}"
    ))
}
