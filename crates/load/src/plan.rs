//! What to send, from where, to whom and when: decided before the first datagram, the same for every engine.
//!
//! ```text
//!   Plan ──check()──▶ transmit (an engine) ──▶ record ──▶ LoadResult
//!     └─ Schedule: intended times and flows, from the seed alone; sending late never moves them
//! ```
//! A [`Plan`] is plain data with public fields; [`Plan::check`] tells in one sentence what is wrong with it.
//! Engines call it first, so a plan that makes no sense never opens a socket.

mod schedule;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

pub use schedule::{Intended, Schedule};

/// Largest UDP payload over IPv4, bytes: 65,535 less the IP and UDP headers.
pub const MAX_SIZE: usize = 65_507;
/// Most flows of a plan: every flow is a socket. Two source addresses with all their ports.
pub const MAX_FLOWS: u32 = 131_072;
/// Most sending threads of a plan.
pub const MAX_THREADS: usize = 1024;
/// Highest rate of a plan, transactions per second; 10 GbE carries 14.9 million of the smallest frames.
pub const MAX_RATE: f64 = 1e9;
/// Lowest rate of a plan, transactions per second: one a day.
pub const MIN_RATE: f64 = 1.0 / 86_400.0;
/// Longest duration, warm-up or timeout of a plan: a week. Nanoseconds in 64 bits hold 584 years.
pub const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);
/// Most requests whose fate may be open at once, over all flows; each takes 16 bytes when it comes to that.
pub const MAX_PENDING: u64 = 16 << 20;

/// Datagrams or connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP: one connected socket per flow.
    Udp,
    /// TCP: one connection per flow, messages of a fixed size.
    Tcp,
}

/// What a flow does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Request and reply: transactions.
    Rr,
    /// One way, in order within a flow, several datagrams per system call where the kernel can split them (GSO).
    Stream,
    /// One way, every datagram on its own through the stack, in turn from all flows. UDP only.
    Flood,
}

/// The random process of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// A new request as soon as one is answered or given up. In one-way modes: as fast as the kernel takes them.
    Closed {
        /// Requests in flight per flow, 1 or more.
        inflight: u32,
    },
    /// At a mean rate, whatever the server does.
    Open {
        /// Transactions per second over all flows.
        rate: f64,
        /// How they are spread.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// First port, not 0.
    pub first: u16,
    /// Last port, not below the first.
    pub last: u16,
}

impl PortRange {
    /// How many ports it holds.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last).saturating_sub(u32::from(self.first)) + 1
    }
}

