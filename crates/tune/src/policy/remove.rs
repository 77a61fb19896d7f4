//! Which applies the removal of a policy undoes.

use udpath_bpf::{PolicyOption, PolicyTarget};

use super::ceiling;
use crate::journal::Entry;
use crate::settings::Setting;

/// The applies in effect that set policies of this target, and nothing else but what those need, latest first. A target
/// without a port includes those with one.
#[must_use]
pub fn applies_of(target: &PolicyTarget, entries: &[Entry]) -> Vec<u64> {
    let ours = |setting: &Setting| match setting {
        Setting::Policy { target: found, .. } => {
            found.cgroup == target.cgroup && (target.port.is_none() || found.port == target.port)
        }
        Setting::Spread { unit, port } => {
            is_of(unit, target) && (target.port.is_none() || *port == target.port)
        }
        _ => false,
    };
    let needed = |setting: &Setting| match setting {
        Setting::Sysctl(path) => PolicyOption::ALL.into_iter().any(|option| ceiling(option) == Some(path)),
        Setting::File(_) => true,
        setting => ours(setting),
    };
    let mut found: Vec<u64> = entries
        .iter()
        .filter(|entry| entry.stands())
        .filter(|entry| {
            let settings: Option<Vec<Setting>> =
                entry.intents.iter().map(|intent| Some(intent.parsed().ok()?.0)).collect();
            settings.is_some_and(|settings| settings.iter().any(ours) && settings.iter().all(needed))
        })
        .map(|entry| entry.id)
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

/// Is the target the unit's cgroup, which has its name?
pub(super) fn is_of(unit: &str, target: &PolicyTarget) -> bool {
    target.cgroup.rsplit('/').next() == Some(unit)
}
