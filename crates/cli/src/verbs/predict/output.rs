//! From steps to text and JSON.

use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;
use udpath_steer::Flow;
use udpath_steer::predict::{Path, Ports, Step, Wanted};

use crate::exit::Failure;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
const SCHEMA: &str = "udpath.predict/1";

#[derive(Serialize)]
struct PathDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    path: &'a Path,
}

#[derive(Serialize)]
struct PortsDocument<'a> {
    schema: &'static str,
    flow: &'a Flow,
    wanted: &'a Wanted,
    #[serde(flatten)]
    found: &'a Ports,
}

/// A line per step: what, which, why.
pub(super) fn text(flow: &Flow, path: &Path) -> String {
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
    for (name, value, step) in rows {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<8} {value:<10}  {}", step.why);
    }
    text
}

pub(super) fn json_of_path(flow: &Flow, path: &Path) -> Result<String, Failure> {
    json(&PathDocument { schema: SCHEMA, flow, path })
}

pub(super) fn json_of_ports(flow: &Flow, wanted: &Wanted, found: &Ports) -> Result<String, Failure> {
    // The source port is what was asked for.
    let flow = &flow.with_source_port(0);
    json(&PortsDocument { schema: SCHEMA, flow, wanted, found })
}

fn json(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).context("cannot write the prediction as JSON")?)
}
