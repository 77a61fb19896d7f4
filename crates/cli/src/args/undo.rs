//! Arguments of `udpath undo`.

use super::settings::CommonArgs;

/// Arguments of `udpath undo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply [default: the last that is in effect]
    pub(crate) id: Option<u64>,
    /// Print shell commands that undo it, and change nothing
    #[arg(long, conflicts_with = "json")]
    pub(crate) print: bool,
    /// Also restore settings that another program, or a later apply, has changed since
    #[arg(long, conflicts_with = "print")]
    pub(crate) force: bool,
    /// Close the entry without restoring anything: for an entry that cannot be read, or whose network namespace is
    /// gone. With --force, also for an entry that could still be undone
    #[arg(long, conflicts_with_all = ["print", "json"], requires = "id")]
    pub(crate) forget: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Print one JSON document (udpath.undo/1)
    #[arg(long)]
    pub(crate) json: bool,
}
