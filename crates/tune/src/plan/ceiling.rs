//! The limit of a policy's buffer: raised by the same plan, no further than the buffer needs.
//!
//! At bind the kernel clamps a buffer to twice `net.core.rmem_max`, or `wmem_max` (`sk_setsockopt` in
//! net/core/sock.c); a program that runs at the hook cannot exceed it.

use super::{PlanError, SettingRequest};
use crate::Machine;
use crate::policy;
use crate::settings::{Setting, Value};

/// The requests that raise the limits for the policies among `wanted`.
///
/// # Errors
/// The same plan sets a limit that is too low.
pub(super) fn raised(
    machine: &dyn Machine,
    wanted: &[(Setting, Value, SettingRequest, String)],
) -> Result<Vec<SettingRequest>, PlanError> {
    let mut raised: Vec<(&str, u64, String)> = Vec::new();
    for (setting, value, ..) in wanted {
        let (Setting::Policy { option, .. }, Value::Number(bytes)) = (setting, value) else { continue };
        let Some(path) = policy::ceiling(*option) else { continue };
        let limit = Setting::Sysctl(path.to_owned());
        let needs = bytes / 2;
        if let Some((_, asked, ..)) = wanted.iter().find(|(other, ..)| *other == limit) {
            if number(asked).is_some_and(|asked| asked < needs) {
                let why = format!("{limit}={asked} of the same plan is too low for it; it needs {needs}");
                return Err(PlanError::Beyond {
                    setting: setting.to_string(),
                    value: value.to_string(),
                    why,
                });
            }
            continue;
        }
        if number(&machine.read(&limit)?).is_some_and(|now| now >= needs) {
            continue;
        }
        match raised.iter_mut().find(|(known, ..)| *known == path) {
            Some((_, most, reason)) if *most < needs => (*most, *reason) = (needs, reason_of(setting)),
            Some(_) => {}
            None => raised.push((path, needs, reason_of(setting))),
        }
    }
    let request = |(path, needs, reason): (&str, u64, String)| SettingRequest {
        name: Setting::Sysctl(path.to_owned()).to_string(),
        value: needs.to_string(),
        from: None,
        reason,
    };
    Ok(raised.into_iter().map(request).collect())
}

fn reason_of(setting: &Setting) -> String {
    format!("the limit of {setting}")
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Words(text) => text.parse().ok(),
        _ => None,
    }
}
