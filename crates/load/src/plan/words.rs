//! Names of a plan's parts, on the command line and in results.

use std::fmt;

use super::{Arrivals, Mode, Process, Transport};

impl Transport {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Tcp];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Rr, Self::Stream, Self::Flood];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Stream => "stream",
            Self::Flood => "flood",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { inflight } => write!(f, "closed, {inflight} in flight per flow"),
            Self::Open { rate, process: Process::Constant } => write!(f, "constant, {rate}/s"),
            Self::Open { rate, process: Process::Poisson } => write!(f, "poisson, {rate}/s"),
            Self::Open { rate, process: Process::Burst { len } } => write!(f, "bursts of {len}, {rate}/s"),
            Self::Ramp { from, to } => write!(f, "ramp, {from}/s to {to}/s"),
        }
    }
}
