//! Arguments of `udpath fleet`.

use std::path::PathBuf;

/// Arguments of `udpath fleet`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Compare the captures in a folder: what most machines have, which differ and in what, and the findings of all
    Report(ReportArgs),
}

/// Arguments of `udpath fleet report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Folder of captures (`udpath support`), and of JSON of `udpath show --json`; a machine is named by its file
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Also write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print one JSON document (udpath.fleet/1)
    #[arg(long)]
    pub(crate) json: bool,
}
