//! Arguments of `udpath revert`, which `udpath apply --confirm` sets.

use super::settings::JournalArgs;

/// Arguments of `udpath revert`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply
    pub(crate) id: u64,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}
