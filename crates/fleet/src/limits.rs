//! What an agent accepts: decided where it runs, not by who calls.
//!
//! [`Limits::check`] takes an order apart field by field, so that one that is added does not compile until it is judged
//! here.

mod allowed;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process, SocketOptions, Transport};

use crate::message::Order;
pub use allowed::Allowed;

/// How much of the highest rate may be sent at once, as the time in which that rate sends it. Longer: a burst that a
/// switch or a server cannot hold, although the mean rate is allowed. Shorter: patterns that real clients have are
/// refused.
const BURST_TIME: Duration = Duration::from_millis(10);
/// Most targets of an order: before a load begins, some protocols ask each of them in turn. More: an order that can
/// never begin keeps the agent busy for longer.
const MAX_TARGETS: usize = 256;
/// First source port that an order may name: those below are privileged, and trusted by some servers.
const FIRST_SOURCE_PORT: u16 = 1024;
/// Longest name of a congestion control, the kernel's `TCP_CA_NAME_MAX` with its NUL.
const MAX_CONGESTION: usize = 15;
/// Bytes of IPv4, IPv6 and of UDP headers.
const HEADERS: (usize, usize, usize) = (20, 40, 8);
/// Memory of a request in flight, of a flow (a socket and its entries), and of a sending thread (buffers, histograms),
/// bytes. Lower: a load that is accepted needs more than the limit. Higher: loads that would fit are refused.
const MEMORY: (u64, u64, u64) = (16, 8 << 10, 1 << 20);

/// The limits of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Where it may send to.
    pub targets: Vec<Allowed>,
    /// Transactions per second of this machine at most; none: any rate.
    pub rate: Option<f64>,
    /// Bits per second that this machine sends at most, IP headers included; none: any number.
    pub bits: Option<f64>,
    /// Longest warm-up and window together.
    pub time: Duration,
    /// Longest timeout of a request. Replies are awaited for twice as long after the window.
    pub timeout: Duration,
    /// Most flows of this machine.
    pub flows: u32,
    /// Most memory for flows, their buffers, requests in flight and threads, bytes.
    pub memory: u64,
    /// Options of protocols that an order may set; options can name files of this machine.
    pub options: Vec<String>,
}

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A target that is not allowed.
    #[error("target {0} is not allowed here (udpath agent --allow)")]
    Target(SocketAddr),
    /// More targets than any agent takes.
    #[error("{0} targets exceed the limit of {MAX_TARGETS}")]
    Targets(usize),
    /// A rate above the limit.
    #[error("{rate:.0} transactions/s exceed the limit of {most:.0} (udpath agent --max-rate)")]
    Rate {
        /// This machine's share of the plan's highest rate.
        rate: f64,
        /// The limit.
        most: f64,
    },
    /// Too much at once.
    #[error(
        "bursts of {len} transactions exceed the limit of {most}, 10 ms of the highest rate (udpath agent --max-rate, \
         --max-bandwidth)"
    )]
    Burst {
        /// Transactions that are sent at once.
        len: u32,
        /// The limit.
        most: u32,
    },
    /// Too many bits per second.
    #[error("{:.1} Mbit/s exceed the limit of {:.1} Mbit/s (udpath agent --max-bandwidth)", .bits / 1e6, .most / 1e6)]
    Bandwidth {
        /// Of this machine, at the plan's highest rate.
        bits: f64,
        /// The limit.
        most: f64,
    },
    /// A load without a rate.
    #[error("a closed loop has no rate, which is limited here (udpath agent --max-rate, --max-bandwidth)")]
    ClosedLoop,
    /// A load that takes too long.
    #[error("{} s exceed the limit of {} s (udpath agent --max-time)", .time.as_secs_f64(), .most.as_secs_f64())]
    Time {
        /// Warm-up and window.
        time: Duration,
        /// The limit.
        most: Duration,
    },
    /// Replies that are awaited for too long.
    #[error(
        "a timeout of {} s exceeds the limit of {} s (udpath agent --max-timeout)",
        .timeout.as_secs_f64(),
        .most.as_secs_f64()
    )]
    Timeout {
        /// The timeout.
        timeout: Duration,
        /// The limit.
        most: Duration,
    },
    /// Too many sockets.
    #[error("{flows} flows exceed the limit of {most} (udpath agent --max-flows)")]
    Flows {
        /// Of this machine.
        flows: u32,
        /// The limit.
        most: u32,
    },
    /// Too much memory.
    #[error("about {} MiB exceed the limit of {} MiB (udpath agent --max-memory)", .bytes >> 20, .most >> 20)]
    Memory {
        /// Estimated for this machine.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// Source addresses.
    #[error("an order names no source addresses: each agent has its own")]
    Sources,
    /// Privileged source ports.
    #[error("source ports from {0} are privileged: expected {FIRST_SOURCE_PORT} or more")]
    SourcePort(u16),
    /// Something that is not the name of a congestion control.
    #[error("invalid congestion control: expected a name such as bbr")]
    Congestion,
    /// An option that is not allowed.
    #[error("--{0} is not allowed here (udpath agent --allow-option)")]
    Option(String),
}

