//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod kept;
#[allow(dead_code, reason = "the large machine is for benchmarks")]
#[path = "../../../host/tests/machines/mod.rs"]
mod machines;
mod support;
mod unpacked;
