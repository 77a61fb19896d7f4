//! Trials and their statistics, and the boost loop that climbs a ladder with them.
//!
//! ```text
//!  ladder.rs      the rungs, as data
//!      |
//!  boost.rs       a lab, a climb in it, a result
//!      |
//!  climb.rs       for each rung: best so far and candidate in turn, A B B A A B B A ...
//!      |  \
//!      |   competitor.rs   one configuration: a running server and the link's transmit mapping
//!      |   trial.rs        one measured run of the load against one competitor
//!      |   profiled.rs     one further run of the first and of the best, with all CPUs sampled
//!      v
//!  statistics.rs  when to stop, and the verdict: better, worse, not shown
//!      v
//!  result.rs      what was found, plain and serialisable
//! ```
//! A rung that does not pay is undone and remembered: the next one is tried from the best, not from the last. Nothing
//! outside the lab is changed.

mod boost;
mod climb;
mod competitor;
mod error;
pub mod ladder;
mod machine;
mod profiled;
pub mod result;
pub mod statistics;
mod trial;

pub use boost::{Config, Event, boost};
pub use error::{ConfigError, Error};
pub use ladder::Io;
pub use machine::{line_rate_10g, wire_bytes};
