//! The whole program, tests that run one at a time (`udpath_rig::alone`): they profile the machine, keep its CPUs busy,
//! measure, or check that nothing is left on it. Those of `bad_input` run with each other (`udpath_rig::together`).

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod accounting;
mod allocations;
mod bad_input;
mod boost;
mod capacity;
mod diagnose;
mod differential;
mod effect;
mod experiment;
mod faults;
mod growth;
mod kept;
mod profile;
#[path = "../../../crates/profile/tests/rings/mod.rs"]
mod rings;
mod running;
mod sentences;
mod versions;
