//! What caller and agents send each other, as JSON.

use serde::{Deserialize, Serialize};
use udpath_load::plan::{Plan, Segment};
use udpath_load::result::{Latency, LoadResult};

/// A load as a caller orders it: the whole plan, without segment and start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Name of the protocol.
    pub protocol: String,
    /// Name of the engine.
    pub engine: String,
    /// Options of the protocol: names and values.
    pub options: Vec<(String, String)>,
    /// The plan.
    pub plan: Plan,
}

/// From the caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// A load that will be announced to agents that offer themselves.
    Announce { run: String, order: Box<Order> },
    /// What is the time? Answered with `now` as it is.
    Clock { run: String, now: u64 },
    /// Carry out this segment. The start, nanoseconds since 1970, is by the caller's clock; the agent's is ahead of it by that much.
    Prepare { run: String, instance: u64, segment: Segment, start: u64, ahead: i64 },
    /// End the load now, and send the result.
    Stop { run: String },
    /// The result has arrived, or is not wanted.
    Received { run: String },
}

/// From an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FromAgent {
    pub(crate) agent: String,
    /// Distinguishes agents of one name.
    pub(crate) instance: u64,
    pub(crate) said: Said,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    /// It can take part.
    Offer,
    /// It cannot, and why.
    Refused(String),
    /// Its clock when it received the question, and when it answered; nanoseconds since 1970.
    Clock { asked: u64, received: u64, answered: u64 },
    /// It is alive.
    Beat(Beat),
    /// The load is over.
    Result(Box<LoadResult>),
    /// There is no result, and why.
    Failed(String),
}

/// An agent's state, once per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Requests sent, answered and lost so far.
    pub sent: u64,
    /// See `sent`.
    pub ok: u64,
    /// See `sent`.
    pub lost: u64,
    /// Transactions per second since the beat before.
    pub tps: f64,
    /// Latency, intended to answered, of the last second; none if nothing was answered, or from the kernel engine.
    pub latency: Option<Latency>,
}
