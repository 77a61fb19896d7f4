//! The tests of this crate from outside, in one program, but for `memory`.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod delay_line;
mod elsewhere;
mod faults;
mod find_max;
mod impaired;
mod kernel;
mod known;
mod known_answers;
mod other_modes;
mod prebuilt;
mod segments;
mod several;
mod signed;
mod xdp;
mod xdp_checksums;
mod xdp_live;
