//! A setting of the machine, and the values it can have.
//!
//! ```text
//! eth0:rps/rx-0=0-3
//! └──────┬────┘ └┬┘
//!     Setting   Value      names are the kernel's and ethtool's; CPUs are lists, never masks
//! ```
//!
//! | setting | value | meaning |
//! |---|---|---|
//! | `eth0:channels/combined` | `8` | queue pairs (also `rx`, `tx`, `other`), `ethtool -L` |
//! | `eth0:ring/rx` | `1024` | descriptors of each ring (also `tx`), `ethtool -G` |
//! | `eth0:coalesce/rx-usecs` | `20` | interrupt moderation, names of `ethtool -C` |
//! | `eth0:feature/rx-gro` | `off` | offloads, the kernel's names (`ethtool -k`) |
//! | `eth0:rss/table` | `equal:8`, `weight:2,1`, `0,1,0,1` | indirection table, `ethtool -X` |
//! | `eth0:rss/key`, `eth0:rss/function` | `6d:5a:...`, `toeplitz` | hash key and hash function |
//! | `eth0:hash/udp4` | `sdfn` | UDP fields that are hashed (also `udp6`) |
//! | `eth0:irq/rx-0`, `irq:57:affinity` | `3` | CPUs that may handle the IRQ, by queue or by number |
//! | `eth0:rps/rx-0` | `0-3` | receive packet steering of a queue |
//! | `eth0:rfs/rx-0` | `2048` | its flow table, entries |
//! | `eth0:xps/tx-0`, `eth0:xps-rxqs/tx-0` | `0` | CPUs, or receive queues, that send on a queue |
//! | `eth0:napi/threaded` | `on` | NAPI in threads |
//! | `eth0:napi/defer-hard-irqs` | `2` | empty polls before the IRQ is enabled again |
//! | `eth0:napi/gro-flush-timeout` | `20000` | timer of deferred polls, nanoseconds |
//! | `eth0:napi/irq-suspend-timeout` | `20000000` | interrupts off while an application polls, nanoseconds |
//! | `eth0:qdisc` | `mq`, `default` | the root qdisc |
//! | `eth0:tx-queue-len` | `2000` | packets that a qdisc without its own limit may hold |
//! | `sysctl:net.core.rmem_max` | `4194304` | a file of /proc/sys |
//! | `thread:812/815:affinity` | `3` | CPUs of a thread, by pid and tid |
//! | `socket:812/4026:receive-buffer` | `8388608` | of a running server's UDP socket, by pid and inode: bytes as `ss -m` shows them |
//! | `socket:812/4026:busy-poll` | `50` | microseconds (`prefer-busy-poll`: `on`; `busy-poll-budget`: packets) |
//! | `socket:812/4026:incoming-cpu` | `3`, `any` | the CPU whose datagrams go to this member of its group |
//! | `group:812/4026:selection` | `by-cpu`, `by-flow` | how the reuseport group selects a socket, named by any member |
//! | `policy:/system.slice/nsd.service:53/receive-buffer` | `8M`, `none` | what programs of a cgroup get at each bind, here to a port (`send-buffer`, `reuseport`, `priority`, `mark`) |
//! | `unit:ntp.service/instances` | `2`, `none` | a unit's program runs in instances that share its port, by a drop-in |
//! | `irqbalance:ban` | `57,58` | IRQs that the running irqbalance leaves alone |
//!
//! Requests may also refer to the server on a port, [`crate::plan::SettingRequest`]: `port:53:receive-buffer`, to
//! a unit's cgroup: `policy:nsd.service/receive-buffer`, and to a server's configuration, [`crate::services::Request`]:
//! `service:53:server-count`.
//!
//! ```text
//!  Setting ── row() ─▸ Row: name, value, access, phase, cost, scope, on_reset, writers, shell, page
//!                      one static per kind, in the file of its family; FAMILIES lists them all
//! ```
//! A new kind of setting is a row in its family's file, its name in that family's `ROWS`, and a page in
//! `docs/settings`; CONTRIBUTING.md has every step.
//!
//! - `row.rs`: the fields of a row. `name.rs`: names to and from text. `value.rs`: values to and from text. `form.rs`:
//!   values as the kernel formats them in files. `fits.rs`: which values a request may have. `shell.rs`: changes as
//!   shell commands. `driver.rs`: shared by driver rows.
//! - Families: `channels.rs`, `coalesce.rs`, `feature.rs`, `rss.rs`, `irq.rs`, `steering.rs`, `napi.rs`, `qdisc.rs`,
//!   `sysctl.rs`, `socket.rs`, `policy.rs`, `unit.rs`, `thread.rs`, `file.rs`, `service.rs`.

pub mod channels;
pub mod coalesce;
mod driver;
pub mod feature;
mod file;
mod fits;
mod form;
pub mod irq;
mod name;
pub mod napi;
pub(crate) mod policy;
pub mod qdisc;
mod row;
pub mod rss;
mod service;
mod shell;
mod socket;
pub mod steering;
pub(crate) mod sysctl;
mod thread;
mod unit;
mod value;

use std::cmp::Ordering;
use std::num::NonZeroU16;

