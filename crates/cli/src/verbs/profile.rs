//! `udpath profile`: where CPU time goes: a sentence, findings, and the figures behind them.
//!
//! ```text
//! udpath_profile::measure ─▸ Profile ─▸ ProfileResult: its findings ─▸ text or JSON, folded stacks, page
//! ```
//! stdout: the result; stderr: progress, on a terminal. Changes nothing on the machine.

mod difference;
mod options;

use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use udpath_advise::ProfileResult;
use udpath_host::namespace;
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Source};
use udpath_profile::folded;
use udpath_profile::recorder::Wanted;
use udpath_report::{Render, WriteError, profile_text};

use crate::exit::{Done, Failure};
use crate::terminal;
pub(crate) use options::Args;

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Done {
    for (option, path) in [("--folded", &args.folded), ("--report", &args.report)] {
        if let Some(path) = path {
            writable(option, path)?;
        }
    }
    if let Some([a, b]) = args.diff.as_deref() {
        return difference::run(a, b, args.json, args.report.as_deref());
    }
    let stop = Arc::new(AtomicBool::new(false));
    terminal::stop_on_signals(&stop)?;
    let place = options::place(args)?;
    let result = namespace::inside(&place, || measure(args, &Folder::live(), &stop))
        .map_err(|error| Failure::Cannot(error.into()))??;
    if args.json {
        terminal::print(&result.json())?;
    } else {
        terminal::print(&profile_text(&result, &terminal::style(), terminal::lines()))?;
    }
    if let Some(path) = &args.folded {
        udpath_report::write_whole(path, folded::text(&result.profile).as_bytes())
            .context("the result above is complete, its folded stacks are not")?;
    }
    match &args.report {
        Some(path) => report(path, &result),
        None => Ok(()),
    }
}

/// Checked before anything is measured.
fn writable(option: &str, path: &Path) -> Done {
    udpath_report::check_writable(path).map_err(|error| match error {
        WriteError::Folder { .. } => Failure::Usage(format!("{option}: {error}")),
        error => Failure::Cannot(error.into()),
    })
}

/// Writes the page, and prints its path.
fn report(path: &Path, result: &impl Render) -> Done {
    udpath_report::write_html(path, result).context("the result above is complete, its report is not")?;
    eprintln!("report: {}", path.display());
    Ok(())
}

/// Samples, and builds the result.
fn measure(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Result<ProfileResult, Failure> {
    let before = Snapshot::read(source);
    let focus = options::focus(args, &before)?;
    let wanted = Wanted {
        cpus: options::cpus(args, &before)?,
        pid: focus.pids.first().copied(),
        length: args.duration,
        rate: args.rate,
    };
    let talk = io::stderr().is_terminal();
    if talk {
        // Measure even if the terminal is closed.
        let _ = write!(
            io::stderr(),
            "\r\x1b[Ksampling CPUs {} for {:?}; ^C ends it now",
            wanted.cpus,
            wanted.length
        );
    }
    let measured = udpath_profile::measure(&wanted, &args.trace.0, source, before, stop, |_| ());
    if talk {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let profile = measured.map_err(|error| Failure::Cannot(error.into()))?;
    Ok(profile.about(focus).into())
}
