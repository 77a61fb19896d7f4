//! What a reset of a link may lose beside what it sets.

use crate::journal::{JournalError, Kept, Line, Writing};
use crate::machine::Machine;
use crate::plan::{Change, Plan};
use crate::setting::{Cost, Item, Setting, Value};

/// Numbers of interrupt moderation that drivers forget with a reset.
const COALESCE_KEPT: [&str; 6] =
    ["rx-usecs", "tx-usecs", "rx-frames", "tx-frames", "adaptive-rx", "adaptive-tx"];

/// Writes down what resets of links may lose, before the first of them.
pub(crate) fn keep(machine: &dyn Machine, writing: &mut Writing, plan: &Plan) -> Result<(), JournalError> {
    let mut seen = std::collections::BTreeSet::new();
    for change in &plan.changes {
        for (setting, old) in kept_of(machine, change) {
            if seen.insert(setting.clone()) {
                let identity = machine.identity(&setting).ok().flatten();
                writing.append(&Line::Kept(Kept {
                    setting: setting.to_string(),
                    identity,
                    old: Setting::encode(&old),
                    moved: None,
                }))?;
            }
        }
    }
    writing.sync()
}

/// What the change may lose beside what it sets: whatever the driver and the queues of the interface hold.
pub(crate) fn kept_of(machine: &dyn Machine, change: &Change) -> Vec<(Setting, Value)> {
    let (Some(interface), Cost::ResetsLink) = (change.setting.interface(), change.setting.cost()) else {
        return Vec::new();
    };
    let folder = format!("/sys/class/net/{interface}/queues");
    let names = machine.source().names(&folder).unwrap_or_default();
    let queues = |prefix: &'static str| {
        names
            .iter()
            .filter_map(move |name| name.strip_prefix(prefix)?.parse::<u32>().ok())
            .collect::<Vec<_>>()
    };
    let mut items: Vec<Item> = Vec::new();
    for queue in queues("rx-") {
        items.extend([Item::QueueIrq(queue), Item::Rps(queue), Item::Rfs(queue)]);
    }
    for queue in queues("tx-") {
        items.extend([Item::Xps(queue), Item::XpsRxqs(queue)]);
    }
    items.extend([Item::Threaded, Item::DeferHardIrqs, Item::GroFlushTimeout]);
    items.extend([Item::RssKey, Item::RssFunction, Item::Hash("udp4"), Item::Hash("udp6"), Item::RssTable]);
    items.extend(COALESCE_KEPT.map(Item::Coalesce));
    let settings = items.into_iter().map(|item| Setting::Interface(interface.to_owned(), item));
    let others = settings.filter(|setting| *setting != change.setting);
    // What cannot be read cannot be lost.
    others.filter_map(|setting| machine.read(&setting).ok().map(|value| (setting, value))).collect()
}
