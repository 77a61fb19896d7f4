//! The policies of this machine with their effect, for `udpath policy`.

use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::Serialize;
use udpath_bpf::{PolicyOption, PolicyTarget};
use udpath_host::process::{Selection, SocketValue};
use udpath_host::{Source, UnitName};

use super::effect::{Effect, effect};
use super::remove::is_of;
use super::{cgroup_of, list, others, spread};
use crate::Machine;
use crate::settings::policy::SPREAD;
use crate::settings::{Setting, Value};

/// Version of the JSON form. Incremented when a field is removed or changes meaning, but not when a field is added.
pub const SCHEMA: &str = "udpath.policy/1";

/// Policies, and who else is at their hooks.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PolicyReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What they set, by cgroup and port.
    pub options: Vec<Reported>,
    /// Programs of others that run for the same sockets.
    pub others: Vec<Other>,
}

/// One option of a policy.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Reported {
    /// The setting's name.
    pub setting: String,
    /// The cgroup.
    pub cgroup: String,
    /// The port, if it is for one.
    pub port: Option<u16>,
    /// The option.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// Whether it has its effect.
    pub state: EffectState,
    /// Why it does not, or does only later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether a policy has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectState {
    /// On all sockets that it is about, as far as they are seen.
    InEffect,
    /// With the next bind.
    Later,
    /// Something prevents it.
    Broken,
}

/// A program of others.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Other {
    /// Its hook: `bind4`.
    pub hook: &'static str,
    /// Its ID, as in `bpftool prog show id N`.
    pub id: u32,
    /// Its name.
    pub name: String,
}

impl PolicyReport {
    /// All policies; with `of`, those of one cgroup, and if `of` has a port, of that port.
    ///
    /// # Errors
    /// This machine has no cgroup v2 or no BPF file system, or permission is denied.
    pub fn of(machine: &dyn Machine, of: Option<&PolicyTarget>) -> Result<Self, String> {
        let source = machine.source();
        let wanted = |target: &PolicyTarget| {
            of.is_none_or(|of| of.cgroup == target.cgroup && (of.port.is_none() || of.port == target.port))
        };
        let mut options = Vec::new();
        for (target, policy) in list(source)?.into_iter().filter(|(target, _)| wanted(target)) {
            for option in PolicyOption::ALL {
                options.extend(policy.get(option).map(|value| reported(source, &target, option, value)));
            }
        }
        for (unit, port, rule) in spread::list(source) {
            let wanted = of.is_none_or(|of| is_of(&unit, of) && (of.port.is_none() || of.port == port));
            if wanted {
                options.push(spread_of(machine, unit, port, rule));
            }
        }
        let others = others(source, of.map_or("/", |of| &of.cgroup))?;
        let others = others.into_iter().map(|program| Other {
            hook: program.hook,
            id: program.id,
            name: program.name,
        });
        Ok(Self { schema: SCHEMA, options, others: others.collect() })
    }
}

fn spread_of(machine: &dyn Machine, unit: UnitName, port: Option<NonZeroU16>, rule: Selection) -> Reported {
    let value = Value::of_socket(SocketValue::Selection(rule));
    let note = spread::pending(machine, &unit, port, &value);
    Reported {
        setting: Setting::Spread { unit: unit.clone(), port }.to_string(),
        cgroup: cgroup_of(machine.source(), &unit).unwrap_or_else(|_| unit.to_string()),
        port: port.map(Into::into),
        option: SPREAD,
        value: value.to_string(),
        state: if note.is_some() { EffectState::Later } else { EffectState::InEffect },
        note,
    }
}

fn reported(source: &dyn Source, target: &PolicyTarget, option: PolicyOption, value: u32) -> Reported {
    let (state, note) = match effect(source, target, option, value) {
        Effect::Full => (EffectState::InEffect, None),
        Effect::Unseen(why) => (EffectState::InEffect, Some(why)),
        Effect::Later(why) => (EffectState::Later, Some(why)),
        Effect::Broken(why) => (EffectState::Broken, Some(why)),
    };
    Reported {
        setting: Setting::Policy { target: target.clone(), option }.to_string(),
        cgroup: target.cgroup.clone(),
        port: target.port.map(Into::into),
        option: option.name(),
        value: Value::of_policy(option, Some(value)).to_string(),
        state,
        note,
    }
}
