//! `udpath report`: renders a JSON result of `boost`, `load` or `profile`.

use std::fs;
use std::path::Path;

use udpath_report::{Document, Render, boost_text};

use super::page;
use crate::args::report::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads, checks, renders.
pub(crate) fn run(args: &Args) -> Done {
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if let Some(output) = output {
        refuse_to_overwrite(&args.file, output)?;
    }
    let result = udpath_report::read(&args.file)?;
    match (output, &result) {
        (Some(path), result) => page::write(path, result),
        (None, result) if args.json => terminal::print(&result.json()),
        (None, Document::Boost(boost)) => {
            terminal::print(&boost_text(boost, &terminal::style(), args.details))
        }
        (None, other) => terminal::print(&other.terminal(&terminal::style())),
    }
}

/// Refuses to overwrite the input, so that a typo does not destroy it.
fn refuse_to_overwrite(input: &Path, output: &Path) -> Done {
    let same = fs::canonicalize(input).ok().is_some_and(|i| fs::canonicalize(output).is_ok_and(|o| i == o));
    if same {
        let name = output.display();
        return Err(Failure::Usage(format!(
            "-o {name} would overwrite the result itself; name another file for the HTML"
        )));
    }
    Ok(())
}
