//! One row of the table of settings: everything about a kind of setting, in one place.
//!
//! Fields that every kind needs are in [`Row`] itself, so that a new row does not compile without them; fields that
//! only a few kinds need are in [`Extra`], with the defaults [`Extra::NONE`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::PolicyOption;
use udpath_host::Source;
use udpath_host::process::SocketSetting;

use super::{Form, Item, Setting, Value};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

/// A kind of setting.
#[derive(Debug)]
pub struct Row {
    /// Prefix of the names, or the whole name: `rps` of `eth0:rps/rx-0`, `napi/threaded`, `irq:affinity`.
    pub name: &'static str,
    /// What follows the name.
    pub part: PartKind,
    /// The values it accepts.
    pub value: ValueKind,
    /// Where it lives.
    pub access: Access,
    /// When it is applied.
    pub phase: Phase,
    /// What writing it costs.
    pub cost: Cost,
    /// How far it reaches.
    pub scope: Scope,
    /// Whether a reset of the link loses it.
    pub on_reset: OnReset,
    /// Programs and events that change it.
    pub writers: &'static [&'static str],
    /// The equivalent shell command.
    pub shell: Shell,
    /// Its page in `docs/settings`, without `.md`.
    pub page: &'static str,
    /// Whether a change of it needs consent.
    pub security: Security,
    /// Fields that only a few kinds need.
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
    /// A name known only to the kernel, of letters, digits and `-`, `_`, `.`; some have short names.
    Free(&'static [(&'static str, &'static str)]),
    /// A receive queue, `rx-N`.
    RxQueue,
    /// A transmit queue, `tx-N`.
    TxQueue,
}

/// The values a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A list of CPUs, or none.
    Cpus,
    /// A list of CPUs, at least one.
    SomeCpus,
    /// A list of receive queues of the interface, or none.
    Queues,
    /// A whole number of this unit, up to this one.
    Number(&'static str, u64),
    /// On or off.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Hash fields, as ethtool's letters.
    HashFields,
    /// Text of one line, words separated by one space.
    Text,
    /// An indirection table.
    Table,
    /// Bytes of a hash key.
    Key,
    /// IRQ numbers.
    Irqs,
    /// The value of a socket option.
    Socket(SocketSetting),
    /// A rule by which datagrams are spread over the sockets of a reuseport group, or nothing.
    Spread,
    /// What a policy sets an option to, or nothing.
    Policy(PolicyOption),
    /// A number of instances with options of `udpath multiply`, or nothing.
    Instances,
    /// A whole file.
    File,
}

/// Where a setting lives, and therefore how it is read and written.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// A file of sysfs or procfs, by its path.
    File(fn(&Setting) -> String, Form),
    /// The driver, over netlink or ioctl.
    Driver {
        /// Reads it.
        read: fn(&Target<'_>, &dyn Source) -> Result<Value, Refusal>,
        /// Writes it.
        write: fn(&Target<'_>, &mut DeviceWriter, &Value) -> Result<(), Refusal>,
    },
    /// The IRQ of a queue: [`crate::Machine`] looks up its number and uses that IRQ's setting.
    QueueIrq,
    /// A process, or a file on disk: handled by [`crate::Machine`].
    Object,
}

/// A setting of an interface, passed to the functions of its row.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The setting, for errors.
    pub setting: &'a Setting,
    /// The interface's name.
    pub interface: &'a str,
    /// What follows the row's name; empty if nothing does.
    pub part: &'a str,
}

/// The order of changes: what creates queues and IRQs comes before the settings of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Number of channels: queues and IRQs appear and disappear.
    Channels,
    /// Rings, moderation, offloads: many drivers reinitialize the card.
    Device,
    /// Conflicting programs are excluded from the following settings.
    Conflicts,
    /// Which CPUs handle the IRQs.
    Irqs,
    /// Which queue the card selects.
    Rss,
    /// Which CPU, and which transmit queue, the kernel selects.
    Steering,
    /// NAPI, qdiscs, sysctls.
    Kernel,
    /// Options of a server's sockets, and policies for those to come: after the sysctls that limit them.
    Sockets,
    /// Which CPUs threads run on.
    Threads,
    /// Files: of a server's configuration, and those that keep changes across a boot.
    Files,
    /// A server reads its configuration again: after its files, in an apply as in an undo.
    Restart,
}

