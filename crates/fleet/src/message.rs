//! What caller and agents send each other, as JSON. A message may be lost, and may arrive twice: what must arrive is
//! sent again until it is answered, and means the same the second time.

use serde::{Deserialize, Serialize};
use udpath_load::plan::{Plan, Segment};
use udpath_load::result::{Latency, LoadResult};

/// Version of these messages, of the plan and of the result. Caller and agents must have the same: an agent of another
/// version may not know a field of the plan that its limits would have to judge. Both sides refuse the other with a
/// sentence; a program that sends no version has version 1.
pub(crate) const VERSION: u32 = 2;

const fn first_version() -> u32 {
    1
}

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

/// From the caller. Each of them shows the agent that has offered itself for this run that its caller is alive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// A load that will be announced to agents that offer themselves. Sent every second until there are enough.
    Announce {
        run: String,
        #[serde(default = "first_version")]
        version: u32,
        order: Box<Order>,
    },
    /// What is the time? Answered with `now` as it is.
    Clock { run: String, now: u64 },
    /// Carry out this segment. The start, nanoseconds since 1970, is by the caller's clock; the agent's is ahead of it
    /// by that much. Sent again until the agent says `Prepared` or anything later.
    Prepare { run: String, instance: u64, segment: Segment, start: u64, ahead: i64 },
    /// The caller is alive. Once per second from the announcement to the end.
    Alive { run: String },
    /// End the load now, and send the result; agents that only offered themselves are free.
    Stop { run: String },
    /// The result has arrived, or is not wanted.
    Received { run: String },
}

impl ToAgent {
    pub(crate) fn run(&self) -> &str {
        match self {
            Self::Announce { run, .. }
            | Self::Clock { run, .. }
            | Self::Prepare { run, .. }
            | Self::Alive { run }
            | Self::Stop { run }
            | Self::Received { run } => run,
        }
    }
}

/// From an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FromAgent {
    #[serde(default = "first_version")]
    pub(crate) version: u32,
    pub(crate) agent: String,
    /// Distinguishes agents of one name.
    pub(crate) instance: u64,
    pub(crate) said: Said,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    /// It can take part, and waits for this caller alone.
    Offer,
    /// It cannot, and why.
    Refused(String),
    /// Its clock when it received the question, and when it answered; nanoseconds since 1970.
    Clock { asked: u64, received: u64, answered: u64 },
    /// It has its segment: the answer to each `Prepare`.
    Prepared,
    /// It is alive.
    Beat(Beat),
    /// The load is over. Sent every second until it is received.
    Result(Box<LoadResult>),
    /// There is no result, and why. Sent every second until it is received.
    Failed(String),
}

/// The order that a message of a caller announces, as an agent reads it; none if it is another message, or none.
#[must_use]
pub fn announced(message: &[u8]) -> Option<Order> {
    match serde_json::from_slice(message).ok()? {
        ToAgent::Announce { order, .. } => Some(*order),
        _ => None,
    }
}

/// The result in a message of an agent, and the agent's name, as a caller reads it; none if it is another message, or
/// none.
#[must_use]
pub fn delivered(message: &[u8]) -> Option<(String, LoadResult)> {
    let FromAgent { agent, said, .. } = serde_json::from_slice(message).ok()?;
    match said {
        Said::Result(result) => Some((agent, *result)),
        _ => None,
    }
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

/// A sentence about a program of another version.
pub(crate) fn mismatch(theirs: u32) -> String {
    format!(
        "it speaks version {theirs} of the fleet's messages, the other side version {VERSION}: install the same udpath on all \
         machines"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in an order. Another name here is another version: raise VERSION.
    const FIELDS: &str = "arrivals clock_ahead_ns duration engine flows gso mode options plan protocol seed segment size \
                          sockets source_ports sources start_at targets threads timeout transport warmup";

    #[test]
    fn a_new_field_of_a_plan_is_a_new_version() {
        let plan = Plan::new("192.0.2.1:7".parse().unwrap());
        let order = Order { protocol: "echo".into(), engine: "socket".into(), options: Vec::new(), plan };
        let order = serde_json::to_value(order).unwrap();
        let mut names: Vec<&String> = order.as_object().unwrap().keys().collect();
        names.extend(order["plan"].as_object().unwrap().keys());
        names.sort();
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        assert_eq!((VERSION, names.join(" ").as_str()), (2, FIELDS));
    }

    /// Those from which the fuzzer begins.
    #[test]
    fn seeds_are_messages_of_either_end() {
        let seed = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/fleet_message");
            std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
        };
        assert_eq!(announced(&seed("made-up-announce.json")).unwrap().protocol, "echo");
        assert_eq!(delivered(&seed("made-up-result.json")).unwrap().0, "a1");
        assert!(announced(&seed("made-up-result.json")).is_none());
    }

    #[test]
    fn messages_without_a_version_are_those_of_the_first() {
        let old = r#"{"agent":"a","instance":7,"said":"Offer"}"#;
        assert_eq!(serde_json::from_str::<FromAgent>(old).unwrap().version, 1);
        // What the first version reads of a refusal.
        let refusal =
            FromAgent { version: VERSION, agent: "a".into(), instance: 7, said: Said::Refused(mismatch(1)) };
        let said = serde_json::to_value(refusal).unwrap();
        assert!(said["said"]["Refused"].as_str().unwrap().contains("version 1"), "{said}");
    }
}
