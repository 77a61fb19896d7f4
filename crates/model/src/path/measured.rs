//! What a run counts.

use crate::state::Spent;

/// What happened to transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) completed: u64,
    pub(crate) ring: u64,
    pub(crate) backlog: u64,
    pub(crate) socket: u64,
    /// Of the completed, the sum of their times in the path.
    pub(crate) time: u128,
}

/// What a window measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) counts: Counts,
    pub(crate) cpus: Vec<Spent>,
    /// Highest share of the window that a lock was held: of a socket or its queue, and of a transmit queue.
    pub(crate) socket_lock: f64,
    pub(crate) transmit_lock: f64,
    pub(crate) events: u64,
}

impl Counts {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            offered: self.offered - before.offered,
            completed: self.completed - before.completed,
            ring: self.ring - before.ring,
            backlog: self.backlog - before.backlog,
            socket: self.socket - before.socket,
            time: self.time - before.time,
        }
    }
}
