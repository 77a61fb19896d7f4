//! The tests of this crate from outside, in one program.

mod address;
mod broadcast;
mod echo;
mod faults;
mod messages;
mod mtu;
mod neighbours;
mod overload;
mod stop;
mod support;
mod tcp;
mod timestamps;
