//! Do two applies change the same setting? Aliases count: an IRQ by number or by queue, an interface by its old or new
//! name, a reuseport group by any of its members.

use crate::journal::{Entry, Intent};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::settings::{Access, Setting};

/// The first setting of a plan that an entry has changed. `here`: the entry was made in this network namespace.
pub(super) fn first<'a>(
    machine: &dyn Machine,
    plan: &'a Plan,
    entry: &Entry,
    here: bool,
) -> Option<&'a Setting> {
    let changed = |setting: &Setting| entry.intents.iter().any(|intent| same(machine, setting, intent, here));
    plan.changes.iter().map(|change| &change.setting).find(|setting| changed(setting))
}

fn same(machine: &dyn Machine, setting: &Setting, intent: &Intent, here: bool) -> bool {
    let Ok((other, ..)) = intent.parsed() else { return intent.setting == setting.to_string() };
    // An interface of the same name in another namespace is a different one.
    if !here && [setting, &other].iter().any(|setting| of_namespace(setting)) {
        return false;
    }
    let identical = || {
        let now = machine.identity(setting).ok().flatten();
        now.zip(intent.identity.as_ref()).is_none_or(|(now, then)| now.is(then))
    };
    match (setting, &other) {
        _ if *setting == other => true,
        (Setting::Interface(_, this), Setting::Interface(_, that)) if this == that => {
            intent.identity.is_some() && identical()
        }
        (Setting::Socket { setting: this, .. }, Setting::Socket { setting: that, .. }) => {
            this == that && intent.identity.is_some() && identical()
        }
        _ => irq(machine, setting).is_some_and(|number| irq(machine, &other) == Some(number)),
    }
}

/// Is it per network namespace?
fn of_namespace(setting: &Setting) -> bool {
    match setting {
        Setting::Interface(..) => true,
        Setting::Sysctl(path) => path.starts_with("net/"),
        _ => false,
    }
}

/// The IRQ whose affinity the setting is.
fn irq(machine: &dyn Machine, setting: &Setting) -> Option<u32> {
    match setting {
        Setting::Irq(number) => Some(*number),
        Setting::Interface(..) if matches!(setting.row().access, Access::QueueIrq) => {
            machine.irq(setting).ok()
        }
        _ => None,
    }
}
