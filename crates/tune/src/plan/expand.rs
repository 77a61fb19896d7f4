//! Requests for several settings at once: every queue of an interface, or everything that serves a port; and for the
//! cgroup of a unit.

use super::{PlanError, SettingRequest, limits, port};
use crate::settings::policy::{POLICY, parts};
use crate::settings::{NONE, Setting, Value};
use crate::{Machine, policy};

/// One request for each queue that a `*` matches, for everything that serves a port, and for the cgroup of a unit. If
/// the same plan sets `channels`, the queues are those that exist afterwards.
pub(super) fn expanded(
    request: SettingRequest,
    machine: &dyn Machine,
    channels: &[(Setting, Value)],
) -> Result<Vec<SettingRequest>, PlanError> {
    if let Some(requests) = port::expanded(machine, &request)? {
        return Ok(requests);
    }
    if let Some(request) = of_policy(&request, machine)? {
        return Ok(vec![request]);
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

/// A policy whose target is a unit, or a folder of the cgroup file system, with its cgroup instead; `None` for any
/// other request.
fn of_policy(request: &SettingRequest, machine: &dyn Machine) -> Result<Option<SettingRequest>, PlanError> {
    let Some(rest) = request.name.strip_prefix(POLICY) else { return Ok(None) };
    let unknown = |why| PlanError::Unserved { name: request.name.clone(), why };
    if let Ok(Setting::Spread { unit, .. }) = request.name.parse() {
        return match request.value.as_str() {
            // A drop-in may outlive its unit.
            NONE => Ok(None),
            _ => policy::cgroup_of(machine.source(), &unit).map(|_| None).map_err(unknown),
        };
    }
    // What is wrong with a name is reported where all are parsed.
    let Ok((whose, ..)) = parts(rest) else { return Ok(None) };
    if whose.starts_with('/') {
        let cgroup = policy::of_path(machine.source(), whose).map_err(unknown)?;
        let name = format!("{POLICY}{cgroup}{}", &rest[whose.len()..]);
        return Ok((cgroup != whose).then(|| SettingRequest { name, ..request.clone() }));
    }
    let cgroup = policy::cgroup_of(machine.source(), whose);
    let cgroup = cgroup.map_err(unknown)?;
    let name = format!("{POLICY}{cgroup}{}", &rest[whose.len()..]);
    let reason = match request.reason.as_str() {
        "" => format!("in effect at each start of {whose}"),
        reason => reason.to_owned(),
    };
    Ok(Some(SettingRequest { name, reason, ..request.clone() }))
}