impl Limits {
    /// Checks an order; its plan's segment is the one that this machine is to carry out.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    pub fn check(&self, order: &Order) -> Result<(), Refusal> {
        // What the program makes of protocol, engine and options: `Worker::check`.
        let Order { protocol: _, engine: _, options, plan } = order;
        let Plan {
            targets,
            flows,
            sources,
            source_ports,
            arrivals,
            // Not sent.
            source_scope: _,
            // In `check_arrivals` and `memory`.
            size: _,
            threads: _,
            duration,
            warmup,
            timeout,
            sockets,
            segment,
            // `Worker::check`: which of them a protocol and an engine have.
            transport: _,
            mode: _,
            // No more traffic, time or memory whatever they are.
            seed: _,
            gso: _,
            // Set by the agent itself, within its longest lead.
            start_at: _,
            clock_ahead_ns: _,
        } = plan;
        // Buffers: in `memory`.
        let SocketOptions { congestion, send_buffer: _, receive_buffer: _ } = sockets;
        self.check_targets(targets)?;
        self.check_arrivals(plan, *arrivals)?;
        let time = warmup.saturating_add(*duration);
        if time > self.time {
            return Err(Refusal::Time { time, most: self.time });
        }
        if *timeout > self.timeout {
            return Err(Refusal::Timeout { timeout: *timeout, most: self.timeout });
        }
        let own_flows = segment.flows(*flows);
        if own_flows > self.flows {
            return Err(Refusal::Flows { flows: own_flows, most: self.flows });
        }
        let bytes = memory(plan);
        if bytes > self.memory {
            return Err(Refusal::Memory { bytes, most: self.memory });
        }
        if !sources.is_empty() {
            return Err(Refusal::Sources);
        }
        if let Some(ports) = source_ports.filter(|ports| ports.first < FIRST_SOURCE_PORT) {
            return Err(Refusal::SourcePort(ports.first));
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if congestion.as_ref().is_some_and(|name| name.len() > MAX_CONGESTION || !name.bytes().all(is_part)) {
            return Err(Refusal::Congestion);
        }
        match options.iter().find(|(name, _)| !self.options.contains(name)) {
            Some((name, _)) => Err(Refusal::Option(name.clone())),
            None => Ok(()),
        }
    }

    fn check_targets(&self, targets: &[SocketAddr]) -> Result<(), Refusal> {
        let refused = targets.iter().find(|target| !self.targets.iter().any(|allowed| allowed.has(**target)));
        match refused {
            Some(target) => Err(Refusal::Target(*target)),
            None if targets.len() > MAX_TARGETS => Err(Refusal::Targets(targets.len())),
            None => Ok(()),
        }
    }

    /// Rate, bandwidth, and how much of both is sent at once.
    fn check_arrivals(&self, plan: &Plan, arrivals: Arrivals) -> Result<(), Refusal> {
        let (own_rate, burst) = match arrivals {
            Arrivals::Closed { .. } if self.rate.is_some() || self.bits.is_some() => {
                return Err(Refusal::ClosedLoop);
            }
            Arrivals::Closed { .. } => return Ok(()),
            Arrivals::Ramp { from, to } => (from.max(to), 1),
            // Each machine takes whole bursts, in turn.
            Arrivals::Open { rate, process: Process::Burst { len } } => (rate, len),
            Arrivals::Open { rate, process: Process::Constant | Process::Poisson } => (rate, 1),
        };
        let own_rate = own_rate / f64::from(plan.segment.of());
        let packet = 8.0 * packet(plan) as f64;
        if let Some(most) = self.rate.filter(|most| own_rate > *most) {
            return Err(Refusal::Rate { rate: own_rate, most });
        }
        if let Some(most) = self.bits.filter(|most| own_rate * packet > *most) {
            return Err(Refusal::Bandwidth { bits: own_rate * packet, most });
        }
        // Transactions per second at most, by either limit.
        let most = self.rate.unwrap_or(f64::MAX).min(self.bits.map_or(f64::MAX, |bits| bits / packet));
        // A single transaction is no burst, however slow the limit; `as` saturates.
        let most = (most * BURST_TIME.as_secs_f64()).max(1.0) as u32;
        if burst > most { Err(Refusal::Burst { len: burst, most }) } else { Ok(()) }
    }
}

/// A request on its way, with its headers, bytes.
fn packet(plan: &Plan) -> usize {
    let (ipv4, ipv6, udp) = HEADERS;
    let ip = if plan.targets.iter().any(SocketAddr::is_ipv6) { ipv6 } else { ipv4 };
    plan.size.saturating_add(ip + udp)
}

/// About how much memory this machine's segment takes, bytes.
fn memory(plan: &Plan) -> u64 {
    let (per_request, per_flow, per_thread) = MEMORY;
    let SocketOptions { congestion: _, send_buffer, receive_buffer } = &plan.sockets;
    // The kernel takes twice what is asked for.
    let asked = |bytes: &Option<usize>| 2 * bytes.unwrap_or(0) as u64;
    let messages = match plan.transport {
        Transport::Udp => 0,
        // A message that is being sent, and one that is being received.
        Transport::Tcp => 2 * plan.size as u64,
    };
    let flow = plan.pending_per_flow().saturating_mul(per_request);
    let flow = [per_flow, asked(send_buffer), asked(receive_buffer), messages]
        .into_iter()
        .fold(flow, u64::saturating_add);
    let flows = flow.saturating_mul(u64::from(plan.own_flows()));
    flows.saturating_add(per_thread.saturating_mul(plan.threads as u64))
}
