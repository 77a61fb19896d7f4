//! `udpath load --find-max`: runs at several rates, and which of them the server holds.

use std::sync::atomic::{AtomicBool, Ordering};

use udpath_load::Error;
use udpath_load::plan::Plan;
use udpath_load::result::LoadResult;
use udpath_load::search::{FindMax, Limits, find_max};
use udpath_report::{probe_line, search_text, to_json};

use super::single;
use crate::args::load::Args;
use crate::args::load::task::Task;
use crate::exit::{Done, Failure};
use crate::terminal::{self, StatusLine};

/// Searches and prints the result.
pub(super) fn run(args: &Args, task: &Task, limits: &Limits, stop: &AtomicBool) -> Done {
    let found = find(&task.plan, limits, stop, &mut |plan| single::watched(args, task, plan, stop))?;
    print(args, &task.plan.targets[0].to_string(), &found)
}

/// Searches, and shows each rate as it is tried.
pub(super) fn find(
    plan: &Plan,
    limits: &Limits,
    stop: &AtomicBool,
    run: &mut dyn FnMut(&Plan) -> Result<LoadResult, Error>,
) -> Result<FindMax, Error> {
    let mut one = |plan: &Plan| {
        let result = run(plan);
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Engine { engine: "socket", source: "search interrupted".into() });
        }
        result
    };
    let mut line = StatusLine::new();
    // Progress, not data: the table comes at the end.
    find_max(plan, limits, &mut one, &mut |probe| line.keep(&probe_line(probe)))
}

/// Prints what was found; fails if no rate was held.
pub(super) fn print(args: &Args, server: &str, found: &FindMax) -> Done {
    terminal::print(&if args.json { to_json(found) } else { search_text(found, &terminal::style()) })?;
    match found.max_rate {
        Some(_) => Ok(()),
        None if found.probes.iter().all(|probe| probe.loss >= 1.0) => {
            Err(single::no_answer(server, "no request at any rate", args.protocol, ""))
        }
        None => Err(Failure::Findings("no rate stayed within the limits".into())),
    }
}
