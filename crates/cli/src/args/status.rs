//! Arguments of `udpath status`.

use super::settings::CommonArgs;

/// Arguments of `udpath status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Print one JSON document (udpath.status/1)
    #[arg(long)]
    pub(crate) json: bool,
}
