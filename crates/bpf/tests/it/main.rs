//! Programs that outlive the process that attached them.

mod policy;
mod selection;
