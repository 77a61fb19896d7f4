//! `udpath history`: lists the results that were kept, and where a figure changed; adds, removes and exports them.

use udpath_history::{Listing, NewRun, Store};
use udpath_report::{Document, history_text, read_with_text, to_json};

use super::record;
use crate::args::history::{Action, AddArgs, Args, ExportArgs, RunsArgs};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Carries out the arguments.
pub(crate) fn run(args: &Args) -> Done {
    match &args.action {
        None => list(args),
        Some(Action::Add(args)) => add(args),
        Some(Action::Remove(args)) => remove(args),
        Some(Action::Export(args)) => export(args),
    }
}

fn list(args: &Args) -> Done {
    let store = Store::read(&record::path(args.store.store.as_ref())?)?;
    let listing = Listing::new(store.runs(args.since.unwrap_or(0))?, args.metric);
    terminal::print(&if args.json {
        to_json(&listing)
    } else {
        history_text(&listing, &terminal::style(), args.plot)
    })
}

fn add(args: &AddArgs) -> Done {
    let (document, text) = read_with_text(&args.file)?;
    let here = args.at.map(|at| udpath_load::origin::Origin { at, ..record::origin() });
    let run = match &document {
        Document::Boost(result) => NewRun::of_boost(result, &args.name, here),
        Document::Load(result) => NewRun::of_load(result, &args.name, here),
        Document::Profile(result) => NewRun::of_profile(result, &args.name, here),
        Document::Experiment(_) => {
            return Err(Failure::Usage(format!(
                "cannot keep {}: the history has results of boost, load and profile, and this is one of experiment",
                args.file.display()
            )));
        }
    };
    let run = run.map_err(|error| Failure::Usage(format!("cannot keep {}: {error}", args.file.display())))?;
    let mut store = Store::write(&record::path(args.store.store.as_ref())?)?;
    let id = store.add(&run.with_text(text))?;
    stderrln!("kept as run {id} in {}", store.path().display());
    Ok(())
}

fn remove(args: &RunsArgs) -> Done {
    let mut runs = args.runs.clone();
    runs.sort_unstable();
    runs.dedup();
    Ok(Store::change(&record::path(args.store.store.as_ref())?)?.remove(&runs)?)
}

/// Prints a line at a time: all results together may be more than fits the memory.
fn export(args: &ExportArgs) -> Done {
    let store = Store::read(&record::path(args.store.store.as_ref())?)?;
    let runs = if args.runs.is_empty() { store.ids()? } else { args.runs.clone() };
    for id in runs {
        let run = store.export(id)?;
        terminal::print(&if args.bare { run.result } else { run.json() })?;
    }
    Ok(())
}
