//! What to send, from where, to which targets and when: decided before the first datagram, the same for every engine.
//!
//! ```text
//!   Plan ──check()──▶ transmit (an engine) ──▶ record ──▶ LoadResult
//!     └─ Schedule: intended times and flows, from the seed alone; sending late never moves them
//! ```
//! A [`Plan`] is plain data with public fields; [`Plan::check`] reports what is wrong with it. Engines call it first,
//! so an invalid plan never opens a socket.

mod ends;
mod error;
mod schedule;
mod segment;
mod sockets;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use error::PlanError;
pub use schedule::{Intended, Schedule};
pub use segment::{MAX_SEGMENTS, Segment};
pub use sockets::SocketOptions;

/// Largest UDP payload over IPv4, bytes: 65,535 less the IP and UDP headers.
pub const MAX_SIZE: usize = 65_507;
/// Largest buffer that can be requested, bytes: the kernel stores twice as much in an `int`.
pub const MAX_BUFFER: usize = (1 << 30) - 1;
/// Most flows of one machine: every flow is a socket. Two source addresses with all their ports.
pub const MAX_FLOWS: u32 = 131_072;
/// Most sending threads of a plan.
pub const MAX_THREADS: usize = 1024;
/// Highest rate of a plan, transactions per second; 10 GbE carries 14.9 million of the smallest frames.
pub const MAX_RATE: f64 = 1e9;
/// Lowest rate of a plan, transactions per second: one a day.
pub const MIN_RATE: f64 = 1.0 / 86_400.0;
/// Longest duration, warm-up or timeout of a plan: a week. Nanoseconds in 64 bits hold 584 years.
pub const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);
/// Most requests in flight at once, over all flows; each takes 16 bytes.
pub const MAX_PENDING: u64 = 16 << 20;

/// Datagrams or connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// UDP: one connected socket per flow.
    Udp,
    /// TCP: one connection per flow, messages of a fixed size.
    Tcp,
}

/// The traffic pattern of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Request and reply: transactions.
    Rr,
    /// One way, in order within a flow, batched with GSO where the kernel supports it.
    Stream,
    /// One way, one datagram per message, from all flows in turn. UDP only.
    Flood,
}

/// The random process of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Process {
    /// Equal intervals.
    Constant,
    /// Exponential intervals: many independent clients.
    Poisson,
    /// `len` transactions at once, then a pause that keeps the mean rate.
    Burst {
        /// Transactions per burst, 1 or more.
        len: u32,
    },
}

/// When transactions begin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Arrivals {
    /// A new request as soon as one is answered or given up. In one-way modes: as fast as the kernel accepts them.
    Closed {
        /// Requests in flight per flow, 1 or more.
        inflight: u32,
    },
    /// At a mean rate, independent of the server.
    Open {
        /// Transactions per second over all flows.
        rate: f64,
        /// Their arrival process.
        process: Process,
    },
    /// At a rate that grows (or falls) evenly from `from` to `to` over the duration; the warm-up runs at `from`.
    Ramp {
        /// Transactions per second at the beginning of the window.
        from: f64,
        /// Transactions per second at its end.
        to: f64,
    },
}

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// First port, not 0.
    pub first: u16,
    /// Last port, not below the first.
    pub last: u16,
}

impl PortRange {
    /// Number of ports in the range.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last).saturating_sub(u32::from(self.first)) + 1
    }
}

