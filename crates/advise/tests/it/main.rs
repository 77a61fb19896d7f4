//! The climb with real traffic: all tests of this crate from outside, in one program.

mod aa;
mod duet;
mod faults;
