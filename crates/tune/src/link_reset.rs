//! What a link reset does to other settings than the one whose change causes it.

use std::collections::BTreeSet;

use crate::journal::{JournalError, Kept, Line, Writing};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::settings::{Cost, Item, OnReset, Part, PartKind, Phase, Setting, Value, rows};

/// Records the values that link resets may lose, before the first reset.
pub(crate) fn keep(machine: &dyn Machine, writing: &mut Writing, plan: &Plan) -> Result<(), JournalError> {
    let mut seen = BTreeSet::new();
    for change in &plan.changes {
        for (setting, old) in kept_of(machine, &change.setting) {
            if seen.insert(setting.clone()) {
                record(machine, writing, &setting, &old)?;
            }
        }
    }
    writing.sync()
}

/// Records one of them.
pub(crate) fn record(
    machine: &dyn Machine,
    writing: &mut Writing,
    setting: &Setting,
    old: &Value,
) -> Result<(), JournalError> {
    let identity = machine.identity(setting).ok().flatten();
    writing.append(&Line::Kept(Kept {
        setting: setting.to_string(),
        identity,
        old: Setting::encode(old),
        moved: None,
    }))
}

/// Settings that a change of this one may lose in addition to it: everything held by the interface's driver and queues.
pub(crate) fn kept_of(machine: &dyn Machine, changed: &Setting) -> Vec<(Setting, Value)> {
    let (Some(interface), Cost::ResetsLink) = (changed.interface(), changed.cost()) else {
        return Vec::new();
    };
    let folder = format!("/sys/class/net/{interface}/queues");
    let names = machine.source().names(&folder).unwrap_or_default();
    let queues =
        |prefix: &'static str| names.iter().filter_map(move |name| name.strip_prefix(prefix)?.parse().ok());
    let items = rows().flat_map(|row| {
        let parts: Vec<Part> = match (row.on_reset, row.part) {
            (OnReset::Kept, _) => Vec::new(),
            (_, PartKind::RxQueue) => queues("rx-").map(Part::Queue).collect(),
            (_, PartKind::TxQueue) => queues("tx-").map(Part::Queue).collect(),
            (_, PartKind::Whole) => vec![Part::Whole],
            (OnReset::LostNames(names), _) | (_, PartKind::Named(names)) => {
                names.iter().map(|name| Part::Name((*name).to_owned())).collect()
            }
            (_, PartKind::Free(_)) => Vec::new(),
        };
        parts.into_iter().map(move |part| Item { row, part })
    });
    let settings = items.map(|item| Setting::Interface(interface.to_owned(), item));
    let others = settings.filter(|setting| setting != changed);
    // A value that cannot be read cannot be lost.
    others.filter_map(|setting| machine.read(&setting).ok().map(|value| (setting, value))).collect()
}

/// Does this change legitimately make the driver choose `lost` anew? A new number of channels requires new CPU and hash
/// spreading; every other value was set by someone.
pub(crate) fn chosen_by_driver(change: &Setting, lost: &Setting) -> bool {
    let channels = change.phase() == Phase::Channels;
    let spread = lost.row().on_reset == OnReset::Rechosen;
    channels && spread
}
