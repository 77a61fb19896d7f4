//! The network interfaces of the namespace: how to build a frame that leaves through one, and whether it can.

use crate::wire::Mac;

/// One interface, from rtnetlink's link messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index; constant while it exists.
    pub index: u32,
    /// Its name, such as `eth0`; may change.
    pub name: String,
    /// Its MAC address. `None` if it is not Ethernet (loopback, tunnels): frames cannot be sent on it.
    pub mac: Option<Mac>,
    /// Maximum length of an IP packet in one frame, bytes (`IFLA_MTU`).
    pub mtu: u32,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it can send: up and with a carrier (`IFF_RUNNING`).
    pub running: bool,
    /// Receive queues that the driver allocated (`IFLA_NUM_RX_QUEUES`). rtnetlink does not report how many are in use
    /// (`ethtool -l`).
    pub rx_queues: u32,
    /// Transmit queues that the driver allocated (`IFLA_NUM_TX_QUEUES`).
    pub tx_queues: u32,
    /// Its VLAN properties, if it is a VLAN device.
    pub vlan: Option<Vlan>,
}

/// The VLAN properties of a VLAN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// The interface whose frames carry its tag, in this network namespace.
    pub lower: u32,
    /// The VLAN ID.
    pub id: u16,
    /// Whether it uses provider tags (IEEE 802.1ad) rather than customer tags (802.1Q).
    pub service: bool,
    /// The priority (PCP) in tags of packets without a priority of their own: the `egress-qos-map` entry for 0.
    pub priority: u8,
}

/// All interfaces at one moment.
///
/// A worker that watches for changes (its port's interface went down, has another MTU, is gone) compares
/// [`Interfaces::generation`] once per poll: one load, because it holds the table anyway.
#[derive(Debug, Default)]
pub struct Interfaces {
    /// By index.
    all: Box<[Interface]>,
    generation: u64,
}

impl Interfaces {
    /// A snapshot. `generation` must differ from that of the previous snapshot.
    #[must_use]
    pub fn new(interfaces: impl IntoIterator<Item = Interface>, generation: u64) -> Self {
        let mut all: Vec<_> = interfaces.into_iter().collect();
        all.sort_by_key(|interface| interface.index);
        Self { all: all.into(), generation }
    }

    /// The interface with this index.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u32) -> Option<&Interface> {
        let at = self.all.binary_search_by_key(&index, |interface| interface.index).ok()?;
        self.all.get(at)
    }

    /// The interface with this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Interface> {
        self.all.iter().find(|interface| interface.name == name)
    }

    /// All, by index.
    #[must_use]
    pub fn all(&self) -> &[Interface] {
        &self.all
    }

    /// Changes whenever an interface was added, removed or changed in anything that [`Interface`] contains.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
