//! Formats steps and spreads as text and JSON.

use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;
use udpath_report::{SpreadTable, spread_text};
use udpath_steer::Flow;
use udpath_steer::predict::{Amount, Path, SourcePorts, Spread, Step, Verification, Wanted};

use super::ends::{End, Reached, Spreads};
use crate::exit::Failure;
use crate::terminal;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
const SCHEMA: &str = "udpath.predict/2";
/// Most sockets and threads listed in text; the rest is a number. More would fill the screen.
const NAMED: usize = 8;

#[derive(Serialize)]
struct PathDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    path: &'a Path,
    /// The candidate sockets, one of which gets the datagram.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    receivers: &'a [End<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<&'a Verification>,
}

#[derive(Serialize)]
struct PortsDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    wanted: &'a Wanted,
    #[serde(flatten)]
    found: &'a SourcePorts,
}

#[derive(Serialize)]
struct SpreadDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    total: Amount,
    spread: SpreadSteps<'a>,
    /// For a machine: the sockets of the `socket` spread.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    receivers: &'a [End<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<&'a Verification>,
}

#[derive(Serialize)]
struct SpreadSteps<'a> {
    queues: Option<u32>,
    queue: &'a Spread,
    cpus: Option<u32>,
    cpu: &'a Spread,
    socket: &'a Spread,
}

/// One line per step: name, value, reason; then the sockets that the flow may reach, and their readers.
pub(super) fn text(flow: &Flow, path: &Path, reached: &Reached<'_>) -> String {
    let decimal = |step: Step| step.value.map(|value| value.to_string());
    let hash = path.hash.value.map(|hash| format!("0x{hash:08x}"));
    let rows = [
        ("hash", hash, path.hash),
        ("queue", decimal(path.queue), path.queue),
        ("IRQ", decimal(path.irq), path.irq),
        ("IRQ CPU", decimal(path.cpu), path.cpu),
        ("RPS CPU", decimal(path.rps), path.rps),
        ("socket", decimal(path.socket), path.socket),
    ];
    let mut text = format!("{:<8} {flow}\n", "flow");
    // Writing to a string cannot fail.
    for (name, value, step) in rows {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        let _ = writeln!(text, "{name:<8} {value:<10}  {}", step.why);
    }
    let reached: Vec<&End<'_>> = match path.socket.value {
        Some(socket) => reached.list.iter().filter(|end| end.socket == socket as usize).collect(),
        None => reached.list.iter().collect(),
    };
    for end in reached.iter().take(NAMED) {
        let _ = writeln!(text, "{:>8} {:<10}  {}", "", end.socket, name(end));
    }
    if reached.len() > NAMED {
        let _ = writeln!(text, "{:>8} and {} more", "", reached.len() - NAMED);
    }
    text
}

/// `0.0.0.0:53, nsd 812, threads 812 (on 0-1), 815 (on 3)`.
fn name(end: &End<'_>) -> String {
    let mut text = end.local.to_string();
    if end.processes.is_empty() {
        text += ", whose process is not to be seen";
    }
    for reader in &end.processes {
        let _ = write!(text, ", {} {}", reader.name, reader.pid);
        let threads: Vec<String> = reader
            .threads
            .iter()
            .take(NAMED)
            .map(|thread| match &thread.cpus {
                Some(cpus) => format!("{} (on {cpus})", thread.tid),
                None => thread.tid.to_string(),
            })
            .collect();
        let more = reader.threads.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let word = if reader.threads.len() == 1 { "thread" } else { "threads" };
        let _ = write!(text, ", {word} {}{more}", threads.join(", "));
    }
    text
}

/// One table per step: the distribution of flows and packets.
pub(super) fn spread(spreads: &Spreads<'_>) -> String {
    let style = terminal::style();
    let number = |place: u32| place.to_string();
    let queue = |place: u32| format!("rx-{place}");
    let socket = |place: u32| match spreads.ends.get(place as usize) {
        Some(end) => {
            let readers: Vec<String> =
                end.processes.iter().map(|reader| format!("{} {}", reader.name, reader.pid)).collect();
            format!("{} {}", end.local, readers.join(", "))
        }
        None => place.to_string(),
    };
    let total = spreads.queue.total();
    let mut text = format!("{} flows, {} packets\n", total.flows, total.packets);
    let tables = [
        SpreadTable { what: "queue", name: &queue, spread: &spreads.queue, of: spreads.queues },
        SpreadTable { what: "CPU", name: &number, spread: &spreads.cpu, of: spreads.cpus },
        SpreadTable { what: "socket", name: &socket, spread: &spreads.socket, of: None },
    ];
    for table in &tables {
        text.push('\n');
        text += &spread_text(table, &style);
    }
    text
}

pub(super) fn json_of_path(
    flow: &Flow,
    path: &Path,
    reached: &Reached<'_>,
    verification: Option<&Verification>,
) -> Result<String, Failure> {
    json(&PathDocument { schema: SCHEMA, flow, path, receivers: &reached.list, verification })
}

pub(super) fn json_of_ports(flow: &Flow, wanted: &Wanted, found: &SourcePorts) -> Result<String, Failure> {
    // The source port is the result.
    let flow = &flow.with_source_port(0);
    json(&PortsDocument { schema: SCHEMA, flow, wanted, found })
}

pub(super) fn json_of_spread(
    spreads: &Spreads<'_>,
    verification: Option<&Verification>,
) -> Result<String, Failure> {
    let spread = SpreadSteps {
        queues: spreads.queues,
        queue: &spreads.queue,
        cpus: spreads.cpus,
        cpu: &spreads.cpu,
        socket: &spreads.socket,
    };
    let total = spreads.queue.total();
    json(&SpreadDocument { schema: SCHEMA, total, spread, receivers: &spreads.ends, verification })
}

fn json(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).context("cannot write the prediction as JSON")?)
}
