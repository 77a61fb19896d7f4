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
//! - [`support`]: a capture for somebody else, without what is nobody else's business.
//! - [`tables`], [`receivers`]: what it knows of an interface, and of the sockets that a flow may reach, for predictions.
//! - [`map`]: the way of a datagram through it, link by link, and the links to look at.
//! - [`watch`]: one machine looked at again and again, cheaply.
//! - [`read`]: from a source to the picture, one reader per part.
//! - [`drivers`]: what drivers call their interrupts and counters, as data.
//! - [`kernel`]: netlink and ioctls of one network namespace, to read and to set.
//! - [`filters`]: rules of packet filters that would apply to datagrams which never come to them.
//! - [`btf`]: what the kernel calls the members of its enumerations.
//! - [`namespace`]: the same for other namespaces, on a thread of its own.
//!
//! ```text
//!  wishes ─▸ plan ─▸ apply ─▸ journal ─▸ status, undo          each setting through one door: machine
//! ```
//!
//! - [`setting`]: one thing that can be changed: its name, its values, its cost, its scope.
//! - [`machine`]: the door through which settings are read and written.
//! - [`plan`]: what is to be changed, in order, as a diff, as shell lines, as JSON.
//! - [`rivals`]: who else writes the same settings, and what is done about it first.
//! - [`mod@apply`], [`mod@undo`], [`journal`]: making a plan true, taking it back, and the record that outlives a crash.
//! - [`confirm`]: an apply that reverts by itself. [`status`]: what of it still holds. [`persist`]: files that keep it
//!   over a boot. [`mod@adopt`]: the same apply, after one.

pub mod adopt;
pub mod apply;
pub mod btf;
pub mod confirm;
pub mod drivers;
pub mod fact;
pub mod filters;
pub mod journal;
pub mod kernel;
pub mod machine;
pub mod map;
pub mod namespace;
mod netlink;
pub mod persist;
pub mod plan;
pub mod process;
pub mod read;
pub mod receivers;
pub mod rivals;
pub mod setting;
pub mod snapshot;
pub mod source;
pub mod status;
pub mod support;
pub mod tables;
pub mod undo;
pub mod watch;
mod whereabouts;

pub use adopt::adopt;
pub use apply::apply;
pub use fact::{Absence, Fact, Missing, Provenance};
pub use journal::Journal;
pub use machine::{Live, Machine};
pub use map::Map;
pub use plan::{Plan, Wish};
pub use setting::{Setting, Value};
pub use snapshot::Snapshot;
pub use source::Source;
pub use undo::undo;
pub use watch::Watch;
