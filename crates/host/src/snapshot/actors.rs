//! Other programs that change settings: running daemons, and files applied at boot or when a device appears.

use serde::{Deserialize, Serialize};

/// Other programs that change settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actors {
    /// Running daemons, and packages whose files take effect without one.
    pub list: Vec<Actor>,
    /// `.link` files that set more than a name: systemd-udevd applies the first that matches when a device appears.
    pub link_files: Vec<LinkFile>,
    /// Files of NetworkManager, systemd-networkd and cloud agents that set anything that affects packets.
    #[serde(default)]
    pub network_files: Vec<NetworkFile>,
    /// udev rules that act on network devices when they appear or change.
    pub udev_rules: Vec<UdevRule>,
    /// Settings that are applied at boot.
    pub sysctl_lines: Vec<SysctlLine>,
}

impl Actors {
    /// Those that may revert a setting of this kind.
    pub fn of(&self, touch: Touch) -> impl Iterator<Item = &Actor> {
        self.list.iter().filter(move |actor| actor.touches.contains(&touch))
    }
}

/// A program or package that changes settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Its name: `irqbalance`, `tuned`, ...
    pub name: String,
    /// Its process; `None` for a package that acts through files and short runs.
    pub pid: Option<u32>,
    /// How it was detected: its program, its name, its script, or a file.
    pub seen_by: String,
    /// Its configuration files that exist.
    pub files: Vec<String>,
    /// Kinds of settings it may change or revert.
    pub touches: Vec<Touch>,
    /// When it does so, as text.
    pub when: String,
}

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touch {
    /// IRQ affinity.
    IrqAffinity,
    /// Number of queues.
    Channels,
    /// Ring sizes.
    Rings,
    /// Interrupt moderation.
    Coalescing,
    /// Offloads.
    Features,
    /// RPS masks.
    Rps,
    /// XPS masks.
    Xps,
    /// Queueing disciplines.
    Qdiscs,
    /// MTU.
    Mtu,
    /// Addresses and routes.
    Addresses,
    /// Settings below `/proc/sys`.
    Sysctls,
    /// Frequency governors.
    Governor,
    /// Idle states.
    IdleStates,
    /// Packet filter rules.
    Netfilter,
    /// Thread affinity.
    ThreadAffinity,
    /// NUMA placement of memory, and same-page merging.
    Memory,
}

/// A `.link` file (systemd.link(5)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFile {
    /// Its path.
    pub path: String,
    /// The devices it matches: keys and values of `[Match]`.
    pub matches: Vec<(String, String)>,
    /// Its settings: keys and values of `[Link]`, except those that name the device.
    pub sets: Vec<(String, String)>,
}

/// A daemon's configuration file for interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFile {
    /// Its daemon, as in the list of actors: `NetworkManager`, `systemd-networkd`, `google-guest-agent`.
    pub by: String,
    /// Its path; its drop-ins are included.
    pub path: String,
    /// The interfaces it matches: `SECTION.KEY` and value.
    pub matches: Vec<(String, String)>,
    /// Its settings: `SECTION.KEY` and value, except those that do not affect packets.
    pub sets: Vec<(String, String)>,
}

/// A udev rule that acts on network devices (udev(7)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdevRule {
    /// Its file.
    pub path: String,
    /// Its line number, from 1.
    pub line: usize,
    /// Its match conditions.
    pub matches: Vec<String>,
    /// Its actions.
    pub acts: Vec<String>,
}

/// A line of sysctl.d(5) that affects packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlLine {
    /// Its file.
    pub path: String,
    /// Its line number, from 1.
    pub line: usize,
    /// The setting: `net.core.rmem_max`.
    pub name: String,
    /// Its value.
    pub value: String,
}