/// What the write itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// No effect on traffic.
    None,
    /// Flows move to another queue or CPU: packets of a flow may be reordered once.
    MovesFlows,
    /// Queued packets are dropped.
    DropsQueued,
    /// Most drivers stop and restart the interface: the link may be down for seconds, and settings that the driver
    /// keeps in its queues are lost.
    ResetsLink,
    /// The server is away for a moment, and its sockets and threads are new afterwards.
    Restarts,
}

impl Cost {
    /// In words; empty if there is no cost.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::MovesFlows => "moves flows",
            Self::DropsQueued => "drops queued packets",
            Self::ResetsLink => "may reset the link",
            Self::Restarts => "restarts the server",
        }
    }
}

/// How far a setting reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    Host,
    /// This network namespace.
    Namespace,
    /// One process.
    Process,
}

/// The effect of a link reset on a setting of the same interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReset {
    /// None: the driver or the kernel keeps it, or it does not belong to an interface.
    Kept,
    /// It may be lost: it is read before the reset and set again afterwards.
    Lost,
    /// The settings of these names may be lost.
    LostNames(&'static [&'static str]),
    /// It may be lost, and if the number of channels changes, the driver's new choice is legitimate.
    Rechosen,
}

/// A change as a shell command.
#[derive(Debug, Clone, Copy)]
pub enum Shell {
    /// `echo VALUE > FILE`, for kernel files.
    Echo,
    /// The output of this function.
    Line(fn(&Setting, &Value) -> String),
}

/// Why the device cannot do what is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// The value exceeds the device's limit.
    Beyond(String),
    /// It cannot be changed at all.
    Fixed(String),
}

/// How the kernel rounds a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Not at all.
    AsWritten,
    /// The next power of two; 0 stays.
    PowerOfTwo,
    /// The next even number.
    Even,
}

/// Whether a change needs consent, by name: everything does that is not known to be harmless, so that a plan from
/// somebody else changes nothing by surprise. Each row says it.
#[derive(Debug, Clone, Copy)]
pub enum Security {
    /// Whatever the value, it can only make traffic slower.
    Harmless,
    /// It depends on the setting and on the value.
    Judged(Lowers),
    /// Never requested by name; what creates it asks for its own consent.
    AskedElsewhere,
}

/// Why changing from one value to another may lower security; [`None`]: it is known to be harmless.
type Lowers = fn(&Setting, Option<&Value>, &Value) -> Option<&'static str>;
/// Why the device cannot do it, given everything the plan sets.
type Limits = fn(&Target<'_>, &dyn Source, &Value, &[(Setting, Value)]) -> Result<(), Limit>;

/// Fields that only a few kinds of setting need.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    /// What a value gives up, for the plan.
    pub gives_up: fn(&Value) -> Option<&'static str>,
    /// The limits that the device reports.
    pub limit: Limits,
    /// Whether undo can set this value again.
    pub restorable: fn(&Value) -> bool,
    /// How the kernel rounds a number.
    pub keeps: Keeps,
    /// The section and the key of a tuned profile that set it; `*` is the setting's own name.
    pub tuned: Option<(&'static str, &'static str)>,
    /// The usual cause when a different value is read back.
    pub differs: &'static str,
    /// The meaning of an errno of `read` or `set`, where the kernel's own text is not enough.
    pub errno: fn(&Setting, &str, i32) -> Option<&'static str>,
    /// Its lifetime, if it ends before the next boot.
    pub lasts: Option<&'static str>,
    /// The value undo writes if the kernel does not report it and the journal does not know it: the kernel's default.
    pub assumed: Option<fn() -> Value>,
}

impl Extra {
    /// No extras.
    pub const NONE: Self = Self {
        gives_up: |_| None,
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
    /// When it is applied.
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

    /// Why changing from `from` to `to` lowers security; such a change must be allowed by name.
    #[must_use]
    pub fn lowers_security(&self, from: Option<&Value>, to: &Value) -> Option<&'static str> {
        match self.row().security {
            Security::Harmless | Security::AskedElsewhere => None,
            Security::Judged(lowers) => lowers(self, from, to),
        }
    }

    /// What the value gives up.
    #[must_use]
    pub fn gives_up(&self, to: &Value) -> Option<&'static str> {
        (self.row().extra.gives_up)(to)
    }

    /// The value undo writes if the kernel does not report it and the journal does not know it.
    #[must_use]
    pub fn assumed(&self) -> Option<Value> {
        self.row().extra.assumed.map(|assumed| assumed())
    }

    /// Its lifetime, if it ends before the next boot.
    #[must_use]
    pub fn lasts(&self) -> Option<&'static str> {
        self.row().extra.lasts
    }

    /// The argument for the functions of its row, if it belongs to an interface.
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
