//! `udpath plan`: shows the effect of settings changes. Changes nothing and needs no privileges.

use udpath_report::{service_text, to_pretty_json};
use udpath_tune::Live;

use super::settings::Wanted;
use super::{machine, settings};
use crate::args::plan::Args;
use crate::exit::Done;
use crate::terminal;

/// Resolves the plan and prints it.
pub(crate) fn run(args: &Args) -> Done {
    machine::inside(&args.netns.place(), || show(args))
}

fn show(args: &Args) -> Done {
    let Wanted { plan, services } =
        settings::plan(&args.changes, &Live::new(), &settings::consent(&args.changes))?;
    let text = match (args.shell, args.json) {
        (true, _) => plan.shell(),
        (_, true) => to_pretty_json(&plan.document()),
        _ => {
            services.iter().map(|prepared| service_text(prepared, &terminal::style())).collect::<String>()
                + &plan.diff()
        }
    };
    match text.as_str() {
        "" => {}
        text if args.shell => terminal::print_exact(text)?,
        text => terminal::print(text)?,
    }
    for prepared in
        services.iter().filter(|prepared| prepared.restart.is_none() && !prepared.files.is_empty())
    {
        stderrln!(
            "note: to apply it, say with --restart COMMAND how {} is restarted",
            prepared.service.title()
        );
    }
    settings::note_lasting(plan.changes.iter().map(|change| &change.setting));
    Ok(())
}
