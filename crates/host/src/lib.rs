//! The receive and transmit path of a Linux machine, observed: nothing here changes a setting.
//!
//! ```text
//!  source            read                 snapshot
//!  this machine   ┐  one reader per     ┌ interfaces: queues, NAPI, IRQs, RSS, steering, offloads
//!  a namespace    ├─ part of the  ────> ┤ machine: CPUs, nodes, counters, limits
//!  a captured     │  picture            │ sockets: owner, buffers, drops, groups
//!  folder         ┘                     └ actors: who else changes settings
//! ```
//!
//! - [`source`]: where facts come from. Everything is read through netlink, ioctl, sysfs and procfs; no other program's
//!   text is parsed. [`source::Source`] is the one door, so that a captured folder answers like the machine itself.
//! - [`fact`]: a value and where it came from; what is missing, why, and what would make it known.
//! - [`process`]: a running server's sockets and threads, seen from outside.
//! - [`snapshot`]: the picture, plain and serialisable.
//! - [`tables`], [`receivers`]: what it knows of an interface, and of the sockets that a flow may reach, for predictions.
//! - [`map`]: the way of a datagram through it, link by link, and the links to look at.
//! - [`watch`]: one machine looked at again and again, cheaply.
//! - [`read`]: from a source to the picture, one reader per part.
//! - [`drivers`]: what drivers call their interrupts and counters, as data.
//! - [`kernel`]: netlink and ioctls of one network namespace, to read and to set.
//! - [`filters`]: rules of packet filters that would apply to datagrams which never come to them.
//! - [`btf`]: what the kernel calls the members of its enumerations.
//! - [`namespace`]: the same for other namespaces, on a thread of its own.

pub mod btf;
pub mod drivers;
pub mod fact;
pub mod filters;
pub mod kernel;
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
