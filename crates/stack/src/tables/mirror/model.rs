//! The mirror's mutable state, updated by each kernel message. The tables are built from it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use udpath_netlink::rtnetlink::link::{flags as link_flags, hardware};
use udpath_netlink::rtnetlink::{self, Address, Link, Update, address, neighbour};

use super::super::{
    Interface, Interfaces, LocalAddress, LocalAddresses, Neighbour, Neighbours, Routes, Vlan,
};
use super::fib::{Changed, Fib};
use super::netlink::Kind;
use crate::wire::Mac;

/// `AF_UNSPEC`: the family of messages about interfaces themselves.
const UNSPECIFIED: u8 = 0;
/// The EtherType of ordinary VLAN tags (802.1Q); service tags have another.
const CUSTOMER_TAG: u16 = 0x8100;

/// Interface, address, prefix and peer: an interface can have an address several times, with different prefixes or
/// peers.
type AddressKey = (u32, IpAddr, u8, IpAddr);

#[derive(Debug, Default)]
pub(super) struct Model {
    interfaces: BTreeMap<u32, Interface>,
    /// With an increasing number: the order in which the kernel reported them, which matters for source address
    /// selection.
    addresses: HashMap<AddressKey, (u64, LocalAddress)>,
    told: u64,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    pub(super) fib: Fib,
    /// Changes since the tables were built.
    pub(super) dirty: Dirty,
}

/// Which tables are out of date.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dirty {
    pub(super) interfaces: bool,
    pub(super) addresses: bool,
    pub(super) neighbours: bool,
    pub(super) routes: bool,
}

impl Dirty {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

impl Model {
    /// Adds an entry of a list.
    pub(super) fn list(&mut self, message: &Update) {
        match message {
            Update::NewRoute(message) => self.fib.list(message),
            message => self.notice(message, 0),
        }
    }

    /// Discards the entries of an abandoned list.
    pub(super) fn forget(&mut self, kind: Kind) {
        match kind {
            Kind::Links => self.interfaces.clear(),
            Kind::Addresses => self.addresses.clear(),
            Kind::Neighbours => self.neighbours.clear(),
            Kind::Routes => self.fib = Fib::default(),
        }
    }

    /// Adopts the entries of a list of this kind from `fresh`.
    pub(super) fn adopt(&mut self, kind: Kind, fresh: &mut Self) {
        match kind {
            Kind::Links => {
                self.dirty.interfaces |= self.interfaces != fresh.interfaces;
                std::mem::swap(&mut self.interfaces, &mut fresh.interfaces);
            }
            Kind::Addresses => {
                self.dirty.addresses |= self.addresses != fresh.addresses;
                std::mem::swap(&mut self.addresses, &mut fresh.addresses);
                self.told = self.told.max(fresh.told);
            }
            Kind::Neighbours => {
                self.dirty.neighbours |= self.neighbours != fresh.neighbours;
                std::mem::swap(&mut self.neighbours, &mut fresh.neighbours);
            }
            Kind::Routes => {
                let (main, local) = fresh.fib.differs(&self.fib);
                self.dirty.routes |= main;
                self.dirty.addresses |= local;
                self.fib = std::mem::take(&mut fresh.fib);
                // New links make the routes uncertain, but this list was read after them.
                self.fib.trust();
            }
        }
    }

    /// Applies a notice.
    pub(super) fn notice(&mut self, message: &Update, flags: u16) {
        match message {
            Update::NewLink(message) => self.link(message),
            Update::DelLink(message) => self.link_gone(message),
            Update::NewAddress(message) => {
                if let Some((key, address)) = read_address(message) {
                    self.address(key, address);
                }
            }
            Update::DelAddress(message) => {
                if let Some((key, _)) = read_address(message) {
                    self.dirty.addresses |= self.addresses.remove(&key).is_some();
                    // Routes that prefer this source are removed with it, some without a message.
                    self.fib.doubt();
                }
            }
            Update::NewNeighbour(message) => {
                if let Some((key, neighbour)) = read_neighbour(message) {
                    let old = match neighbour {
                        Some(neighbour) => self.neighbours.insert(key, neighbour),
                        None => self.neighbours.remove(&key),
                    };
                    self.dirty.neighbours |= old != neighbour;
                }
            }
            Update::DelNeighbour(message) => {
                if let Some((key, _)) = read_neighbour(message) {
                    self.dirty.neighbours |= self.neighbours.remove(&key).is_some();
                }
            }
            Update::NewRoute(message) => {
                let changed = self.fib.add(message, flags);
                self.routed(changed);
            }
            Update::DelRoute(message) => {
                let changed = self.fib.remove(message);
                self.routed(changed);
            }
            _ => {}
        }
    }

    fn link(&mut self, message: &Link) {
        let Some(interface) = read_link(message) else { return };
        let old = self.interfaces.get(&interface.index);
        if old == Some(&interface) {
            return;
        }
        if old.is_none_or(|old| (old.up, old.running) != (interface.up, interface.running)) {
            // IPv4 routes are removed with their interface, and dead hops come alive again, without a message.
            self.fib.doubt();
        }
        self.dirty.interfaces = true;
        self.interfaces.insert(interface.index, interface);
    }

    fn link_gone(&mut self, message: &Link) {
        let index = message.index;
        // A port that leaves its bridge is reported by the same message with another family.
        if message.family != UNSPECIFIED || self.interfaces.remove(&index).is_none() {
            return;
        }
        self.dirty.interfaces = true;
        let (addresses, neighbours) = (self.addresses.len(), self.neighbours.len());
        self.addresses.retain(|(interface, ..), _| *interface != index);
        self.neighbours.retain(|(interface, _), _| *interface != index);
        self.dirty.addresses |= addresses != self.addresses.len();
        self.dirty.neighbours |= neighbours != self.neighbours.len();
        self.fib.doubt();
    }

