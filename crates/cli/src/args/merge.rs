//! Arguments of `udpath merge`.

use std::path::PathBuf;

/// Arguments of `udpath merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The results of the segments: JSON written by `udpath load --segment I/N --json`, or by `udpath merge --json`;
    /// one of them may be `-`, standard input
    #[arg(value_name = "FILE.json", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Also write the sum as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print one JSON document (udpath.load/1)
    #[arg(long)]
    pub(crate) json: bool,
}
