//! The network interfaces of the namespace: what a frame that leaves by one must look like, and whether it can leave.

use crate::wire::Mac;

/// One interface, as rtnetlink's link messages tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it; stays while it exists.
    pub index: u32,
    /// Its name, such as `eth0`; may change.
    pub name: String,
    /// Its MAC address. `None` if it is not Ethernet (loopback, tunnels): no frame of ours can leave by it.
    pub mac: Option<Mac>,
    /// Most bytes of an IP packet in one frame (`IFLA_MTU`).
    pub mtu: u32,
    /// Whether it is switched on (`IFF_UP`).
    pub up: bool,
    /// Whether frames can go out: it is up and has a carrier (`IFF_RUNNING`).
    pub running: bool,
    /// Receive queues the driver has made room for (`IFLA_NUM_RX_QUEUES`). How many of them are in use (`ethtool -l`)
    /// is not told by rtnetlink.
    pub rx_queues: u32,
    /// Transmit queues the driver has made room for (`IFLA_NUM_TX_QUEUES`).
    pub tx_queues: u32,
    /// What it is a VLAN of, if it is a VLAN device.
    pub vlan: Option<Vlan>,
}

/// What a VLAN device adds to the interface below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// The interface whose frames carry its tag, in this network namespace.
    pub lower: u32,
    /// The VLAN's number.
    pub id: u16,
    /// Whether its tags are a provider's (IEEE 802.1ad), not a customer's (802.1Q).
    pub service: bool,
    /// The priority (PCP) of tags on packets without a priority of their own: what `egress-qos-map` says of 0.
    pub priority: u8,
}

/// All interfaces at one moment.
///
/// A worker that wants to know of changes (its port's interface went down, has another MTU, is gone) compares
/// [`Interfaces::generation`] once per turn: one load, since it has the table at hand anyway.
#[derive(Debug, Default)]
pub struct Interfaces {
    /// By index.
    all: Box<[Interface]>,
    generation: u64,
}

impl Interfaces {
    /// A snapshot. `generation` differs from that of the snapshot before.
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

    /// Changes whenever an interface came, went or changed in anything that [`Interface`] says.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
