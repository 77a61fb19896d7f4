//! From requests to a plan: every detectable mistake is reported here, before anything is written.

use std::collections::BTreeSet;

use udpath_steer::CpuSet;

use super::{Change, Plan, PlanError, SettingRequest, ceiling, expand, limits};
use crate::machine::{Machine, Refusal};
use udpath_host::process::SocketSetting;

use crate::conflicts;
use crate::process::Chosen;
use crate::settings::{Access, Phase, Setting, Value, ValueKind, sysctl};
use udpath_host::Source;

/// Allows every setting of the plan that is not known to be harmless.
const INSECURE: &str = "insecure";

/// What the caller has explicitly allowed.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// Settings that may be changed even though that may lower security: what is not known to be harmless. `insecure`:
    /// all.
    pub insecure: BTreeSet<String>,
    /// Conflicts to ignore.
    pub ignore_conflicts: BTreeSet<String>,
}

impl Plan {
    /// Turns requests into a plan for the machine as it is now.
    ///
    /// # Errors
    /// What is wrong with the first invalid request.
    pub fn resolve(
        machine: &dyn Machine,
        requests: Vec<SettingRequest>,
        consent: &Consent,
    ) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        // With the requested name, which may match several settings.
        let mut wanted: Vec<(Setting, Value, SettingRequest, String)> = Vec::new();
        let asked = limits::channels(machine.source(), &requests)?;
        for request in requests {
            let asked_for = request.name.clone();
            for request in expand::expanded(request, machine, &asked)? {
                let setting: Setting = request.name.parse()?;
                let value = setting.as_kept(setting.value(&request.value)?);
                match wanted.iter().find(|(other, ..)| *other == setting) {
                    None => wanted.push((setting, value, request, asked_for.clone())),
                    Some((_, same, ..)) if *same == value => {}
                    Some((_, one, ..)) => {
                        let (one, other) = (one.to_string(), value.to_string());
                        return Err(PlanError::Twice { setting: setting.to_string(), one, other });
                    }
                }
            }
        }
        for request in ceiling::raised(machine, &wanted)? {
            let setting: Setting = request.name.parse()?;
            let value = setting.value(&request.value)?;
            let asked_for = request.name.clone();
            wanted.push((setting, value, request, asked_for));
        }
        let channels: BTreeSet<String> = wanted
            .iter()
            .filter(|(setting, ..)| setting.phase() == Phase::Channels)
            .filter_map(|(setting, ..)| setting.interface().map(str::to_owned))
            .collect();
        let all: Vec<(Setting, Value)> =
            wanted.iter().map(|(setting, value, ..)| (setting.clone(), value.clone())).collect();
        for (setting, to, request, asked_for) in wanted {
            within(machine.source(), &setting, &to)?;
            limits::within(machine.source(), &setting, &to, &all)?;
            let later = setting.phase() > Phase::Channels
                && setting.interface().is_some_and(|name| channels.contains(name));
            let from = match machine.read(&setting) {
                Ok(value) => Some(value),
                // The queue appears with the channels.
                Err(refusal) if later && refusal.is_gone() => None,
                Err(refusal) => return Err(refusal.into()),
            };
            if let (Some(found), Some(expected)) = (&from, &request.from) {
                let expected = setting.decode(Some(expected))?;
                if !found.is(&expected) {
                    let (found, expected) = (format!("{found:#}"), format!("{expected:#}"));
                    return Err(PlanError::Stale { setting: setting.to_string(), found, expected });
                }
            }
            if let Some(found) = from.as_ref().filter(|found| found.is(&to)) {
                // A link reset may lose it; then it must be set again.
                if !later && !is_incomplete(machine, &setting, found) {
                    plan.already.push((setting, found.clone()));
                    continue;
                }
            }
            if let Some(found) = from.as_ref().filter(|found| !(setting.row().extra.restorable)(found)) {
                let why = format!("its root qdisc is {found}, whose settings undo could not restore");
                return Err(Refusal::because("set", &setting, why).into());
            }
            if let Some(why) = from.as_ref().and_then(|found| sysctl::mismatch(&setting, found, &to)) {
                let (setting, value) = (setting.to_string(), to.to_string());
                return Err(PlanError::Beyond { setting, value, why });
            }
            let is_allowed =
                || [&setting.to_string(), &asked_for].iter().any(|name| consent.insecure.contains(*name));
            if let Some(why) = setting.lowers_security(from.as_ref(), &to)
                && !is_allowed()
                && !consent.insecure.contains(INSECURE)
            {
                return Err(PlanError::Insecure { setting: setting.to_string(), value: to.to_string(), why });
            }
            let mut reason = request.reason;
            if let Some(lost) = lost(machine, &setting, from.as_ref()) {
                if !is_allowed() {
                    return Err(PlanError::Destroys { setting: asked_for, value: to.to_string(), why: lost });
                }
                // The reasons in a plan's JSON already include it.
                if !reason.contains(&lost) {
                    reason = if reason.is_empty() { lost } else { format!("{lost}; {reason}") };
                }
            }
            let queue = matches!(setting.row().access, Access::QueueIrq) && !later;
            let irq = queue.then(|| machine.irq(&setting)).transpose()?;
            plan.changes.push(Change { setting, from, to, irq, reason });
        }
        conflicts::resolve(machine, &mut plan.changes, &consent.ignore_conflicts)?;
        limits::sort(machine.source(), &mut plan.changes);
        Ok(plan)
    }
}

