//! The tests of this crate from outside, in one program, but for `memory`.

mod delay_line;
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
