//! Arguments of `udpath confirm`.

use super::settings::JournalArgs;

/// Arguments of `udpath confirm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply [default: the last that awaits confirmation]
    pub(crate) id: Option<u64>,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}
