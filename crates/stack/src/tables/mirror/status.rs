//! The state of the mirror, and why it could not follow the kernel.

use std::io;

use super::{MAX_ATTEMPTS, REPLY_TIMEOUT};
use crate::epoch::Stalled;

/// Why the mirror cannot follow the kernel.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A system call failed, or the kernel refused a request.
    #[error("cannot {what}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel did not answer.
    #[error("cannot {what}: no answer from the kernel for {} s", REPLY_TIMEOUT.as_secs())]
    NoAnswer {
        /// The operation.
        what: &'static str,
    },
    /// Interfaces, addresses, neighbours or routes keep changing faster than they can be read.
    #[error(
        "cannot {what}: it kept changing while it was read, {MAX_ATTEMPTS} times in a row; retry when the machine is less busy"
    )]
    Unsettled {
        /// The operation.
        what: &'static str,
    },
    /// A reader does not release old tables.
    #[error("cannot publish the tables")]
    Stalled(#[source] Stalled),
}

/// The state of the mirror.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// The tables match the kernel's, with a delay of about 20 ms, or longer if they are large.
    #[default]
    Following,
    /// Notices were lost; the tables are out of date until everything has been read again.
    Behind,
    /// New tables cannot be published because this reader does not release old ones. Retried continually.
    Held(Stalled),
    /// The socket failed, for this reason. The tables **stay as they are**; to follow again, start another mirror.
    Ended(String),
}

/// The state of the mirror, and counters since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Full reads after notices were lost.
    pub resyncs: u64,
    /// How often the socket lost notices.
    pub overruns: u64,
    /// How often only the routes were read again, because they may have changed without a notice.
    pub route_readings: u64,
    /// How often a list was read again because it changed during the read.
    pub interrupted: u64,
    /// Publications of tables.
    pub publications: u64,
    /// Messages that could not be decoded. The tables may lack a link or an address.
    pub undecodable: u64,
    /// Neighbours that the kernel was requested to resolve.
    pub asked: u64,
    /// Requests that the kernel refused: no permission, its table is full, the interface is gone.
    pub refused: u64,
}
