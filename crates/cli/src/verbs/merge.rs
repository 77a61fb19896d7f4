//! `udpath merge`: the sum of the results of a load's segments.

use std::path::{Path, PathBuf};

use udpath_load::result::LoadResult;
use udpath_report::{Document, Render, read};

use super::page;
use crate::args::merge::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads all, adds them up, renders.
pub(crate) fn run(args: &Args) -> Done {
    if args.files.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Failure::Usage("standard input holds one result: name a file for the others".into()));
    }
    if let Some(path) = &args.report {
        page::check("--report", path)?;
    }
    let named = args.files.iter().map(load).collect::<Result<Vec<_>, Failure>>()?;
    let sum = LoadResult::merge_segments(named).map_err(Failure::usage)?;
    terminal::print(&if args.json { sum.json() } else { sum.terminal(&terminal::style()) })?;
    args.report.as_ref().map_or(Ok(()), |path| page::write(path, &sum))
}

/// The result in a file, with the file's name.
fn load(path: &PathBuf) -> Result<(String, LoadResult), Failure> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    match read(path)? {
        Document::Load(result) => Ok((name, result)),
        other => Err(Failure::Usage(format!(
            "{name} is a result of {}: give results of `udpath load --segment I/N`",
            other.verb()
        ))),
    }
}
