//! Arguments of `udpath completions`.

use clap_complete::Shell;

/// Arguments of `udpath completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    pub(crate) shell: Shell,
}
