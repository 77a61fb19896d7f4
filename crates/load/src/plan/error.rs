//! What can be wrong with a plan, in sentences.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use super::{MAX_FLOWS, MAX_PENDING, MAX_RATE, MAX_SIZE, MAX_THREADS, PortRange};

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
