//! `udpath status`: applied changes, and which are still in effect. Read-only.

use std::time::{SystemTime, UNIX_EPOCH};

use udpath_report::{status_findings, status_text, to_pretty_json};
use udpath_tune::status::Status;
use udpath_tune::{Journal, Live};

use super::machine;
use crate::args::status::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads and prints; exit 1 if a change is no longer in effect.
pub(crate) fn run(args: &Args) -> Done {
    machine::inside(&args.common.netns.place(), || show(args))
}

fn show(args: &Args) -> Done {
    let journal = Journal::at(&args.common.journal.state);
    let status = Status::settled(&Live::new(), &journal)?;
    if args.json {
        terminal::print(&to_pretty_json(&status))?;
    } else {
        for bad in &status.unreadable {
            stderrln!("udpath: warning: {}", bad.why);
        }
        if status.applies.is_empty() && status.reverted.is_empty() {
            stderrln!("no changes made by udpath are in effect (journal {})", journal.directory().display());
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            terminal::print(&status_text(&status, now, &terminal::style()))?;
        }
    }
    match status_findings(&status).as_slice() {
        [] => Ok(()),
        all => Err(Failure::Findings(all.join("; "))),
    }
}
