//! `udpath profile --diff`: compares two earlier results.

use std::path::Path;

use udpath_profile::Profile;
use udpath_report::{Compared, Document, Render, read};

use crate::exit::{Done, Failure};
use crate::terminal;
use crate::verbs::page;

/// Reads both, compares, renders.
pub(super) fn run(a: &Path, b: &Path, json: bool, page: Option<&Path>) -> Done {
    let (a, b) = (profile(a)?, profile(b)?);
    let compared = Compared { a: &a, b: &b };
    if json {
        terminal::print(&compared.json())?;
    } else {
        terminal::print(&compared.terminal(&terminal::style()))?;
    }
    page.map_or(Ok(()), |path| page::write(path, &compared))
}

fn profile(path: &Path) -> Result<Profile, Failure> {
    match read(path)? {
        Document::Profile(result) => Ok(result.profile),
        Document::Boost(_) | Document::Load(_) | Document::Experiment(_) => Err(Failure::Usage(format!(
            "--diff {}: not a profile; give a file that `udpath profile --json` wrote",
            path.display()
        ))),
    }
}
