//! Names of a plan's parts, on the command line and in results.

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use super::{Arrivals, Mode, Plan, Process, Transport};

impl Plan {
    /// The identity of the plan with requests of `protocol`: 16 hexadecimal digits, the same for all its segments.
    /// Source addresses, which are each machine's own, do not count.
    #[must_use]
    pub fn identity(&self, protocol: &str) -> String {
        let start = self.start_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let mut text = format!(
            "{protocol} {} {} {} {} {} {} {:?} {:?} {:?} {} {} {} {:?} {}",
            self.transport,
            self.mode,
            self.arrivals,
            self.flows,
            self.size,
            self.seed,
            self.duration,
            self.warmup,
            self.timeout,
            self.threads,
            self.gso,
            self.segment.of(),
            start,
            self.source_ports.map_or_else(String::new, |ports| format!("{}-{}", ports.first, ports.last)),
        );
        if !self.sockets.is_default() {
            // Writing to a string cannot fail.
            let _ = write!(text, " {:?}", self.sockets);
        }
        for target in &self.targets {
            let _ = write!(text, " {target}");
        }
        // FNV-1a: short and the same in all versions; nothing depends on its being hard to forge.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

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