pub use form::{Form, Place};
pub use name::WrongName;
pub(crate) use name::{CONFIG, RESTART};
pub use row::{
    Access, Cost, Extra, Keeps, Limit, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target,
    ValueKind,
};
pub use shell::comment;
pub(crate) use value::NONE;
pub use value::{Table, Value, WrongValue};

use crate::services::Restart;
use udpath_bpf::{PolicyOption, PolicyTarget};
use udpath_host::UnitName;
use udpath_host::process::SocketSetting;

/// The rows of interface settings, family by family. Settings lost in a link reset are restored in this order.
pub static FAMILIES: &[&[&Row]] = &[
    channels::ROWS,
    feature::ROWS,
    irq::ROWS,
    steering::ROWS,
    napi::ROWS,
    rss::ROWS,
    coalesce::ROWS,
    qdisc::ROWS,
];

/// All rows of [`FAMILIES`].
pub fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// A setting of a network interface, by the interface's name.
    Interface(String, Item),
    /// CPUs that may handle an IRQ, by its number.
    Irq(u32),
    /// A file of /proc/sys, by its path below it: `net/core/rmem_max`.
    Sysctl(String),
    /// CPUs of a thread.
    Thread {
        /// Its process.
        pid: u32,
        /// The thread itself.
        tid: u32,
    },
    /// An option of a running server's UDP socket, or of its reuseport group.
    Socket {
        /// A process that has it.
        pid: u32,
        /// Its inode, as in the process's descriptors.
        inode: u32,
        /// Which option.
        setting: SocketSetting,
    },
    /// What the programs of a cgroup get at each bind.
    Policy {
        /// Whose sockets.
        target: PolicyTarget,
        /// Which option.
        option: PolicyOption,
    },
    /// How the datagrams of a unit's reuseport groups are spread after each of its starts: a drop-in of the unit.
    Spread {
        /// The unit.
        unit: UnitName,
        /// Only groups of this port.
        port: Option<NonZeroU16>,
    },
    /// In how many instances a unit's program runs: a drop-in of the unit.
    Instances {
        /// The unit.
        unit: UnitName,
    },
    /// IRQs that the running irqbalance leaves alone, set over its own socket.
    IrqbalanceBan,
    /// A whole file that keeps a change across a boot. Created only by [`crate::persist`], never requested by name.
    File(String),
    /// A file of a server's configuration, by its path. Created only by [`crate::services`], never requested by name.
    Config(String),
    /// That a server reads its configuration again. Created only by [`crate::services`], never requested by name.
    Restart(Restart),
}

/// A setting of an interface: its kind and instance.
#[derive(Debug, Clone)]
pub struct Item {
    /// The kind.
    pub row: &'static Row,
    /// The instance.
    pub part: Part,
}

/// What follows the kind in a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Nothing.
    Whole,
    /// A name: `rx-usecs` of `coalesce/rx-usecs`.
    Name(String),
    /// A queue's number.
    Queue(u32),
}

impl Part {
    /// The name; empty for other parts.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Whole | Self::Queue(_) => "",
        }
    }
}

impl Item {
    /// Whether it is of this kind.
    #[must_use]
    pub fn is(&self, row: &Row) -> bool {
        self.row.is(row)
    }

    /// What follows the kind in the name: `rx-usecs`, `rx-3`; empty if nothing does.
    #[must_use]
    pub fn part_text(&self) -> String {
        match (&self.part, self.row.part) {
            (Part::Queue(queue), PartKind::TxQueue) => format!("tx-{queue}"),
            (Part::Queue(queue), _) => format!("rx-{queue}"),
            (part, _) => part.name().to_owned(),
        }
    }

    /// Position of the kind in [`FAMILIES`].
    fn rank(&self) -> usize {
        rows().position(|row| row.is(self.row)).unwrap_or(usize::MAX)
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.row.is(other.row) && self.part == other.part
    }
}

impl Eq for Item {}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.part.cmp(&other.part))
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Item {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (std::ptr::from_ref(self.row), &self.part).hash(state);
    }
}

impl Setting {
    /// The row of its kind.
    #[must_use]
    pub fn row(&self) -> &'static Row {
        match self {
            Self::Interface(_, item) => item.row,
            Self::Irq(_) => &irq::BY_NUMBER,
            Self::Sysctl(path) => sysctl::row(path),
            Self::Thread { .. } => &thread::AFFINITY,
            Self::Socket { setting, .. } => socket::row(*setting),
            Self::Policy { option, .. } => policy::row(*option),
            Self::Spread { .. } => &policy::SPREAD_ROW,
            Self::Instances { .. } => &unit::ROW,
            Self::IrqbalanceBan => &irq::IRQBALANCE_BAN,
            Self::File(_) => &file::FILE,
            Self::Config(_) => &service::CONFIG,
            Self::Restart(_) => &service::RESTART,
        }
    }

    /// The interface it belongs to.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(interface, _) => Some(interface),
            _ => None,
        }
    }

    /// Whether it belongs to an interface and is of this kind.
    #[must_use]
    pub fn is(&self, row: &Row) -> bool {
        self.row().is(row)
    }

    /// The same setting under the interface's new name.
    #[must_use]
    pub fn renamed(&self, interface: &str) -> Self {
        match self {
            Self::Interface(_, item) => Self::Interface(interface.to_owned(), item.clone()),
            other => other.clone(),
        }
    }
}
