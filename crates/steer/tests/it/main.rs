//! The tests of this crate from outside, in one program.

mod cpu_set;
mod flow_rules;
mod predict;
mod rules;
mod toeplitz;
