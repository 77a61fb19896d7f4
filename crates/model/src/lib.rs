//! What another machine would carry: the path of a datagram as queues, locks and lines between CPUs, simulated.
//!
//! ```text
//!   Description: machine, service, load ─┐
//!   Costs: measured on some machine ─────┴▸ predict ─▸ Outcome: tps with a band, each link's share, what is saturated
//!                                            │
//!   path.rs       one run: its state and its events; agenda.rs, random.rs: its time and its dice
//!   state.rs      queues, CPUs, threads and sockets
//!   stages/       card, softirq, socket, reader, CPU, lines and locks
//!   kernel.rs     what each kernel does differently, as data
//!   bulk.rs       streams of data: a closed form of its own
//!   capacity.rs   the same machine in other configurations, what would help, sweeps
//!   published.rs  the published experiments as descriptions
//! ```
//! Pure: no I/O, no clock, no threads. A run depends on its description, costs and seed alone, and simulates millions
//! of events a second. What is a parameter, and who measured it, is in [`costs::TERMS`]; everything else is structure,
//! with its source in the kernel beside it. `tests/closed_forms.rs` holds the path against M/M/1, M/D/c and a lock's
//! closed form.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod agenda;
pub mod bulk;
pub mod capacity;
pub mod costs;
pub mod description;
mod extrapolation;
pub mod kernel;
mod outcome;
mod path;
mod published;
pub mod random;
mod stages;
mod state;

pub use capacity::{CAPACITY_SCHEMA, CapacityResult, capacity, sweep};
pub use costs::Costs;
pub use description::Description;
pub use extrapolation::{Extrapolation, beyond};
pub use outcome::{CpuTime, Effort, LinkName, LinkShare, Lost, Outcome, PredictError, predict};
pub use published::{MOST_QUEUES, Published, experiment, ids, outcome, published, published_band};
