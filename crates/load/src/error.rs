//! Errors of a run.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use crate::plan::PlanError;
use crate::result::LoadResult;

/// Why a run failed or ended early. [`Error::Plan`] is a usage error (exit 2), the rest are not (exit 3).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// A system call of the set-up failed.
    #[error("cannot {operation}{hint}")]
    System {
        /// What was attempted: `bind a flow to 10.0.0.1:4000`.
        operation: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
        /// How to fix it, as ` (do this)`, or empty.
        hint: &'static str,
    },

    /// The range of source ports has no free port left.
    #[error(
        "only {found} of {flows} flows found a free source port in {first}-{last}, the rest are in use: widen the range \
         or add source addresses"
    )]
    PortsExhausted {
        /// Flows that got a port.
        found: u32,
        /// Flows of the plan.
        flows: u32,
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },

    /// An error of one engine.
    #[error("{engine} engine")]
    Engine {
        /// `socket`, `kernel` or `xdp`.
        engine: &'static str,
        /// What failed, why, and how to fix it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The protocol could not learn from the targets what its requests need.
    #[error("cannot prepare a load of {protocol}")]
    Unprepared {
        /// The protocol's name.
        protocol: &'static str,
        /// Which target did not answer what.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The run ended early; what was measured until then is kept.
    #[error("the run ended after {:.1} s: {why}", .result.seconds)]
    Cut {
        /// What was measured.
        result: Box<LoadResult>,
        /// What happened, as a sentence.
        why: String,
    },

    /// The time of the start is in the past.
    #[error(
        "the start passed {:.1} s before the flows were open: choose a later --start-at, and compare this machine's clock with \
         the others'", .0.as_secs_f64()
    )]
    StartPassed(Duration),

    /// The run was stopped while it waited for its start.
    #[error("the run was stopped before its start")]
    StoppedBeforeStart,

    /// No reply came back.
    #[error(
        "{target} answered none of {sent} requests: check that a server is running there and reachable.{more}"
    )]
    NoAnswer {
        /// The targets.
        target: String,
        /// Requests sent.
        sent: u64,
        /// The last error of the kernel as a sentence, or empty.
        more: String,
    },
}

impl Error {
    pub(crate) fn system(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { operation: operation.into(), cause: source.into(), hint: "" }
    }

    pub(crate) fn connect(target: SocketAddr, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let hint = match source.kind() {
            // Without SO_BROADCAST, ip(7).
            _ if source.raw_os_error() == Some(libc::EACCES) => " (is it a broadcast address?)",
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => " (add a route to it)",
            io::ErrorKind::ConnectionRefused => " (start a server there)",
            io::ErrorKind::TimedOut => " (no answer from there)",
            io::ErrorKind::InvalidInput => " (are source and target on the same network?)",
            _ => "",
        };
        Self::System { operation: format!("connect a flow to {target}"), cause: source, hint }
    }
}
