//! The tests of this crate from outside, in one program.

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
mod watch;
