//! The tests of this crate from outside, in one program, but for those under loom.

mod capture;
mod mirror;
mod tables_properties;
mod wire_captured;
mod wire_properties;
mod worker;
mod xdp_port;
mod xdp_take;