/// A whole run, as data. Flows, rates and requests in flight are those of all segments together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Datagrams or connections.
    pub transport: Transport,
    /// The traffic pattern of a flow.
    pub mode: Mode,
    /// Where requests go: flow `i` to target `i mod n`. All of one address family.
    pub targets: Vec<SocketAddr>,
    /// Number of flows: distinct pairs of source and target address and port.
    pub flows: u32,
    /// Source addresses of this machine; its own flow `i` takes source `(i / targets) mod n`. Empty: the kernel
    /// chooses.
    pub sources: Vec<IpAddr>,
    /// Number of the interface of those that are link-local; 0: that of the target. Not part of a plan for other
    /// machines, whose interfaces have other numbers, and which take no sources.
    #[serde(skip)]
    pub source_scope: u32,
    /// Source ports, of which segment `i` of `n` uses every `n`-th, beginning with the `i`-th; none: the kernel
    /// chooses.
    pub source_ports: Option<PortRange>,
    /// When transactions begin.
    pub arrivals: Arrivals,
    /// Payload of a request (for TCP: length of a message), bytes.
    pub size: usize,
    /// Length of the measured window.
    pub duration: Duration,
    /// Time at the same load before the window; not counted.
    pub warmup: Duration,
    /// A reply later than this after its request was sent is late.
    pub timeout: Duration,
    /// Seed of everything random: arrival times and payloads.
    pub seed: u64,
    /// Sending threads of this machine; its own flow `i` belongs to thread `i mod n`.
    pub threads: usize,
    /// Mode `rr` over kernel sockets: requests of one flow that are due together leave as few messages, which the
    /// device, or a receiver on this machine, separates (GSO). Each is a datagram of its own. It saves CPU time, but to
    /// a receiver behind a veth or the loopback the requests arrive as one packet, which costs it less than a network's
    /// would.
    pub gso: bool,
    /// Options of the flows' kernel sockets; the socket engine only.
    #[serde(default)]
    pub sockets: SocketOptions,
    /// The share of the plan that this machine carries out.
    pub segment: Segment,
    /// When the warm-up begins (`CLOCK_REALTIME`); none: as soon as the flows are open.
    pub start_at: Option<SystemTime>,
    /// How far this machine's clock is ahead of the one that `start_at` is by, nanoseconds.
    pub clock_ahead_ns: i64,
}

