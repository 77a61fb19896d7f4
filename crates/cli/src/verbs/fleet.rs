//! `udpath fleet`: what the captures of many machines have in common, and what differs.

use std::sync::{Mutex, PoisonError};

use udpath_fleet::machines;
use udpath_report::Render;

use super::page;
use crate::args::fleet::{Args, ReportArgs, Verb};
use crate::exit::Done;
use crate::terminal::{self, StatusLine};

/// Carries out the arguments.
pub(crate) fn run(args: &Args) -> Done {
    match &args.verb {
        Verb::Report(args) => report(args),
    }
}

fn report(args: &ReportArgs) -> Done {
    if let Some(path) = &args.report {
        page::check("--report", path)?;
    }
    let line = Mutex::new(StatusLine::new());
    let with =
        |work: &dyn Fn(&mut StatusLine)| work(&mut line.lock().unwrap_or_else(PoisonError::into_inner));
    let result = machines::report(&args.folder, &|read, all| {
        with(&|line| line.show(&format!("{read} of {all} files read")));
    });
    with(&StatusLine::clear);
    let result = result?;
    terminal::print(&if args.json { result.json() } else { result.terminal(&terminal::style()) })?;
    args.report.as_ref().map_or(Ok(()), |path| page::write(path, &result))
}
