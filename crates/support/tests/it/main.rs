//! The tests of this crate from outside, in one program.

mod kept;
#[allow(dead_code, reason = "the large machine is for benchmarks")]
#[path = "../../../host/tests/machines/mod.rs"]
mod machines;
mod support;
mod unpacked;