impl Plan {
    /// A plan with the defaults of the command line: one UDP flow, one request of 100 bytes in flight, for 5 seconds.
    #[must_use]
    pub fn new(target: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            mode: Mode::Rr,
            targets: vec![target],
            flows: 1,
            sources: Vec::new(),
            source_scope: 0,
            source_ports: None,
            arrivals: Arrivals::Closed { inflight: 1 },
            size: 100,
            duration: Duration::from_secs(5),
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(1),
            seed: 1,
            threads: 1,
            gso: false,
            sockets: SocketOptions::default(),
            segment: Segment::WHOLE,
            start_at: None,
            clock_ahead_ns: 0,
        }
    }

    /// Checks the plan against its limits.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_ends()?;
        self.check_arrivals()?;
        self.check_sockets()?;
        self.check_amounts()
    }

    /// The highest rate of the plan, transactions per second; none for a closed loop.
    #[must_use]
    pub fn peak_rate(&self) -> Option<f64> {
        match self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { rate, .. } => Some(rate),
            Arrivals::Ramp { from, to } => Some(from.max(to)),
        }
    }

    /// Number of flows of this machine.
    #[must_use]
    pub fn own_flows(&self) -> u32 {
        self.segment.flows(self.flows)
    }

    /// The number in the plan of this machine's own flow `own`.
    #[must_use]
    pub fn flow(&self, own: u32) -> u32 {
        self.segment.flow(own)
    }

    /// Parts of the plan: sending threads of all machines.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.threads * self.segment.of() as usize
    }

    /// The part that thread `thread` of this machine carries out.
    #[must_use]
    pub fn part(&self, thread: usize) -> usize {
        self.segment.part(thread)
    }

    /// The mean rate of this machine over the window, transactions per second; none for a closed loop.
    #[must_use]
    pub fn own_offered(&self) -> Option<f64> {
        self.offered().map(|rate| rate / f64::from(self.segment.of()))
    }

    /// The mean rate over the window, transactions per second; none for a closed loop.
    #[must_use]
    pub fn offered(&self) -> Option<f64> {
        match self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { rate, .. } => Some(rate),
            Arrivals::Ramp { from, to } => Some(f64::midpoint(from, to)),
        }
    }

    /// Target of flow `flow`.
    #[must_use]
    pub fn target(&self, flow: u32) -> SocketAddr {
        self.targets[flow as usize % self.targets.len()]
    }

    /// Source address of this machine's own flow `own`, if the plan names any.
    #[must_use]
    pub fn source(&self, own: u32) -> Option<IpAddr> {
        let n = self.sources.len();
        (n > 0).then(|| self.sources[(own as usize / self.targets.len()) % n])
    }

    /// Maximum number of unanswered requests of one flow at one moment: the size of the table of pending requests.
    /// Two timeouts of the peak rate (in the second one, replies are late, not lost), or the requests in flight and
    /// those given up before them.
    #[must_use]
    pub fn pending_per_flow(&self) -> u64 {
        let Some(rate) = self.peak_rate() else {
            let Arrivals::Closed { inflight } = self.arrivals else { return 0 };
            return u64::from(inflight) * 3;
        };
        let mean = rate / f64::from(self.flows.max(1)) * self.timeout.as_secs_f64() * 2.0;
        let burst = match self.arrivals {
            Arrivals::Open { process: Process::Burst { len }, .. } => u64::from(len),
            _ => 0,
        };
        // Six standard deviations of a Poisson count, and room for a run of transactions to one flow.
        (mean + 6.0 * mean.sqrt()).ceil() as u64 + burst + 64
    }

    /// Requests of one flow in flight: those of a closed loop, or what an open loop sends within the timeout.
    pub(crate) fn in_flight_per_flow(&self) -> u64 {
        match (self.arrivals, self.peak_rate()) {
            (Arrivals::Closed { inflight }, _) => u64::from(inflight),
            (_, Some(rate)) => {
                (rate / f64::from(self.flows.max(1)) * self.timeout.as_secs_f64()).ceil() as u64
            }
            (_, None) => 0,
        }
    }

    fn check_arrivals(&self) -> Result<(), PlanError> {
        match self.arrivals {
            Arrivals::Closed { inflight: 0 } => Err(PlanError::NoneInFlight),
            Arrivals::Closed { .. } => Ok(()),
            Arrivals::Open { rate, process } => {
                check_rate(rate)?;
                match process {
                    Process::Burst { len: 0 } => Err(PlanError::EmptyBurst),
                    Process::Burst { len } if len > 1_000_000 => Err(PlanError::LongBurst(len)),
                    _ => Ok(()),
                }
            }
            Arrivals::Ramp { from, to } => check_rate(from).and_then(|()| check_rate(to)),
        }
    }

    fn check_amounts(&self) -> Result<(), PlanError> {
        if self.size == 0 || self.size > MAX_SIZE {
            return Err(PlanError::Size(self.size));
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            return Err(PlanError::Threads(self.threads));
        }
        if self.threads > self.own_flows() as usize {
            return Err(PlanError::IdleThreads { threads: self.threads, flows: self.own_flows() });
        }
        for (what, time) in [("duration", self.duration), ("timeout", self.timeout)] {
            if time < Duration::from_millis(1) {
                return Err(PlanError::TooShort { what, time });
            }
        }
        for (what, time) in [("duration", self.duration), ("warm-up", self.warmup), ("timeout", self.timeout)]
        {
            if time > MAX_TIME {
                return Err(PlanError::TooLong { what, time });
            }
        }
        if self.transport == Transport::Tcp && self.mode == Mode::Flood {
            return Err(PlanError::TcpFlood);
        }
        let pending = self.pending_per_flow().saturating_mul(u64::from(self.own_flows()));
        if self.mode == Mode::Rr && pending > MAX_PENDING {
            return Err(PlanError::Pending { pending });
        }
        Ok(())
    }
}

fn check_rate(rate: f64) -> Result<(), PlanError> {
    if rate.is_finite() && (MIN_RATE..=MAX_RATE).contains(&rate) {
        Ok(())
    } else {
        Err(PlanError::Rate(rate))
    }
}

#[cfg(test)]
mod tests;
