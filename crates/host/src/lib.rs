//! The way of a datagram through a Linux machine: read as one picture, changed as one plan, put back on request.
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
//! - [`process`]: a running server's sockets and threads, changed from outside.
//! - [`snapshot`]: the picture, plain and serialisable.
//! - [`read`]: from a source to the picture, one reader per part.
//! - [`drivers`]: what drivers call their interrupts and counters, as data.
//! - [`kernel`]: netlink and ioctls of one network namespace, to read and to set.
//! - [`namespace`]: the same for other namespaces, on a thread of its own.

pub mod drivers;
pub mod fact;
pub mod kernel;
pub mod namespace;
mod netlink;
pub mod process;
pub mod read;
pub mod snapshot;
pub mod source;

pub use fact::{Absence, Fact, Missing, Provenance};
pub use snapshot::Snapshot;
pub use source::Source;
