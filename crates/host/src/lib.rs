//! The receive and transmit path of a Linux machine: what it is, and what it counted. This crate only reads; the crate
//! `udpath-tune` writes.
//!
//! ```text
//!  source            a file per subject: its types, and the reader that fills them          snapshot
//!  this machine   ┐  interfaces, links, queues, queue_irqs, steering, packet_sockets     ┐
//!  a namespace    ├─ cpus, irqs, softnet, kernel, limits, sysctls                        ├─ all of them
//!  a captured     │  ip, neighbours, udp, sockets, processes, netfilter                  │  at one moment
//!  folder         ┘  actors: other programs that change settings                         ┘
//! ```
//! A reader is `subject::read(source, missing)`. It never fails: it lists what it cannot read in `missing`.
//!
//! - [`source`]: where facts come from. Everything is read through netlink, ioctl, sysfs and procfs; no other program's
//!   output is parsed. All reads go through [`source::Source`], so a captured folder answers like the machine itself.
//! - [`client`]: netlink and ioctls of one network namespace, and the types of their answers.
//! - [`fact`]: a value and its source; for a missing value, the reason and the fix.
//! - [`snapshot`]: the result, plain and serialisable.
//! - [`watch`]: repeated snapshots of one machine, at low cost.
//! - [`map`]: the path of a datagram through the machine, stage by stage, and the parts of it to show.
//! - [`tables`], [`receivers`]: inputs of predictions: an interface's tables, and the sockets that a flow may reach.
//! - [`mod@unit`]: names of services of systemd, as far as a control group's path proves one.
//! - [`process`]: a running server's sockets and threads, seen from outside.
//! - [`filters`]: packet filter rules that would have applied to datagrams that bypass them.
//! - [`drivers`]: driver names of interrupts and counters, as data.
//! - [`btf`]: names of the kernel's enumeration members.
//! - [`namespace`]: the same for other namespaces, on a separate thread.
//! - [`visible`]: text of somebody else, for a terminal or a comment.
//! - [`shell`]: the same as a word of a command that is pasted.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod actors;
pub mod btf;
pub mod client;
pub mod container;
pub mod cpus;
pub mod drivers;
pub mod fact;
pub mod filters;
pub mod interfaces;
pub mod ip;
pub mod irqs;
pub mod kernel;
pub mod limits;
mod links;
pub mod map;
pub mod namespace;
pub mod neighbours;
pub mod netfilter;
pub mod packet_sockets;
pub mod process;
pub mod processes;
mod queue_irqs;
pub mod queues;
pub mod receivers;
pub mod shell;
pub mod snapshot;
pub mod sockets;
pub mod softnet;
pub mod source;
pub mod steering;
pub mod sysctls;
pub mod tables;
mod text;
pub mod tun;
pub mod udp;
pub mod unit;
pub mod visible;
pub mod watch;

pub use fact::{Absence, Fact, Missing, Provenance};
pub use map::Map;
pub use snapshot::Snapshot;
pub use source::Source;
pub use text::Malformed;
pub use unit::UnitName;
pub use watch::{Acquisition, Watch};

#[cfg(test)]
mod tests;
