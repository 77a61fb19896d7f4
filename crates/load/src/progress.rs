//! Progress reports during a run.

use std::time::Duration;

use crate::result::Latency;

/// The state of a run, passed to the caller a few times per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Time since the window began; zero during the warm-up.
    pub elapsed: Duration,
    /// Length of the window.
    pub total: Duration,
    /// Requests sent so far, warm-up included.
    pub sent: u64,
    /// Valid replies so far, warm-up included.
    pub ok: u64,
    /// Requests lost so far, as far as known during the run.
    pub lost: u64,
    /// Transactions completed per second (one-way modes: sent) since the last report.
    pub tps: f64,
    /// Once per second: latency, intended to answered, of the window's requests that were answered since the last such
    /// report.
    pub interval: Option<Latency>,
}
