//! The published experiments that udpath comes from, repeated on this machine.
//!
//! ```text
//!  data/NAME.toml ──▸ description.rs   question, source, topology, cases with their published figures, comparisons
//!                          │
//!  experiments/NAME.rs ────┼──▸ entry.rs     measured here, in interleaved trials      ──┐
//!     arms.rs  every comparison, every profile                                           │
//!     servers.rs  arms that are servers in a lab                                         │
//!     in_turn.rs  many cases in turn, figures that need no server of the climb           │
//!     socket_flood.rs, readers.rs  in memory: one socket, one table  (benches share them) │
//!     program.rs, work.rs  runs of `udpath load`; CPU time in the published classes      │
//!                          └──▸ Context      modelled for the machine that was described ──┤
//!                                                                       runner.rs         │
//!                                                                                         v
//!                    campaign.rs ◂── outcome.rs   the three side by side, plain and serialisable
//!                                                                                         │
//!                                     verdict.rs   same factor, same order, differs
//! ```
//! A case is one configuration with one figure. Absolute figures of different machines say little: what is compared are
//! ratios of two cases, measured in interleaved trials, and their order. A description never contains a figure that was
//! measured here, and the model never gets a published one.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod arms;
mod campaign;
pub mod description;
pub mod entry;
mod evidence;
mod experiments;
mod in_turn;
mod nft;
pub mod outcome;
mod program;
pub mod readers;
mod runner;
mod servers;
pub mod socket_flood;
pub mod threads;
pub mod verdict;
mod work;

pub use campaign::{Step, UnknownExperiment, chosen, descriptions, run_all};
pub use description::{Description, DescriptionError};
pub use entry::{Context, Effort, Entry, Error, Progress, Watch};
pub use experiments::EXPERIMENTS;
pub use outcome::{ExperimentResult, Outcome, SCHEMA};
pub use runner::run;
pub use verdict::Verdict;
