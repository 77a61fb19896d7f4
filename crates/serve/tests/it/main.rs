//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

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
