//! `udpath load`: sends requests according to a plan, checks every reply, and reports first whether the generator was
//! the limit.
//!
//! stdout: the result; stderr: progress, on a terminal.

mod fleet;
mod lab;
mod progress;
mod search;
mod single;

pub(super) use single::{cut, protocol, run_number};

use crate::args::load::{Args, task};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::verbs::record::Recorder;

/// Carries out the arguments.
pub(crate) fn run(args: &Args) -> Done {
    let task = task::task(args, &*protocol(args)?).map_err(Failure::Usage)?;
    let record = Recorder::open(&args.record)?;
    let stop = signals::watch(if args.lab.lab { Left::Labs } else { Left::Nothing })?.flag();
    match &task.search {
        None if args.fleet.fleet.is_some() => fleet::run(args, &task, record, stop),
        Some(limits) if args.lab.lab => lab::search(args, &task, limits, stop),
        None if args.lab.lab => lab::run(args, &task, record, stop),
        Some(limits) => search::run(args, &task, limits, stop),
        None => single::once(args, &task, record, stop),
    }
}
