//! Arguments of `udpath report`.

use std::path::PathBuf;

/// Arguments of `udpath report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSON written by `udpath boost`, `load`, `profile` or `experiment` with `--json`; `-` is standard input
    pub(crate) file: PathBuf,
    /// Write one self-contained HTML file [default: `-`, which prints text to stdout]
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: Option<PathBuf>,
    /// With a result of `experiment`: write its pages of the book into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "details", "json"])]
    pub(crate) docs: Option<PathBuf>,
    /// Print all details of a `boost` result, not only the summary
    #[arg(long, conflicts_with_all = ["output", "json"])]
    pub(crate) details: bool,
    /// Check the result against its schema, and print it as one JSON document
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
}
