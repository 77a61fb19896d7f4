//! Arguments of `udpath compare`.

use std::path::PathBuf;

/// Arguments of `udpath compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first result: JSON written by `udpath boost`, `udpath load` or `udpath profile` with `--json`
    #[arg(value_name = "A.json")]
    pub(crate) a: PathBuf,
    /// The second result, of the same verb; `-` is standard input
    #[arg(value_name = "B.json")]
    pub(crate) b: PathBuf,
    /// Compare results of different loads all the same; they get no verdict
    #[arg(long)]
    pub(crate) anyway: bool,
    /// Also write the comparison as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print one JSON document (udpath.compare/1)
    #[arg(long)]
    pub(crate) json: bool,
}
