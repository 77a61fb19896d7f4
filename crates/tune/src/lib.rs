//! Settings of a machine and of its running UDP servers: planned, applied, undone, and kept across boots.
//!
//! ```text
//!  requests ─▸ plan ─▸ apply ─▸ journal ─▸ status, undo          every setting goes through one trait: Machine
//! ```
//!
//! - [`settings`]: the settings that can be changed: one row per kind, one file per family.
//! - [`process`]: sockets and threads of a running server, changed from outside.
//! - [`machine`]: the trait through which settings are read and written.
//! - [`device`]: writes of device settings, over netlink and ioctl.
//! - [`policy`]: options that programs of a cgroup get at each bind: where they are kept, and whether they have effect.
//! - [`plan`]: requests resolved against the machine, in order: as a diff, as shell lines, as JSON.
//! - [`services`]: the configuration of known servers, changed with their own checker, restart and liveness.
//! - [`units`]: units of systemd whose program runs in several instances.
//! - `changed.rs`: what differs between two texts of a file, to be shown or typed.
//! - [`conflicts`]: other programs that write the same settings, and how to resolve that first.
//! - [`mod@apply`], [`mod@undo`], [`journal`]: carry a plan out, take it back, and the record that survives a crash.
//!   `restore.rs`: the restoring that undo and a failed apply share. `link_reset.rs`: what a change of channels loses.
//! - [`temporary`]: settings that a measurement turns on and off, and that are as found once it ends.
//! - [`confirm`]: an apply that reverts unless it is confirmed. [`status`]: which changes are still in effect.
//! - [`persist`]: files that keep changes across a boot. [`mod@adopt`]: continues the same apply after a boot.
//!
//! One circle of files is meant: a [`Setting`] has a row of the table in `settings.rs`, and the functions of a row take
//! the setting that they read or write. So the table, its families, and the types they are made of (settings, rows,
//! values, forms, and the [`machine::Refusal`] that words an errno by the setting's row) refer to each other.
//!
//! The crash rule: the journal is written and synced before each change, so at any instruction `undo` finds what it
//! needs.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod adopt;
pub mod apply;
mod bytes;
mod changed;
pub mod confirm;
pub mod conflicts;
mod context;
pub mod device;
pub mod journal;
mod link_reset;
pub mod machine;
pub mod persist;
pub mod plan;
pub mod policy;
pub mod process;
mod restore;
pub mod services;
pub mod settings;
pub mod status;
pub mod temporary;
pub mod undo;
pub mod units;

pub use adopt::adopt;
pub use apply::apply;
pub use journal::Journal;
pub use machine::{Live, Machine};
pub use plan::{Plan, SettingRequest};
pub use settings::{Setting, Value};
pub use temporary::Temporary;
pub use undo::undo;
