//! One file per verb: the call of the crates with its arguments, and the output.

pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod boost;
pub(crate) mod capacity;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod diagnose;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod lab;
mod levers;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod multiply;
mod page;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod predict;
pub(crate) mod profile;
mod record;
pub(crate) mod report;
pub(crate) mod revert;
pub(crate) mod serve;
mod server_options;
mod settings;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod top;
pub(crate) mod undo;
pub(crate) mod version;

use udpath_report::shell_quoted;

/// The command line of this run, quoted where a shell needs it.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_quoted(&word.to_string_lossy()));
    std::iter::once("udpath".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
