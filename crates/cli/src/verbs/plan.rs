//! `udpath plan`: shows the effect of settings changes. Changes nothing and needs no privileges.

use udpath_report::to_pretty_json;
use udpath_tune::Live;

use super::{machine, settings};
use crate::args::plan::Args;
use crate::exit::Done;
use crate::terminal;

/// Resolves the plan and prints it.
pub(crate) fn run(args: &Args) -> Done {
    machine::inside(&args.netns.place(), || show(args))
}

fn show(args: &Args) -> Done {
    let plan = settings::plan(&args.changes, &Live::new())?;
    let text = match (args.shell, args.json) {
        (true, _) => plan.shell(),
        (_, true) => to_pretty_json(&plan.document()),
        _ => plan.diff(),
    };
    if !text.is_empty() {
        terminal::print(&text)?;
    }
    settings::note_lasting(plan.changes.iter().map(|change| &change.setting));
    Ok(())
}
