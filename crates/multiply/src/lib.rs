//! Several instances of an unmodified server that reads with one thread, on one port.
//!
//! ```text
//!                      ┌─ policy: SO_REUSEPORT at each bind of the cgroup (udpath_tune, through the journal)
//!  Supervisor ─────────┤
//!    │  turn()         ├─ cgroup udpath-multiply-NAME ─ 1: process on CPU 0 ─ its socket ─ slot 0 ┐
//!    │                 │                              └ 2: process on CPU 1 ─ its socket ─ slot 1 ┤
//!    │                 └─ Selection (udpath_bpf): by flow hash, or by receiving CPU ◂─ datagrams ─┘
//!    ├─ Event   what happened, for its user                          in service: slots that are admitted
//!    └─ control socket: another number, status, stop
//!
//!  an instance:  Stopped ─▸ Starting ─▸ Serving ─▸ Draining ─▸ Ending ─▸ Stopped, or gone
//!                             │ bound, answers its query │ slot retired, queue read   │ SIGTERM, then SIGKILL
//!                             └ slot admitted            └ dead or hung: killed at once, started again later
//! ```
//! No datagram is lost when an instance is added or removed: the program in the kernel chooses only among admitted
//! slots, an instance is admitted once it has bound its sockets and answered, and one that goes keeps its socket until
//! it has answered what is queued.
//!
//! Everything that outlives a killed supervisor is named in its folder before it exists ([`leftovers`]). A process that
//! it has started (the guard) waits for its end and takes that back; if the guard is killed too, the next start does.
//!
//! - `config.rs`, `error.rs`, `status.rs`: what is asked for, what fails, what is reported.
//! - `folder.rs`: `/run/udpath/multiply/NAME`, locked while its supervisor lives. `cgroup.rs`, `policy.rs`, `sys.rs`:
//!   what instances run in, what lets them share a port, and how they start. `units.rs`: instances that are units of
//!   systemd.
//! - `sockets.rs`: what an instance has bound, and whether it reads. `shares.rs`: the slots of each address.
//!   `query.rs`: asks one instance whether it serves.
//! - `instance.rs`: one instance. `steps.rs`: its transitions; `leave.rs`, `kept.rs`: how it leaves without loss.
//!   `supervisor.rs`: the loop. `control.rs`: the control socket.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod cgroup;
mod config;
mod control;
mod error;
mod folder;
mod instance;
mod kept;
mod leave;
pub mod leftovers;
mod policy;
mod query;
mod shares;
mod sockets;
mod status;
mod steps;
mod supervisor;
mod sys;
mod units;

pub use config::{Choose, Config};
pub use control::{Listed, Request, ask, list};
pub use error::Error;
pub use folder::journal_of;
pub use status::{Event, InstanceStatus, SCHEMA, State, Status};
pub use supervisor::Supervisor;