/// A selection that lacks sockets which were bound after it was set: it is set again.
pub(crate) fn is_incomplete(machine: &dyn Machine, setting: &Setting, found: &Value) -> bool {
    let selection = matches!(setting, Setting::Socket { setting: SocketSetting::Selection, .. });
    selection && machine.broken(setting, found).is_some()
}

/// What the change destroys permanently. A selection that is not visible may be a program.
fn lost(machine: &dyn Machine, setting: &Setting, from: Option<&Value>) -> Option<String> {
    let selection = matches!(setting, Setting::Socket { setting: SocketSetting::Selection, .. });
    let unseen = || {
        from.filter(|from| selection && !from.is_reported())
            .map(|_| Chosen::Unseen("cannot read which CPUs this machine has".to_owned()))
            .and_then(|chosen| chosen.lost())
    };
    machine.lost(setting).or_else(unseen).map(|lost| lost.words)
}

/// Do the CPUs, or queues, exist?
fn within(source: &dyn Source, setting: &Setting, value: &Value) -> Result<(), PlanError> {
    let cpus = &match value {
        Value::Cpus(cpus) => cpus.clone(),
        Value::Cpu(cpu) => cpu.iter().copied().collect(),
        _ => return Ok(()),
    };
    let beyond =
        |why: String| PlanError::Beyond { setting: setting.to_string(), value: value.to_string(), why };
    if let (Setting::Interface(interface, _), ValueKind::Queues) = (setting, setting.row().value) {
        let names = source.names(&format!("/sys/class/net/{interface}/queues")).unwrap_or_default();
        let queues: CpuSet = names.iter().filter_map(|name| name.strip_prefix("rx-")?.parse().ok()).collect();
        let lack = cpus.difference(&queues);
        if lack.is_empty() || queues.is_empty() {
            return Ok(());
        }
        return Err(beyond(format!("{interface} has no receive queue {lack}, only {queues}")));
    }
    let set =
        |file: &str| source.text(&format!("/sys/devices/system/cpu/{file}")).ok()?.parse::<CpuSet>().ok();
    if let Some(possible) = set("possible") {
        let lack = cpus.difference(&possible);
        if !lack.is_empty() {
            return Err(beyond(format!("this machine has no CPU {lack}, only {possible}")));
        }
    }
    if let Some(online) = set("online") {
        let lack = cpus.difference(&online);
        if !lack.is_empty() {
            return Err(beyond(format!("CPU {lack} is offline; online CPUs: {online}")));
        }
    }
    let needs_one = setting.row().value == ValueKind::SomeCpus;
    if needs_one && cpus.is_empty() {
        return Err(beyond("keep at least one CPU".into()));
    }
    Ok(())
}
