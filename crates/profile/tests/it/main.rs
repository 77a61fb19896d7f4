//! The tests of this crate from outside, in one program.

mod agrees;
mod recorded;
#[path = "../rings/mod.rs"]
mod rings;
mod stacks;
mod trace;
