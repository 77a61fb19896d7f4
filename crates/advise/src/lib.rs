//! Trials and their statistics, and the boost loop that climbs a ladder with them.
//!
//! ```text
//!  ladder.rs      the rungs, as data
//!      |
//!  boost.rs       builds a lab, climbs in it, returns the result
//!      |
//!  climb.rs       for each rung: best so far and candidate in turn, A B B A A B B A ...
//!      |  \
//!      |   server_under_test.rs  one configuration: a running server and the link's transmit mapping
//!      |   trial.rs              one measured run of the load against one server
//!      |   profiled.rs           an extra run of the first and the best rung, with all CPUs sampled
//!      v
//!  statistics.rs  when to stop, and the verdict: better, worse, not shown
//!      v
//!  result.rs      the result, plain and serialisable
//! ```
//! A rung that does not win is undone: the next one is tried on top of the best so far, not of the last. Nothing outside
//! the lab is changed.

mod boost;
mod climb;
mod error;
pub mod ladder;
mod machine;
mod profiled;
pub mod result;
mod server_under_test;
pub mod statistics;
mod trial;

pub use boost::{Config, Event, boost};
pub use error::{ConfigError, Error};
pub use ladder::Io;
pub use machine::{line_rate_10g, wire_bytes};