    fn address(&mut self, key: AddressKey, address: LocalAddress) {
        match self.addresses.get_mut(&key) {
            Some((_, old)) if *old == address => {}
            Some((_, old)) => {
                *old = address;
                self.dirty.addresses = true;
            }
            None => {
                self.told += 1;
                self.addresses.insert(key, (self.told, address));
                self.dirty.addresses = true;
            }
        }
    }

    fn routed(&mut self, changed: Changed) {
        match changed {
            Changed::Nothing => {}
            Changed::Main => self.dirty.routes = true,
            Changed::Local => self.dirty.addresses = true,
        }
    }

    /// Builds the table of interfaces.
    pub(super) fn interfaces(&self, generation: u64) -> Interfaces {
        Interfaces::new(self.interfaces.values().cloned(), generation)
    }

    /// Builds the table of the host's addresses: those of interfaces, and the rest of the local table.
    pub(super) fn addresses(&self) -> LocalAddresses {
        let mut addresses: Vec<_> = self.addresses.values().collect();
        addresses.sort_by_key(|(told, _)| *told);
        // An interface's own address also has a local route; the address decides whether it is usable.
        let own: HashSet<_> = addresses.iter().map(|(_, local)| local.address).collect();
        let networks =
            self.fib.local().filter(|(address, len)| !(*len >= bits(*address) && own.contains(address)));
        LocalAddresses::new(addresses.iter().map(|(_, local)| local.clone()), networks)
    }

    /// Builds the table of neighbours.
    pub(super) fn neighbours(&self) -> Neighbours {
        Neighbours::new(
            self.neighbours.iter().map(|((interface, ip), neighbour)| (*interface, *ip, *neighbour)),
        )
    }

    /// Builds the table of routes.
    pub(super) fn routes(&self) -> Routes {
        Routes::new(self.fib.routes())
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The interface of a link message; `None` if the message is about something else: a bridge port, a wireless event.
fn read_link(message: &Link) -> Option<Interface> {
    if message.family != UNSPECIFIED {
        return None;
    }
    let ethernet = message.hardware == hardware::ETHERNET;
    let has = |flags: u32| message.flags & flags == flags;
    // The interface below, unless it is in another namespace.
    let lower = message.link.filter(|_| message.link_namespace.is_none());
    let vlan = message.vlan.as_ref().zip(lower).and_then(|(vlan, lower)| read_vlan(vlan, lower));
    Some(Interface {
        index: message.index,
        name: message.name.clone()?,
        mac: message.address.as_deref().and_then(mac_of).filter(|_| ethernet),
        mtu: message.mtu?,
        up: has(link_flags::UP),
        running: has(link_flags::UP | link_flags::RUNNING),
        rx_queues: message.rx_queues.unwrap_or(1),
        tx_queues: message.tx_queues.unwrap_or(1),
        vlan,
    })
}

fn read_vlan(vlan: &rtnetlink::link::Vlan, lower: u32) -> Option<Vlan> {
    let of_zero = vlan.egress_priorities.iter().rev().find(|(priority, _)| *priority == 0);
    Some(Vlan {
        lower,
        id: vlan.id?,
        service: vlan.protocol.is_some_and(|protocol| protocol != CUSTOMER_TAG),
        priority: of_zero.map_or(0, |(_, to)| (to & 7) as u8),
    })
}

fn read_address(message: &Address) -> Option<(AddressKey, LocalAddress)> {
    let has = |flags: u32| message.flags & flags != 0;
    // The two ends of a point-to-point link, or the same address twice; IPv6 has only the second.
    let address = message.local.or(message.address)?;
    // Tentative, unless the kernel uses it anyway; or a duplicate.
    let waits = has(address::flags::TENTATIVE) && !has(address::flags::OPTIMISTIC);
    let broadcast = message.broadcast.and_then(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let local = LocalAddress {
        broadcast,
        scope: message.scope,
        usable: !waits && !has(address::flags::DADFAILED),
        // For IPv6 the bit means "temporary".
        secondary: address.is_ipv4() && has(address::flags::SECONDARY),
        deprecated: has(address::flags::DEPRECATED),
        ..LocalAddress::new(message.interface, address, message.prefix_len)
    };
    Some(((message.interface, address, message.prefix_len, message.address.unwrap_or(address)), local))
}

/// The neighbour in a message and its current state, if it has one. `None` for a bridge's forwarding entry or a proxy
/// address.
fn read_neighbour(message: &rtnetlink::Neighbour) -> Option<((u32, IpAddr), Option<Neighbour>)> {
    use neighbour::state;

    if message.flags & neighbour::flags::PROXY != 0 {
        return None;
    }
    // Only IP families have one.
    let ip = message.destination?;
    let mac = message.address.as_deref().and_then(mac_of);
    let neighbour = match message.state {
        state::REACHABLE | state::DELAY | state::PROBE | state::PERMANENT | state::NOARP => {
            mac.map(Neighbour::Usable)
        }
        state::STALE => mac.map(Neighbour::Stale),
        state::INCOMPLETE => Some(Neighbour::Resolving),
        state::FAILED => Some(Neighbour::Failed),
        _ => None,
    };
    Some(((message.interface, ip), neighbour))
}

fn mac_of(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}