/// A whole run, as data.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Datagrams or connections.
    pub transport: Transport,
    /// What a flow does.
    pub mode: Mode,
    /// Where requests go: flow `i` to target `i mod n`. All of one address family.
    pub targets: Vec<SocketAddr>,
    /// Number of flows: distinct pairs of source and target address and port.
    pub flows: u32,
    /// Source addresses; flow `i` takes source `(i / targets) mod n`. Empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Source ports; none: the kernel chooses.
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
    /// Sending threads; flow `i` belongs to thread `i mod n`.
    pub threads: usize,
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
            source_ports: None,
            arrivals: Arrivals::Closed { inflight: 1 },
            size: 100,
            duration: Duration::from_secs(5),
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(1),
            seed: 1,
            threads: 1,
        }
    }

    /// Holds the plan to its limits.
    ///
    /// # Errors
    /// The first thing that makes no sense, as a sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_ends()?;
        self.check_arrivals()?;
        self.check_amounts()
    }

    /// The rate asked for at the most, transactions per second; none for a closed loop.
    #[must_use]
    pub fn peak_rate(&self) -> Option<f64> {
        match self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { rate, .. } => Some(rate),
            Arrivals::Ramp { from, to } => Some(from.max(to)),
        }
    }

    /// The mean rate asked for over the window, transactions per second; none for a closed loop.
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

    /// Source address of flow `flow`, if the plan names any.
    #[must_use]
    pub fn source(&self, flow: u32) -> Option<IpAddr> {
        let n = self.sources.len();
        (n > 0).then(|| self.sources[(flow as usize / self.targets.len()) % n])
    }

    /// Most requests of one flow whose fate is open at one moment: what the table of pending requests must hold.
    /// Two timeouts of the peak rate (in the second, late replies are still told from lost ones), or the requests in
    /// flight and those given up before them.
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

    fn check_ends(&self) -> Result<(), PlanError> {
        let Some(first) = self.targets.first() else { return Err(PlanError::NoTarget) };
        for target in &self.targets {
            if target.port() == 0 {
                return Err(PlanError::PortZero(*target));
            }
            if target.ip().is_unspecified() {
                return Err(PlanError::Unspecified(*target));
            }
            if target.is_ipv4() != first.is_ipv4() {
                return Err(PlanError::Families { one: first.ip(), other: target.ip() });
            }
        }
        for source in &self.sources {
            if source.is_ipv4() != first.is_ipv4() {
                return Err(PlanError::Families { one: first.ip(), other: *source });
            }
            if source.is_unspecified() || source.is_multicast() {
                return Err(PlanError::Source(*source));
            }
        }
        if self.flows == 0 || self.flows > MAX_FLOWS {
            return Err(PlanError::Flows(self.flows));
        }
        if let Some(ports) = self.source_ports {
            if ports.first == 0 || ports.last < ports.first {
                return Err(PlanError::PortRange(ports));
            }
            let addresses = self.sources.len().max(1) as u32;
            let have = ports.count() * addresses;
            if have < self.flows {
                return Err(PlanError::TooFewPorts { flows: self.flows, ports, addresses });
            }
        }
        Ok(())
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
        if self.threads > self.flows as usize {
            return Err(PlanError::IdleThreads { threads: self.threads, flows: self.flows });
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
        let pending = self.pending_per_flow().saturating_mul(u64::from(self.flows));
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

/// Why a plan makes no sense. Each is a whole sentence: what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No target was named.
    #[error("no target: name at least one as ADDR:PORT")]
    NoTarget,
    /// A target has port 0.
    #[error("target {0} has port 0, which nothing can listen on: name the server's port")]
    PortZero(SocketAddr),
    /// A target is a wildcard address.
    #[error("target {0} is a wildcard address: name an address of the server")]
    Unspecified(SocketAddr),
    /// IPv4 and IPv6 mixed.
    #[error("{one} and {other} are of different address families: use IPv4 or IPv6 for all")]
    Families {
        /// The first target's address.
        one: IpAddr,
        /// The address that differs.
        other: IpAddr,
    },
    /// A source that nothing can be sent from.
    #[error("source {0} is not an address that can send: name a unicast address of this machine")]
    Source(IpAddr),
    /// Zero flows, or absurdly many.
    #[error("{0} flows: 1 to {MAX_FLOWS} are possible")]
    Flows(u32),
    /// A port range that is empty or starts at 0.
    #[error("source ports {}-{} are no range: the first must be 1 or more and not above the last", .0.first, .0.last)]
    PortRange(PortRange),
    /// More flows than source addresses x ports.
    #[error(
        "{flows} flows need {flows} source ports, but {}-{} holds {} on {addresses} source address(es): \
         widen the range or add sources", ports.first, ports.last, ports.count()
    )]
    TooFewPorts {
        /// Flows asked for.
        flows: u32,
        /// The range.
        ports: PortRange,
        /// Source addresses it can be used on.
        addresses: u32,
    },
    /// A closed loop with nothing in flight.
    #[error("0 requests in flight send nothing: 1 or more per flow")]
    NoneInFlight,
    /// A rate that is not a positive, sensible number.
    #[error("a rate of {0} per second is not possible: give a number above 0 and up to {MAX_RATE}")]
    Rate(f64),
    /// A burst of nothing.
    #[error("a burst of 0 transactions sends nothing: 1 or more")]
    EmptyBurst,
    /// A burst that no socket buffer holds.
    #[error("a burst of {0} transactions is too long: up to 1000000")]
    LongBurst(u32),
    /// Payload out of range.
    #[error("a payload of {0} bytes is not possible: 1 to {MAX_SIZE} bytes fit a UDP datagram")]
    Size(usize),
    /// Payload shorter than what the protocol needs.
    #[error(
        "a payload of {size} bytes is too small for {protocol}: it needs {min} bytes to tell replies apart"
    )]
    TooSmall {
        /// Bytes asked for.
        size: usize,
        /// The protocol.
        protocol: &'static str,
        /// Bytes it needs.
        min: usize,
    },
    /// Zero threads, or absurdly many.
    #[error("{0} threads: 1 to {MAX_THREADS} are possible")]
    Threads(usize),
    /// Threads without a flow.
    #[error(
        "{threads} threads for {flows} flow(s): every thread needs a flow of its own; use more flows or fewer threads"
    )]
    IdleThreads {
        /// Threads asked for.
        threads: usize,
        /// Flows there are.
        flows: u32,
    },
    /// A time too short to measure anything.
    #[error("a {what} of {time:?} is too short: 1 ms or more")]
    TooShort {
        /// Which time.
        what: &'static str,
        /// Its value.
        time: Duration,
    },
    /// A time that overflows or lasts for ever.
    #[error("a {what} of {time:?} is too long: up to 7 days")]
    TooLong {
        /// Which time.
        what: &'static str,
        /// Its value.
        time: Duration,
    },
    /// Something the engine in the kernel does not do.
    #[error("the kernel engine {0}")]
    KernelEngine(&'static str),
    /// The engine in the kernel sees frames, not fragments.
    #[error(
        "a payload of {size} bytes does not fit one frame of {interface}: the kernel engine takes up to {most} bytes; \
         use the socket engine for more"
    )]
    TooLargeForFrame {
        /// Bytes asked for.
        size: usize,
        /// The interface the requests leave by.
        interface: String,
        /// Bytes that fit.
        most: usize,
    },
    /// TCP has no datagrams to flood with.
    #[error("flood sends single datagrams, which TCP does not have: use stream, or UDP")]
    TcpFlood,
    /// The table of pending requests would be too large.
    #[error(
        "{pending} requests may be waiting at once (rate x twice the timeout, or flows x in flight), more than \
         {MAX_PENDING}: lower the rate, the timeout or the number in flight"
    )]
    Pending {
        /// Requests that may be waiting.
        pending: u64,
    },
    /// A limit of loss that is no share.
    #[error("a loss of {0} is no limit: give a share from 0 % to below 100 %")]
    Loss(f64),
    /// A search for the highest rate without a rate to begin at.
    #[error("a search for the highest rate needs an open loop: give the rate to begin at")]
    SearchWithoutRate,
    /// The engine cannot carry out this plan.
    #[error("engine {engine} cannot do this: {what}")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// What it cannot do, and what would.
        what: String,
    },
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rr => "rr",
            Self::Stream => "stream",
            Self::Flood => "flood",
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("192.0.2.1:7".parse().unwrap())
    }

    #[test]
    fn the_default_plan_is_fine() {
        assert_eq!(plan().check(), Ok(()));
    }

    /// Every way to be wrong, with a part of the sentence that must name it.
    #[test]
    fn each_fault_is_named() {
        type Spoil = fn(&mut Plan);
        let faults: &[(Spoil, &str)] = &[
            (|p| p.targets.clear(), "no target"),
            (|p| p.targets[0].set_port(0), "port 0"),
            (|p| p.targets = vec!["0.0.0.0:7".parse().unwrap()], "wildcard"),
            (|p| p.targets.push("[2001:db8::1]:7".parse().unwrap()), "families"),
            (|p| p.sources.push("2001:db8::1".parse().unwrap()), "families"),
            (|p| p.sources.push("224.0.0.1".parse().unwrap()), "unicast"),
            (|p| p.flows = 0, "0 flows"),
            (|p| p.flows = MAX_FLOWS + 1, "131073 flows"),
            (|p| p.source_ports = Some(PortRange { first: 0, last: 9 }), "no range"),
            (|p| p.source_ports = Some(PortRange { first: 9, last: 8 }), "no range"),
            (
                |p| (p.flows, p.source_ports) = (3, Some(PortRange { first: 5000, last: 5001 })),
                "3 flows need 3 source ports",
            ),
            (|p| p.arrivals = Arrivals::Closed { inflight: 0 }, "in flight"),
            (|p| p.arrivals = Arrivals::Open { rate: 0.0, process: Process::Poisson }, "rate of 0"),
            (|p| p.arrivals = Arrivals::Open { rate: -1.0, process: Process::Poisson }, "rate of -1"),
            (|p| p.arrivals = Arrivals::Open { rate: f64::NAN, process: Process::Poisson }, "rate of NaN"),
            (
                |p| p.arrivals = Arrivals::Open { rate: f64::INFINITY, process: Process::Constant },
                "rate of inf",
            ),
            (|p| p.arrivals = Arrivals::Open { rate: 1.0, process: Process::Burst { len: 0 } }, "burst of 0"),
            (|p| p.arrivals = Arrivals::Ramp { from: 1.0, to: 2e9 }, "rate of 2000000000"),
            (|p| p.size = 0, "payload of 0"),
            (|p| p.size = 65_508, "payload of 65508"),
            (|p| p.threads = 0, "0 threads"),
            (|p| p.threads = 2, "2 threads for 1 flow"),
            (|p| p.duration = Duration::ZERO, "duration of 0ns is too short"),
            (|p| p.duration = Duration::MAX, "duration"),
            (|p| p.timeout = Duration::ZERO, "timeout of 0ns is too short"),
            (|p| p.warmup = Duration::MAX, "warm-up"),
            (|p| (p.transport, p.mode) = (Transport::Tcp, Mode::Flood), "TCP"),
            (
                |p| {
                    p.arrivals = Arrivals::Open { rate: 1e9, process: Process::Constant };
                    p.timeout = Duration::from_secs(3600);
                },
                "may be waiting",
            ),
            (|p| p.arrivals = Arrivals::Closed { inflight: u32::MAX }, "may be waiting"),
        ];
        for (spoil, expected) in faults {
            let mut p = plan();
            spoil(&mut p);
            let sentence = p.check().expect_err(expected).to_string();
            assert!(sentence.contains(expected), "{sentence:?} should contain {expected:?}");
        }
    }

    #[test]
    fn flows_cover_all_pairs_of_source_and_target() {
        let mut p = plan();
        p.targets = (1..=3).map(|i| SocketAddr::new(IpAddr::from([10, 0, 0, i]), 7)).collect();
        p.sources = (1..=2).map(|i| IpAddr::from([10, 0, 1, i])).collect();
        p.flows = 6;
        let pairs: std::collections::HashSet<_> = (0..6).map(|f| (p.target(f), p.source(f))).collect();
        assert_eq!(pairs.len(), 6);
    }
}
