//! One row of the table of settings: all that is known of a kind of setting, in one place.
//!
//! Fields that every kind must answer stand in [`Row`] itself, so that a new row does not compile without them; what only
//! few kinds have is in [`Extra`], whose defaults are [`Extra::NONE`].

use serde::{Deserialize, Serialize};
use udpath_host::Source;
use udpath_host::kernel::Kernel;
use udpath_host::process::SocketSetting;

use super::{Form, Item, Setting, Value};
use crate::machine::Refusal;

/// A kind of setting.
#[derive(Debug)]
pub struct Row {
    /// What names begin with, or the whole name: `rps` of `eth0:rps/rx-0`, `napi/threaded`, `irq:affinity`.
    pub name: &'static str,
    /// What follows the name.
    pub part: PartKind,
    /// What it can be set to.
    pub value: ValueKind,
    /// Where it lives.
    pub access: Access,
    /// When it is written.
    pub phase: Phase,
    /// What writing it costs.
    pub cost: Cost,
    /// How far it reaches.
    pub scope: Scope,
    /// Whether a reset of the link loses it.
    pub on_reset: OnReset,
    /// Programs and events that change it.
    pub writers: &'static [&'static str],
    /// The same change as a line for a shell.
    pub shell: Shell,
    /// Its page in `docs/settings`, without `.md`.
    pub page: &'static str,
    /// What only few kinds have.
    pub extra: Extra,
}

impl Row {
    /// Whether this is the very row `other`.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// The first part of the name: `napi` of `napi/threaded`.
    pub(super) fn group(&'static self) -> &'static str {
        self.name.split_once('/').map_or(self.name, |(group, _)| group)
    }
}

/// What follows the name of a row in the name of a setting.
#[derive(Debug, Clone, Copy)]
pub enum PartKind {
    /// Nothing.
    Whole,
    /// One of these names.
    Named(&'static [&'static str]),
    /// A name that only the kernel knows, of letters, digits and `-`, `_`, `.`; with short names for some.
    Free(&'static [(&'static str, &'static str)]),
    /// A receive queue, `rx-N`.
    RxQueue,
    /// A transmit queue, `tx-N`.
    TxQueue,
}

/// What a setting can be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A list of CPUs, or none.
    Cpus,
    /// A list of CPUs, at least one.
    SomeCpus,
    /// A list of receive queues of the interface, or none.
    Queues,
    /// A whole number, of this unit.
    Number(&'static str),
    /// On or off.
    Switch,
    /// One word.
    Word,
    /// Fields of a hash, as ethtool's letters.
    HashFields,
    /// Text of one line, words separated by one space.
    Text,
    /// An indirection table.
    Table,
    /// Bytes of a hash key.
    Key,
    /// Numbers of IRQs.
    Irqs,
    /// What an option of a socket takes.
    Socket(SocketSetting),
    /// A whole file.
    File,
}

/// Where a setting lives, and so how it is read and written.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// A file of sysfs or procfs, by its path.
    File(fn(&Setting) -> String, Form),
    /// The driver, over netlink or ioctl.
    Driver {
        /// Reads it.
        read: fn(&Target<'_>, &dyn Source) -> Result<Value, Refusal>,
        /// Writes it.
        write: fn(&Target<'_>, &mut Kernel, &Value) -> Result<(), Refusal>,
    },
    /// The IRQ of a queue: [`crate::Machine`] looks up its number, and the setting is then that IRQ's.
    QueueIrq,
    /// A process, or a file on disk: [`crate::Machine`] knows the way.
    Object,
}

/// A setting of an interface, for the functions of its row.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The setting, for errors.
    pub setting: &'a Setting,
    /// The interface's name.
    pub interface: &'a str,
    /// What follows the name of the row; empty where nothing does.
    pub part: &'a str,
}

/// The order of work: what makes queues and IRQs appear comes before what is said of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// How many channels: queues and IRQs come and go.
    Channels,
    /// Rings, moderation, offloads: many drivers set the card up anew.
    Device,
    /// Conflicting programs are kept away from what comes next.
    Conflicts,
    /// Which CPUs take the IRQs.
    Irqs,
    /// Which queue the card chooses.
    Rss,
    /// Which CPU, and which transmit queue, the kernel chooses.
    Steering,
    /// NAPI, qdiscs, sysctls.
    Kernel,
    /// Options of a server's sockets.
    Sockets,
    /// Which CPUs threads run on.
    Threads,
    /// Files that keep it over a boot.
    Files,
}

/// What the writing itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// Nothing that traffic notices.
    None,
    /// Flows move to another queue or CPU: packets of one may overtake each other once.
    MovesFlows,
    /// What waits to be sent is dropped.
    DropsQueued,
    /// Most drivers stop the interface and start it again: the link may be away for seconds, and settings that the
    /// driver keeps in its queues are lost.
    ResetsLink,
}

