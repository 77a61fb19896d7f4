//! Arguments of `udpath plan`.

use super::place::NetnsArgs;
use super::settings::ChangeArgs;

/// Arguments of `udpath plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Each setting on a page, when it helps and when it harms: ",
    env!("CARGO_PKG_REPOSITORY"),
    "/tree/main/docs"
))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Print equivalent shell commands that do not need udpath
    #[arg(long, conflicts_with = "json")]
    pub(crate) shell: bool,
    #[command(flatten)]
    pub(crate) netns: NetnsArgs,
    /// Print one JSON document (udpath.plan/2), which `udpath apply` accepts
    #[arg(long)]
    pub(crate) json: bool,
}
