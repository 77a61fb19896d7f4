//! Findings, the rules that make them, and the climb that measures what a change is worth.
//!
//! ```text
//!  Map, Profile ──▸ rules/ (rule.rs: what a rule is) ──▸ finding.rs ──▸ judged.rs: map and profile with their findings
//!                                                           │             └─ summary.rs: a profile in one sentence
//!                                                           └─▸ diagnosis.rs: both of one interval, by weight
//! ```
//! ```text
//!  ladder.rs      the rungs, as data
//!      |
//!  boost.rs       builds a lab, climbs in it, returns the result
//!      |
//!  climb.rs       for each rung: a race between the best so far and the candidate
//!      |
//!  race.rs        both in turn, A B B A A B B A ..., or in duets (duet.rs)
//!      |  \
//!      |   server_under_test.rs  one configuration: a running server; trial.rs sets its receive steering
//!      |   trial.rs              one measured run of the load against one server
//!      |   profiled.rs           an extra run of the first and the best rung, with all CPUs sampled
//!      v
//!  statistics.rs  when to stop, and the verdict: better, worse, not shown
//!      v
//!  result.rs      the result, plain and serialisable
//! ```
//! ```text
//!  test_bed.rs    the same servers, trials and profiles in a lab that a caller has built
//!  interleave.rs  two measurements in turn, A B B A, of whatever figures
//! ```
//! ```text
//!  running.rs     the same question about a server that already runs: which changes around it help
//!      |
//!  search.rs      races candidates, keeps what is better, leaves each out once, measures the gain
//!      |
//!  statistics.rs
//! ```
//! ```text
//!  two results of one kind ──▸ comparison/   are their loads alike? each figure with its ratio, interval and verdict
//!                                └─ statistics/unpaired.rs: the trials of the two were not interleaved
//! ```
//! ```text
//!  calibration.rs   the costs of this machine, for the crate model: trials of single operations, rungs, their fit
//!  described.rs     a machine as the model describes it, and the costs that a profile of it shows
//! ```
//! A rung that does not win is undone: the next one is tried on top of the best so far, not of the last one. Nothing
//! outside the lab stays changed: the rung `rfs` turns the machine's flow table on only during its trials.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod boost;
pub mod calibration;
mod climb;
pub mod comparison;
mod config;
mod described;
pub mod diagnosis;
pub mod duet;
mod entrant;
mod error;
pub mod finding;
pub mod interleave;
mod judged;
pub mod ladder;
mod machine;
mod profiled;
mod race;
pub mod result;
mod rule;
pub mod rules;
mod running;
mod search;
mod server_under_test;
pub mod statistics;
mod summary;
pub mod test_bed;
mod trial;

pub use boost::boost;
pub use config::{Config, Event};
pub use described::{DescribeError, costs_of, describe};
pub use diagnosis::{DIAGNOSIS_SCHEMA, Diagnosis};
pub use error::{ConfigError, Error};
pub use finding::{Finding, Location, Netns, Remedy, Severity};
pub use judged::{MAP_SCHEMA, MapResult, PROFILE_SCHEMA, ProfileResult};
pub use machine::{facts as machine_facts, line_rate_10g, wire_bytes};
pub use running::{Allow, LoadConfig, RunningConfig, RunningError, Served, Traffic, boost_running};
