//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod captured;
mod filters;
mod fixtures;
mod live;
mod machine;
#[path = "../machines/mod.rs"]
mod machines;
mod order;
mod real;
mod receivers;
mod shell;
mod watch;
