//! `udpath report`: renders a JSON result of `boost`, `load`, `profile` or `experiment`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use udpath_report::{Document, Render, boost_text, experiment_docs, write_whole};

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
    let (result, text) = udpath_report::read_with_text(&args.file)?;
    if let Some(folder) = &args.docs {
        return docs(&result, &text, folder);
    }
    match (output, &result) {
        (Some(path), result) => page::write(path, result),
        (None, result) if args.json => terminal::print(&result.json()),
        (None, Document::Boost(boost)) => {
            terminal::print(&boost_text(boost, &terminal::style(), args.details))
        }
        (None, other) => terminal::print(&other.terminal(&terminal::style())),
    }
}

/// Writes the pages of the experiments into the folder of the book.
fn docs(result: &Document, text: &str, folder: &Path) -> Done {
    let Document::Experiment(result) = result else {
        let verb = result.verb();
        return Err(Failure::Usage(format!(
            "--docs needs a result of experiment, and this is one of {verb}"
        )));
    };
    for file in experiment_docs(result, text) {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            udpath_files::output::create_folder(parent)
                .with_context(|| format!("cannot create the folder {}", parent.display()))?;
        }
        write_whole(&path, file.contents.as_bytes())?;
        stderrln!("wrote {}", path.display());
    }
    Ok(())
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
