//! `udpath profile`: where CPU time goes: a sentence, findings, and the figures behind them.
//!
//! ```text
//! udpath_profile::measure ─▸ Profile ─▸ ProfileResult: its findings ─▸ text or JSON, folded stacks, page
//! ```
//! stdout: the result; stderr: progress, on a terminal. Changes nothing on the machine.

mod difference;
mod focus;

use std::sync::atomic::AtomicBool;

use udpath_advise::ProfileResult;
use udpath_host::namespace;
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Source};
use udpath_profile::folded;
use udpath_profile::recorder::Wanted;
use udpath_report::{Render, profile_text};

use super::{page, record};
use crate::args::profile::Args;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal::{self, StatusLine};

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Done {
    for (option, path) in [("--folded", &args.folded), ("--report", &args.report)] {
        if let Some(path) = path {
            page::check(option, path)?;
        }
    }
    if let Some([a, b]) = args.diff.as_deref() {
        return difference::run(a, b, args.json, args.report.as_deref());
    }
    let stop = signals::watch(Left::Nothing)?.flag();
    let place = focus::place(args)?;
    let mut result = namespace::inside(&place, || measure(args, &Folder::live(), stop))??;
    result.origin = Some(record::origin());
    if args.json {
        terminal::print(&result.json())?;
    } else {
        terminal::print(&profile_text(&result, &terminal::style(), terminal::lines()))?;
    }
    if let Some(path) = &args.folded {
        udpath_report::write_whole(path, folded::text(&result.profile).as_bytes())?;
    }
    args.report.as_ref().map_or(Ok(()), |path| page::write(path, &result))
}

/// Samples, and builds the result.
fn measure(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Result<ProfileResult, Failure> {
    let before = Snapshot::read(source);
    let focus = focus::focus(args, &before)?;
    let wanted = Wanted {
        cpus: focus::cpus(args, &before)?,
        pid: focus.pids.first().copied(),
        length: args.duration,
        rate: args.rate,
    };
    let mut line = StatusLine::new();
    let time = wanted.length.as_secs_f64();
    line.show(&format!("sampling CPUs {} for {time} s; ^C ends it now", wanted.cpus));
    let measured = udpath_profile::measure(&wanted, &args.trace.0, source, before, stop, |_| ());
    line.clear();
    let profile = measured.map_err(anyhow::Error::from)?;
    Ok(profile.about(focus).into())
}
