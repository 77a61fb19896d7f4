//! `udpath plan`: shows the effect of settings changes. Changes nothing and needs no privileges.

use anyhow::Context;
use udpath_tune::Live;

use super::settings::{self, Namespace, Wanted};
use crate::exit::Done;
use crate::terminal;

/// Arguments of `udpath plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Each setting on a page, when it helps and when it harms: ",
    env!("CARGO_PKG_REPOSITORY"),
    "/tree/main/docs"
))]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Print equivalent shell commands that do not need udpath
    #[arg(long, conflicts_with = "json")]
    shell: bool,
    /// Print one JSON document that `udpath apply` accepts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    namespace: Namespace,
}

/// Resolves the plan and prints it.
pub(crate) fn run(args: &Args) -> Done {
    args.namespace.run(|| show(args))
}

fn show(args: &Args) -> Done {
    let plan = args.wanted.plan(&Live::new())?;
    let text = match (args.shell, args.json) {
        (true, _) => plan.shell(),
        (_, true) => {
            serde_json::to_string_pretty(&plan.document()).context("cannot write the plan as JSON")?
        }
        _ => plan.diff(),
    };
    if !text.is_empty() {
        terminal::print(&text)?;
    }
    settings::tell_lasting(plan.changes.iter().map(|change| &change.setting));
    Ok(())
}
