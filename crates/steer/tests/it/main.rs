//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod cpu_set;
mod flow_rules;
mod predict;
mod rules;
mod toeplitz;
