//! One file per verb: the call of the crates with its arguments, and the output.

pub(crate) mod apply;
pub(crate) mod boost;
mod captured;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod diagnose;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod man;
mod page;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod profile;
mod record;
pub(crate) mod report;
pub(crate) mod revert;
pub(crate) mod serve;
mod settings;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod top;
pub(crate) mod undo;
