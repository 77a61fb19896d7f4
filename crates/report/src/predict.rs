//! Predictions as data: where a flow goes, which source ports go there, how many flows are distributed; and their JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;
use udpath_host::processes::Thread;
use udpath_steer::Flow;
use udpath_steer::predict::{Amount, Path, SourcePorts, Spread, Verification, Wanted};

use crate::json::to_pretty_json;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
pub const SCHEMA: &str = "udpath.predict/2";

/// A socket that a flow may reach, and its readers.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Receiver<'a> {
    /// Its place in bind order, from 0.
    pub socket: usize,
    /// Its address.
    pub local: SocketAddr,
    /// Its inode.
    pub inode: u32,
    /// The processes that have it open.
    pub processes: Vec<Reader<'a>>,
}

/// A process that has a socket open.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Reader<'a> {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// Its threads; the kernel does not report which of them reads.
    pub threads: &'a [Thread],
}

/// The frames of a capture that are no packets of a flow.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct NotCounted {
    /// All frames of the capture, those of the flows included.
    pub frames: u64,
    /// Those that were not counted, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Why the rest of the file was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
}

impl NotCounted {
    /// In words; none if all frames were counted.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let reasons = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
        let rest = self.rest.iter().map(|why| format!("what follows: {why}"));
        let parts: Vec<String> = reasons.chain(rest).collect();
        (!parts.is_empty()).then(|| format!("of {} frames, not counted: {}", self.frames, parts.join(", ")))
    }
}

/// How many flows are distributed over queues, CPUs and sockets.
#[derive(Debug)]
pub struct Spreads<'a> {
    /// Over receive queues.
    pub queue: Spread,
    /// Over CPUs, after RPS.
    pub cpu: Spread,
    /// Over sockets.
    pub socket: Spread,
    /// The sockets of the `socket` spread, if they are the machine's.
    pub receivers: Vec<Receiver<'a>>,
    /// Number of queues, if known.
    pub queues: Option<u32>,
    /// Number of CPUs, if known.
    pub cpus: Option<u32>,
}

/// A flow, its path, and the candidate sockets: the JSON of a predicted path.
#[derive(JsonSchema, Serialize)]
pub struct PathDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    path: &'a Path,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    receivers: &'a [Receiver<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<&'a Verification>,
}

/// A flow, what it is to reach, and its source ports: the JSON of a search for them.
#[derive(JsonSchema, Serialize)]
pub struct PortsDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    wanted: &'a Wanted,
    #[serde(flatten)]
    found: &'a SourcePorts,
}

/// How many flows reach each queue, CPU and socket: the JSON of many predictions.
#[derive(JsonSchema, Serialize)]
pub struct SpreadDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    total: Amount,
    spread: Steps<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    receivers: &'a [Receiver<'a>],
    /// Of a capture, if it has such frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_counted: Option<&'a NotCounted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<&'a Verification>,
}

/// The three steps of [`SpreadDocument`].
#[derive(JsonSchema, Serialize)]
struct Steps<'a> {
    queues: Option<u32>,
    queue: &'a Spread,
    cpus: Option<u32>,
    cpu: &'a Spread,
    socket: &'a Spread,
}

/// The path of a flow and the candidate sockets, one of which gets the datagram.
#[must_use]
pub fn path_json(
    flow: &Flow,
    path: &Path,
    receivers: &[Receiver<'_>],
    verification: Option<&Verification>,
) -> String {
    to_pretty_json(&PathDocument { schema: SCHEMA, flow, path, receivers, verification })
}

/// The source ports with which a flow reaches what is wanted.
#[must_use]
pub fn ports_json(flow: &Flow, wanted: &Wanted, found: &SourcePorts) -> String {
    // The source port is the result.
    let flow = &flow.with_source_port(0);
    to_pretty_json(&PortsDocument { schema: SCHEMA, flow, wanted, found })
}

/// The distribution of many flows.
#[must_use]
pub fn spreads_json(
    spreads: &Spreads<'_>,
    not_counted: Option<&NotCounted>,
    verification: Option<&Verification>,
) -> String {
    let Spreads { queue, cpu, socket, receivers, queues, cpus } = spreads;
    let spread = Steps { queues: *queues, queue, cpus: *cpus, cpu, socket };
    to_pretty_json(&SpreadDocument {
        schema: SCHEMA,
        total: queue.total(),
        spread,
        receivers,
        not_counted,
        verification,
    })
}
