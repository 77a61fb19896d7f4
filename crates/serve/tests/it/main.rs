//! The tests of this crate from outside, in one program.

mod address;
mod broadcast;
mod echo;
mod faults;
mod hold;
mod messages;
mod mtu;
mod neighbours;
mod overload;
mod slow;
mod stop;
mod support;
mod tcp;
mod timestamps;