impl Cost {
    /// In words; nothing when there is none.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::MovesFlows => "moves flows",
            Self::DropsQueued => "drops what waits to be sent",
            Self::ResetsLink => "may reset the link",
        }
    }
}

/// How far a setting reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    Host,
    /// This network namespace.
    Namespace,
    /// One process.
    Process,
}

/// What a reset of the link does to a setting of the same interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReset {
    /// Nothing: the driver or the kernel keeps it, or it is of no interface.
    Kept,
    /// It may be lost: it is read before the reset, and set again after it.
    Lost,
    /// These of its names may be lost.
    LostNames(&'static [&'static str]),
    /// It may be lost, and with another number of channels the driver rightly chooses it anew.
    Rechosen,
}

/// A change as a line for a shell.
#[derive(Debug, Clone, Copy)]
pub enum Shell {
    /// `echo VALUE > FILE`, for what is a file of the kernel.
    Echo,
    /// As this function writes it.
    Line(fn(&Setting, &Value) -> String),
}

/// Why the device cannot do what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// The value is beyond what there is.
    Beyond(String),
    /// It cannot be changed at all.
    Fixed(String),
}

/// What the kernel keeps of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// The number itself.
    AsWritten,
    /// The next power of two; 0 stays.
    PowerOfTwo,
    /// The next even number.
    Even,
}

/// Why going from a value to another lowers security.
type Lowers = fn(&Setting, Option<&Value>, &Value) -> Option<&'static str>;
/// Why the device cannot; with all that the plan sets.
type Limits = fn(&Target<'_>, &dyn Source, &Value, &[(Setting, Value)]) -> Result<(), Limit>;

/// What only few kinds of setting have.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    /// Why a change lowers security; such a change is made only when it is allowed by name.
    pub lowers_security: Lowers,
    /// What the device says of itself that it can.
    pub limit: Limits,
    /// Whether undo could set this value again.
    pub restorable: fn(&Value) -> bool,
    /// What the kernel keeps of a number.
    pub keeps: Keeps,
    /// The section and the key of a tuned profile that set it; `*` is the setting's own name.
    pub tuned: Option<(&'static str, &'static str)>,
    /// The usual cause when another value is read back than was written.
    pub differs: &'static str,
    /// What an errno of `read` or `set` means for it, where the kernel's own words do not say it.
    pub errno: fn(&Setting, &str, i32) -> Option<&'static str>,
    /// How long it lasts, where that is less than until the next boot.
    pub lasts: Option<&'static str>,
    /// What undo writes where the kernel does not show the value and the journal does not know it: the kernel's default.
    pub assumed: Option<fn() -> Value>,
}

impl Extra {
    /// None of it.
    pub const NONE: Self = Self {
        lowers_security: |_, _, _| None,
        limit: |_, _, _, _| Ok(()),
        restorable: |_| true,
        keeps: Keeps::AsWritten,
        tuned: None,
        differs: "the kernel or another program changed it at once",
        errno: |_, _, _| None,
        lasts: None,
        assumed: None,
    };
}

impl Setting {
    /// When it is written.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.row().phase
    }

    /// What writing it costs.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.row().cost
    }

    /// How far it reaches.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.row().scope
    }

    /// Programs and events that change it, by the names of [`crate::conflicts`].
    #[must_use]
    pub fn conflicts(&self) -> &'static [&'static str] {
        self.row().writers
    }

    /// Why going from `from` to `to` lowers security; such a change is made only when it is allowed by name.
    #[must_use]
    pub fn lowers_security(&self, from: Option<&Value>, to: &Value) -> Option<&'static str> {
        (self.row().extra.lowers_security)(self, from, to)
    }

    /// What undo writes where the kernel does not show the value and the journal does not know it.
    #[must_use]
    pub fn assumed(&self) -> Option<Value> {
        self.row().extra.assumed.map(|assumed| assumed())
    }

    /// How long it lasts, where that is less than until the next boot.
    #[must_use]
    pub fn lasts(&self) -> Option<&'static str> {
        self.row().extra.lasts
    }

    /// For the functions of its row, if it is of an interface.
    #[must_use]
    pub fn target(&self) -> Option<Target<'_>> {
        match self {
            Self::Interface(interface, Item { part, .. }) => {
                Some(Target { setting: self, interface, part: part.name() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_first_and_files_last() {
        let names = [
            "sysctl:net.core.rmem_max",
            "eth0:rps/rx-0",
            "eth0:rss/table",
            "eth0:irq/rx-0",
            "eth0:channels/rx",
        ];
        let mut settings: Vec<Setting> = names.iter().map(|name| name.parse().unwrap()).collect();
        settings.sort_by_key(Setting::phase);
        let sorted: Vec<String> = settings.iter().map(Setting::to_string).collect();
        assert_eq!(sorted, names.iter().rev().map(ToString::to_string).collect::<Vec<_>>());
    }
}
