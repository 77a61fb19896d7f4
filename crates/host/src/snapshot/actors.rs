//! Who else changes settings: daemons that run, and files that are applied when a device appears or at boot.

use serde::{Deserialize, Serialize};

/// Who else changes settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actors {
    /// Daemons that run, and packages whose files act without one.
    pub list: Vec<Actor>,
    /// `.link` files that set more than a name: systemd-udevd applies the first that matches when a device appears.
    pub link_files: Vec<LinkFile>,
    /// Files of NetworkManager, systemd-networkd and cloud agents that set what bears on packets.
    #[serde(default)]
    pub network_files: Vec<NetworkFile>,
    /// udev rules that act on network devices when they appear or change.
    pub udev_rules: Vec<UdevRule>,
    /// Settings that are applied at boot.
    pub sysctl_lines: Vec<SysctlLine>,
}

impl Actors {
    /// Those that may change a setting of this kind back.
    pub fn of(&self, touch: Touch) -> impl Iterator<Item = &Actor> {
        self.list.iter().filter(move |actor| actor.touches.contains(&touch))
    }
}

/// One that changes settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Its name: `irqbalance`, `tuned`, ...
    pub name: String,
    /// Its process; none for a package that acts through files and short runs.
    pub pid: Option<u32>,
    /// What gave it away: its program, its name, its script, or a file.
    pub seen_by: String,
    /// Its configuration files that exist.
    pub files: Vec<String>,
    /// What it may change, or change back.
    pub touches: Vec<Touch>,
    /// When it does, in words.
    pub when: String,
}

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touch {
    /// Which CPUs interrupts go to.
    IrqAffinity,
    /// Numbers of queues.
    Channels,
    /// Lengths of descriptor rings.
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
    /// Which CPUs threads run on.
    ThreadAffinity,
    /// Where memory lies, and merging of equal pages.
    Memory,
}

/// A `.link` file (systemd.link(5)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFile {
    /// Its path.
    pub path: String,
    /// Which devices it is for: keys and values of `[Match]`.
    pub matches: Vec<(String, String)>,
    /// What it sets: keys and values of `[Link]`, those that name the device left out.
    pub sets: Vec<(String, String)>,
}

/// A file by which a daemon sets up interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFile {
    /// Whose it is, as in the list of actors: `NetworkManager`, `systemd-networkd`, `google-guest-agent`.
    pub by: String,
    /// Its path; what its drop-ins say is told with it.
    pub path: String,
    /// Which interfaces it is for: `SECTION.KEY` and value.
    pub matches: Vec<(String, String)>,
    /// What it sets: `SECTION.KEY` and value, those that do not bear on packets left out.
    pub sets: Vec<(String, String)>,
}

/// A udev rule that acts on network devices (udev(7)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdevRule {
    /// Its file.
    pub path: String,
    /// Its line, from 1.
    pub line: usize,
    /// What it asks of the device.
    pub matches: Vec<String>,
    /// What it does.
    pub acts: Vec<String>,
}

/// A line of sysctl.d(5) that bears on packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlLine {
    /// Its file.
    pub path: String,
    /// Its line, from 1.
    pub line: usize,
    /// The setting: `net.core.rmem_max`.
    pub name: String,
    /// What it is set to.
    pub value: String,
}
