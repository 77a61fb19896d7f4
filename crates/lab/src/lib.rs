//! Machines within one machine: network namespaces connected by veth pairs, silent, reproducible, and removed after
//! use, however the program ends.
//!
//! ```text
//!  machine client                                      machine server
//!  network namespace udpath-PID-LAB-client             network namespace udpath-PID-LAB-server
//!  +---------------------------+                       +---------------------------+
//!  | eth0  10.0.0.1/24         |  veth pair, Q queues  |         10.0.0.2/24  eth0 |
//!  |       fd75:.. :1/64       |=======================|         fd75:.. :2/64     |
//!  | permanent neighbours ---> |  a link               | <--- permanent neighbours |
//!  +---------------------------+                       +---------------------------+
//! ```
//!
//! - [`LabBuilder`] describes a lab; [`Blueprint`] is the same with every name, address and number filled in. Both are
//!   plain data: two labs of one description differ only in the PID in the namespaces' names.
//! - [`Lab`] is a running one, and its [`Topology`] what it consists of. Dropping it undoes every step in reverse
//!   order.
//! - [`Machine`] runs closures ([`Machine::run`]) and programs ([`Machine::command`]) inside; [`Interface`] is one end
//!   of a link, with its transmit mapping, receive steering, offloads, interrupt moderation and NAPI.
//! - [`sweep_stale`], [`list`], [`down`], [`attach`]: labs of other processes, and remains of killed ones.
//! - [`enter_user_namespace`]: labs without root, as far as the kernel allows.
//! - [`needs_root!`]: skips a test that needs root if there is none.
//!
//! # What a lab does not have
//! No ARP, no neighbour discovery, no duplicate address detection, no router solicitations, no multicast: an idle link
//! carries nothing, so every frame counted on it was sent by a program. Interfaces have no link-local address. There is
//! no forwarding: machines only reach those they have a link to.
//!
//! # Ownership
//! Everything is recorded before it is created, in a record under `/run/udpath/lab`, and the owner holds a lock on the
//! record while it runs (`record.rs`). A killed owner's lock is free: the next run finds the record and removes what it
//! names, and nothing else.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod affinity;
mod blueprint;
mod builder;
mod error;
mod ethtool;
mod flow_table;
mod interface;
mod lab;
mod labs;
mod machine;
mod moderation;
mod namespace;
mod needs_root;
mod offloads;
mod processes;
mod record;
mod rps;
mod rtnl;
mod site;
mod spawner;
mod spec;
mod sys;
mod topology;
mod undo;
mod user_namespace;
mod xps;

pub use affinity::confined;
pub use blueprint::{Blueprint, End, LinkBlueprint, MacAddress, MachineBlueprint};
pub use builder::LabBuilder;
pub use error::Error;
pub use interface::{Interface, NapiGuard};
pub use lab::Lab;
pub use labs::{Listed, State, Swept, attach, down, down_all, list, sweep_stale};
pub use machine::Machine;
pub use needs_root::skipped_without_root;
pub use offloads::Offloads;
pub use rps::Rps;
pub use spec::{
    LinkSpec, MAX_ADDRESSES, MAX_LAB_NAME, MAX_LINKS, MAX_MACHINE_NAME, MAX_MODERATION, MAX_MTU, MAX_QUEUES,
    MIN_MTU, SpecError,
};
pub use sys::pass_on;
pub use topology::{Addresses, Topology};
pub use user_namespace::{enter_user_namespace, missing};
pub use xps::online_cpus;
