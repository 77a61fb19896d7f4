//! The receive and transmit path of a Linux machine: what it is, and what it counted. This crate only reads; the crate
//! `udpath-tune` writes.
//!
//! ```text
//!  source            read                 snapshot
//!  this machine   ┐  one reader per     ┌ interfaces: queues, NAPI, IRQs, RSS, steering, offloads
//!  a namespace    ├─ part of the  ────> ┤ machine: CPUs, nodes, counters, limits
//!  a captured     │  snapshot           │ sockets: owner, buffers, drops, groups
//!  folder         ┘                     └ actors: other programs that change settings
//! ```
//!
//! - [`source`]: where facts come from. Everything is read through netlink, ioctl, sysfs and procfs; no other program's
//!   output is parsed. All reads go through [`source::Source`], so a captured folder answers like the machine itself.
//! - [`fact`]: a value and its source; for a missing value, the reason and the fix.
//! - [`process`]: a running server's sockets and threads, seen from outside.
//! - [`snapshot`]: the result, plain and serialisable.
//! - [`tables`], [`receivers`]: inputs of predictions: an interface's tables, and the sockets that a flow may reach.
//! - [`map`]: the path of a datagram through the machine, link by link, and the parts of it to show.
//! - [`watch`]: repeated snapshots of one machine, at low cost.
//! - [`read`]: turns a source into a snapshot, one reader per part.
//! - [`drivers`]: driver names of interrupts and counters, as data.
//! - [`client`]: netlink and ioctls of one network namespace.
//! - [`filters`]: packet filter rules that would have applied to datagrams that bypass them.
//! - [`btf`]: names of the kernel's enumeration members.
//! - [`namespace`]: the same for other namespaces, on a separate thread.

pub mod btf;
pub mod client;
pub mod drivers;
pub mod fact;
pub mod filters;
pub mod map;
pub mod namespace;
pub mod process;
pub mod read;
pub mod receivers;
pub mod snapshot;
pub mod source;
pub mod tables;
pub mod watch;

pub use fact::{Absence, Fact, Missing, Provenance};
pub use map::Map;
pub use snapshot::Snapshot;
pub use source::Source;
pub use watch::Watch;
