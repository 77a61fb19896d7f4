//! Requests for several settings at once: every queue of an interface, or everything that serves a port.

use super::{PlanError, SettingRequest, limits, port};
use crate::Machine;
use crate::settings::{Setting, Value};

/// One request for each queue that a `*` matches, and for everything that serves a port. If the same plan sets
/// `channels`, the queues are those that exist afterwards.
pub(super) fn expanded(
    request: SettingRequest,
    machine: &dyn Machine,
    channels: &[(Setting, Value)],
) -> Result<Vec<SettingRequest>, PlanError> {
    if let Some(requests) = port::expanded(machine, &request)? {
        return Ok(requests);
    }
    let Some(stem) = request.name.strip_suffix("-*") else { return Ok(vec![request]) };
    let nothing = |why: String| PlanError::Nothing { name: request.name.clone(), why };
    let parts = stem.split_once(':').zip(stem.rsplit_once('/'));
    let (interface, direction) = match parts {
        Some(((interface, _), (_, "rx"))) => (interface, "rx"),
        Some(((interface, _), (_, "tx"))) => (interface, "tx"),
        _ => return Err(nothing("write it like eth0:rps/rx-*".into())),
    };
    let one =
        |queue: &dyn std::fmt::Display| SettingRequest { name: format!("{stem}-{queue}"), ..request.clone() };
    if let Some(queues) = limits::changed(machine.source(), interface, direction, channels) {
        return Ok((0..queues).map(|queue| one(&queue)).collect());
    }
    let folder = format!("/sys/class/net/{interface}/queues");
    let names = machine.source().names(&folder).map_err(|why| nothing(format!("{folder}: {why}")))?;
    let prefix = format!("{direction}-");
    let queues: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
    if queues.is_empty() {
        return Err(nothing(format!("{folder} has no {direction} queue")));
    }
    Ok(queues.iter().map(|queue| one(queue)).collect())
}
