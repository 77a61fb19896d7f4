//! The climb with real traffic: all tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod aa;
mod duet;
mod faults;
