//! The program from the command line: all tests of this crate from outside, in one program.

mod fleet;
mod lab;
mod load;
mod report;
mod serve;
