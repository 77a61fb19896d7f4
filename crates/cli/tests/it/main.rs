//! The program from the command line: all tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod fleet;
mod lab;
mod load;
mod report;
mod serve;
