//! Errors of a plan.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use super::{MAX_BUFFER, MAX_FLOWS, MAX_PENDING, MAX_RATE, MAX_SIZE, MAX_THREADS, Mode, PortRange};

/// Why a plan is invalid. Each message states the problem and the fix.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No target was named.
    #[error("no target: name at least one as ADDR:PORT")]
    NoTarget,
    /// A target has port 0.
    #[error("target {0} has port 0: name the server's port")]
    PortZero(SocketAddr),
    /// A target is a wildcard address.
    #[error("target {0} is a wildcard address: name an address of the server")]
    Unspecified(SocketAddr),
    /// IPv4 and IPv6 mixed.
    #[error("{one} and {other} have different address families: use IPv4 or IPv6 for all")]
    Families {
        /// The first target's address.
        one: IpAddr,
        /// The address that differs.
        other: IpAddr,
    },
    /// A target that is not one machine.
    #[error("invalid target {0}: expected the address of one machine, not of a group")]
    Group(SocketAddr),
    /// A link-local target, and nothing says by which interface.
    #[error("{}", crate::ends::needs_interface(.0))]
    NoInterface(SocketAddr),
    /// The same of a source.
    #[error("source {0} is link-local: add its interface, such as {0}%eth0")]
    SourceWithoutInterface(IpAddr),
    /// A source that cannot send.
    #[error("invalid source {0}: name a unicast address of this machine")]
    Source(IpAddr),
    /// No flows, or too many.
    #[error("invalid number of flows {0}: expected 1 to {MAX_FLOWS}")]
    Flows(u32),
    /// Fewer flows than segments.
    #[error(
        "{flows} flow(s) cannot be shared by {segments} segments: use --flows {segments} or more, or fewer segments"
    )]
    EmptySegments {
        /// Flows of the plan.
        flows: u32,
        /// Segments it is divided into.
        segments: u32,
    },
    /// Receivers count the datagrams of all machines as one.
    #[error(
        "a plan of mode {0} cannot be divided: its receivers report the datagrams of all machines as one sum; use --mode rr"
    )]
    OneWaySegment(Mode),
    /// A port range that is empty or starts at 0.
    #[error("invalid source port range {}-{}: expected LOW-HIGH with 1 <= LOW <= HIGH", .0.first, .0.last)]
    PortRange(PortRange),
    /// More flows than source addresses x ports.
    #[error(
        "{flows} flows need {flows} source ports, but {}-{} has {} on {addresses} source address(es): \
         widen the range or add sources", ports.first, ports.last, ports.count()
    )]
    TooFewPorts {
        /// Requested flows.
        flows: u32,
        /// The range.
        ports: PortRange,
        /// Source addresses it can be used on.
        addresses: u32,
    },
    /// A closed loop with nothing in flight.
    #[error("--inflight must be at least 1")]
    NoneInFlight,
    /// A rate that is not a positive, sensible number.
    #[error("invalid rate {0}: expected a number above 0 and up to {MAX_RATE} per second")]
    Rate(f64),
    /// A burst of nothing.
    #[error("burst length must be at least 1")]
    EmptyBurst,
    /// A burst that no socket buffer holds.
    #[error("burst length {0} is too large: at most 1000000")]
    LongBurst(u32),
    /// Payload out of range.
    #[error("invalid payload size {0}: expected 1 to {MAX_SIZE} bytes")]
    Size(usize),
    /// Payload smaller than the protocol's minimum.
    #[error(
        "payload size {size} is too small for {protocol}: it needs at least {min} bytes to identify replies"
    )]
    TooSmall {
        /// Requested bytes.
        size: usize,
        /// The protocol.
        protocol: &'static str,
        /// Required bytes.
        min: usize,
    },
    /// Payload larger than the protocol's requests.
    #[error("payload size {size} is too large for {protocol}: its requests have at most {max} bytes")]
    TooLarge {
        /// Requested bytes.
        size: usize,
        /// The protocol.
        protocol: &'static str,
        /// Longest request in bytes.
        max: usize,
    },
    /// More requests of a flow in flight than the protocol has identifiers for.
    #[error(
        "{in_flight} requests may be in flight per flow, but {protocol} has {most} identifiers: use at least {flows} flows, or a \
         shorter timeout or lower rate"
    )]
    TooManyInFlight {
        /// The protocol.
        protocol: &'static str,
        /// Requests of the plan in flight per flow.
        in_flight: u64,
        /// Identifiers.
        most: u64,
        /// Flows that are enough for the plan.
        flows: u64,
    },
    /// No threads, or too many.
    #[error("invalid number of threads {0}: expected 1 to {MAX_THREADS}")]
    Threads(usize),
    /// Threads without a flow.
    #[error(
        "{threads} threads for {flows} flow(s): every thread needs its own flow; use more flows or fewer threads"
    )]
    IdleThreads {
        /// Requested threads.
        threads: usize,
        /// Available flows.
        flows: u32,
    },
    /// A time too short to measure anything.
    #[error("{what} of {time:?} is too short: at least 1 ms")]
    TooShort {
        /// Which time.
        what: &'static str,
        /// Its value.
        time: Duration,
    },
    /// A time above [`MAX_TIME`](super::MAX_TIME).
    #[error("{what} of {time:?} is too long: at most 7 days")]
    TooLong {
        /// Which time.
        what: &'static str,
        /// Its value.
        time: Duration,
    },
    /// The kernel engine cannot carry out this plan.
    #[error("the kernel engine {0}")]
    KernelEngine(&'static str),
    /// The kernel engine handles frames, not fragments.
    #[error(
        "payload size {size} does not fit one frame of {interface}: the kernel engine takes up to {most} bytes; use the \
         socket engine for more"
    )]
    TooLargeForFrame {
        /// Requested bytes.
        size: usize,
        /// The interface the requests leave by.
        interface: String,
        /// Bytes that fit.
        most: usize,
    },
    /// A congestion control for datagrams.
    #[error(
        "--congestion {0} needs TCP: UDP has no congestion control of the kernel; add --tcp, or remove it"
    )]
    CongestionOfUdp(String),
    /// A congestion control that the kernel does not have.
    #[error("unknown congestion control `{name}`: this kernel has {known}")]
    Congestion {
        /// The requested one.
        name: String,
        /// Those of `net.ipv4.tcp_available_congestion_control`.
        known: String,
    },
    /// A buffer that cannot be requested.
    #[error("invalid {what} buffer of {bytes} bytes: expected 1 to {MAX_BUFFER}")]
    Buffer {
        /// `send` or `receive`.
        what: &'static str,
        /// The requested size.
        bytes: usize,
    },
    /// TCP has no datagrams to flood with.
    #[error("TCP has no datagrams to flood with: use --mode stream, or UDP")]
    TcpFlood,
    /// The table of pending requests would be too large.
    #[error(
        "up to {pending} requests may be in flight (rate x twice the timeout, or flows x inflight), more than \
         {MAX_PENDING}: lower the rate, the timeout or --inflight"
    )]
    Pending {
        /// Requests that may be waiting.
        pending: u64,
    },
    /// A loss limit that is not a share.
    #[error("invalid loss limit {0}: expected a share from 0 % to below 100 %")]
    Loss(f64),
    /// A search for the highest rate from a ramp.
    #[error("a search for the highest rate starts at one rate, or is a closed loop: remove the ramp")]
    SearchOfRamp,
    /// The engine cannot carry out this plan.
    #[error("the {engine} engine cannot run this plan: {what}")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// The unsupported feature, and an engine that supports it.
        what: String,
    },
}
