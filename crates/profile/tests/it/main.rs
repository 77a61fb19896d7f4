//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod agrees;
mod recorded;
#[path = "../rings/mod.rs"]
mod rings;
mod stacks;
mod trace;
