//! Why a run could not be carried out, or not to its end.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::plan::PlanError;
use crate::result::LoadResult;

/// Why a run ended without being whole. [`Error::Plan`] is the caller's fault (exit 2), the rest the machine's (exit 3).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// A system call of the set-up was refused.
    #[error("cannot {operation}: {cause}{hint}")]
    System {
        /// What was tried, with its object: `bind a flow to 10.0.0.1:4000`.
        operation: String,
        /// The kernel's answer.
        cause: io::Error,
        /// What would make it possible, as `; do this`, or nothing.
        hint: &'static str,
    },

    /// The range of source ports has no free port left.
    #[error(
        "only {found} of {flows} flows found a free source port in {first}-{last}: others use the rest; \
         widen the range or add source addresses"
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

    /// An engine's own reason.
    #[error("{engine} engine: {what}")]
    Engine {
        /// `socket`, `kernel` or `xdp`.
        engine: &'static str,
        /// What went wrong, why, and what would make it possible.
        what: String,
    },

    /// The run had to end early; what was measured until then is kept.
    #[error("the run ended after {:.1} s: {why}", .result.seconds)]
    Cut {
        /// What was measured.
        result: Box<LoadResult>,
        /// What happened, as a sentence.
        why: String,
    },

    /// Nothing at all came back.
    #[error(
        "{target} answered none of {sent} requests: is a server running there, and can it be reached?{more}"
    )]
    NoAnswer {
        /// The targets.
        target: String,
        /// Requests sent.
        sent: u64,
        /// What the kernel said on the way, or nothing.
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
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "; add a route to it",
            io::ErrorKind::ConnectionRefused => "; start a server there",
            io::ErrorKind::TimedOut => "; nothing answers there",
            io::ErrorKind::InvalidInput => "; source and target are not on the same network (loopback?)",
            _ => "",
        };
        Self::System { operation: format!("connect a flow to {target}"), cause: source, hint }
    }
}
