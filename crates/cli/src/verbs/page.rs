//! Results as HTML files: `--report`, `-o`.

use std::path::Path;

use udpath_report::{Render, WriteError};

use crate::exit::{Done, Failure};

/// Checks that a file can be written, before minutes of work whose result goes there. `option` is the argument that
/// names it.
pub(super) fn check(option: &str, path: &Path) -> Done {
    udpath_report::check_writable(path).map_err(|error| match error {
        WriteError::Folder { .. } => Failure::Usage(format!("{option}: {error}")),
        error => error.into(),
    })
}

/// Writes the page, and prints its path.
pub(super) fn write(path: &Path, result: &impl Render) -> Done {
    udpath_report::write_html(path, result)?;
    stderrln!("wrote {}", path.display());
    Ok(())
}
