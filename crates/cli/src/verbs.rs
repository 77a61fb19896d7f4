//! One file per verb: its arguments, their checks, the call, the output.

pub(crate) mod boost;
pub(crate) mod completions;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod predict;
pub(crate) mod report;
pub(crate) mod serve;
