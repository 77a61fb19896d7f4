//! The tests of this crate from outside, in one program, but for those under loom.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod capture;
mod mirror;
mod tables_properties;
mod wire_captured;
mod wire_properties;
mod worker;
mod xdp_port;
mod xdp_take;
