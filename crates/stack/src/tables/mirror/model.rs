//! What the kernel has said so far, in a form that its next message can change. The tables are made of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, VlanProtocol,
    VlanQosMapping,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::super::{
    Interface, Interfaces, LocalAddress, LocalAddresses, Neighbour, Neighbours, Routes, Vlan,
};
use super::fib::{Changed, Fib};
use super::netlink::Kind;
use crate::wire::Mac;

/// Interface, address, prefix and peer: an address can be on an interface several times, with different prefixes or
/// other ends.
type AddressKey = (u32, IpAddr, u8, IpAddr);

#[derive(Debug, Default)]
pub(super) struct Model {
    interfaces: BTreeMap<u32, Interface>,
    /// With a number that grows: the order in which the kernel told of them, which counts when a source is chosen.
    addresses: HashMap<AddressKey, (u64, LocalAddress)>,
    told: u64,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    pub(super) fib: Fib,
    /// What was changed since its table was made.
    pub(super) dirty: Dirty,
}

/// Which tables are not up to date.
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
    /// Takes an entry of a list.
    pub(super) fn list(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewRoute(message) => self.fib.list(message),
            message => self.notice(message, 0),
        }
    }

    /// Forgets what a list that was broken off has said.
    pub(super) fn forget(&mut self, kind: Kind) {
        match kind {
            Kind::WorkerRings => self.interfaces.clear(),
            Kind::Addresses => self.addresses.clear(),
            Kind::Neighbours => self.neighbours.clear(),
            Kind::Routes => self.fib = Fib::default(),
        }
    }

    /// Takes over what `fresh` was told in a list of this kind.
    pub(super) fn adopt(&mut self, kind: Kind, fresh: &mut Self) {
        match kind {
            Kind::WorkerRings => {
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
                // New links raise doubts, but this list was read after them.
                self.fib.trust();
            }
        }
    }

    /// Takes a notice.
    pub(super) fn notice(&mut self, message: &RouteNetlinkMessage, flags: u16) {
        match message {
            RouteNetlinkMessage::NewLink(message) => self.link(message),
            RouteNetlinkMessage::DelLink(message) => self.link_gone(message),
            RouteNetlinkMessage::NewAddress(message) => {
                if let Some((key, address)) = read_address(message) {
                    self.address(key, address);
                }
            }
            RouteNetlinkMessage::DelAddress(message) => {
                if let Some((key, _)) = read_address(message) {
                    self.dirty.addresses |= self.addresses.remove(&key).is_some();
                    // Routes that prefer this source go with it, some in silence.
                    self.fib.doubt();
                }
            }
            RouteNetlinkMessage::NewNeighbour(message) => {
                if let Some((key, neighbour)) = read_neighbour(message) {
                    let old = match neighbour {
                        Some(neighbour) => self.neighbours.insert(key, neighbour),
                        None => self.neighbours.remove(&key),
                    };
                    self.dirty.neighbours |= old != neighbour;
                }
            }
            RouteNetlinkMessage::DelNeighbour(message) => {
                if let Some((key, _)) = read_neighbour(message) {
                    self.dirty.neighbours |= self.neighbours.remove(&key).is_some();
                }
            }
            RouteNetlinkMessage::NewRoute(message) => {
                let changed = self.fib.add(message, flags);
                self.routed(changed);
            }
            RouteNetlinkMessage::DelRoute(message) => {
                let changed = self.fib.remove(message);
                self.routed(changed);
            }
            _ => {}
        }
    }

    fn link(&mut self, message: &LinkMessage) {
        let Some(interface) = read_link(message) else { return };
        let old = self.interfaces.get(&interface.index);
        if old == Some(&interface) {
            return;
        }
        if old.is_none_or(|old| (old.up, old.running) != (interface.up, interface.running)) {
            // IPv4 routes go with their interface, and dead hops live again, without a word.
            self.fib.doubt();
        }
        self.dirty.interfaces = true;
        self.interfaces.insert(interface.index, interface);
    }

    fn link_gone(&mut self, message: &LinkMessage) {
        let index = message.header.index;
        // A port that leaves its bridge is told in the same words, by another family.
        if message.header.interface_family != AddressFamily::Unspec
            || self.interfaces.remove(&index).is_none()
        {
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

    /// The table of the interfaces.
    pub(super) fn interfaces(&self, generation: u64) -> Interfaces {
        Interfaces::new(self.interfaces.values().cloned(), generation)
    }

    /// The table of the machine's addresses: those of interfaces, and what else the local table has.
    pub(super) fn addresses(&self) -> LocalAddresses {
        let mut addresses: Vec<_> = self.addresses.values().collect();
        addresses.sort_by_key(|(told, _)| *told);
        // An interface's own address has its local route, too; whether it counts is for the address to say.
        let own: HashSet<_> = addresses.iter().map(|(_, local)| local.address).collect();
        let networks =
            self.fib.local().filter(|(address, len)| !(*len >= bits(*address) && own.contains(address)));
        LocalAddresses::new(addresses.iter().map(|(_, local)| local.clone()), networks)
    }

    /// The table of the neighbours.
    pub(super) fn neighbours(&self) -> Neighbours {
        Neighbours::new(
            self.neighbours.iter().map(|((interface, ip), neighbour)| (*interface, *ip, *neighbour)),
        )
    }

    /// The table of the routes.
    pub(super) fn routes(&self) -> Routes {
        Routes::new(self.fib.routes())
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The interface of a link message; `None` if it tells of something else: a bridge's port, a radio event.
fn read_link(message: &LinkMessage) -> Option<Interface> {
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = message.header.flags;
    let (mut name, mut mtu, mut mac) = (None, None, None);
    let (mut rx_queues, mut tx_queues) = (1, 1);
    let (mut lower, mut elsewhere, mut vlan) = (None, false, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(bytes) => mtu = Some(*bytes),
            LinkAttribute::Address(bytes) => mac = mac_of(bytes),
            LinkAttribute::NumRxQueues(count) => rx_queues = *count,
            LinkAttribute::NumTxQueues(count) => tx_queues = *count,
            LinkAttribute::Link(index) => lower = Some(*index),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::LinkInfo(infos) => vlan = read_vlan(infos),
            _ => {}
        }
    }
    let lower = lower.filter(|_| !elsewhere);
    let vlan = vlan.zip(lower).map(|(vlan, lower)| Vlan { lower, ..vlan });
    Some(Interface {
        index: message.header.index,
        name: name?,
        mac: mac.filter(|_| message.header.link_layer_type == LinkLayerType::Ether),
        mtu: mtu?,
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Up | LinkFlags::Running),
        rx_queues,
        tx_queues,
        vlan,
    })
}

/// What is said of a VLAN device, but for the interface below it.
fn read_vlan(infos: &[LinkInfo]) -> Option<Vlan> {
    let attributes = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(attributes)) => Some(attributes),
        _ => None,
    })?;
    let (mut id, mut service, mut priority) = (None, false, 0);
    for attribute in attributes {
        match attribute {
            InfoVlan::Id(number) => id = Some(*number),
            InfoVlan::Protocol(protocol) => service = *protocol != VlanProtocol::Ieee8021Q,
            InfoVlan::EgressQos(mappings) => {
                for mapping in mappings {
                    if let VlanQosMapping::Mapping(0, to) = mapping {
                        priority = (*to & 7) as u8;
                    }
                }
            }
            _ => {}
        }
    }
    Some(Vlan { lower: 0, id: id?, service, priority })
}

fn read_address(message: &AddressMessage) -> Option<(AddressKey, LocalAddress)> {
    let header = &message.header;
    let (mut own, mut other, mut broadcast) = (None, None, None);
    let mut flags = AddressFlags::from_bits_retain(u32::from(header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            // Of the two ends of a link with two ends, or the same twice; IPv6 has only the second.
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            AddressAttribute::Broadcast(address) => broadcast = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let address = own.or(other)?;
    // Tentative, unless the kernel takes the risk; or a duplicate.
    let waits = flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    let local = LocalAddress {
        broadcast,
        scope: header.scope.into(),
        usable: !waits && !flags.contains(AddressFlags::Dadfailed),
        // The bit means "temporary" for IPv6.
        secondary: address.is_ipv4() && flags.contains(AddressFlags::Secondary),
        deprecated: flags.contains(AddressFlags::Deprecated),
        ..LocalAddress::new(header.index, address, header.prefix_len)
    };
    Some(((header.index, address, header.prefix_len, other.unwrap_or(address)), local))
}

/// Whose neighbour a message is about and what is known now: nothing, maybe. `None` if it is about a bridge's forwarding
/// entry or an address that is answered for.
fn read_neighbour(message: &NeighbourMessage) -> Option<((u32, IpAddr), Option<Neighbour>)> {
    let header = &message.header;
    if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6)
        || header.flags.contains(NeighbourFlags::Proxy)
    {
        return None;
    }
    let (mut ip, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                ip = Some(IpAddr::V4(*address));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                ip = Some(IpAddr::V6(*address));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = mac_of(bytes),
            _ => {}
        }
    }
    let neighbour = match header.state {
        NeighbourState::Reachable
        | NeighbourState::Delay
        | NeighbourState::Probe
        | NeighbourState::Permanent
        | NeighbourState::Noarp => mac.map(Neighbour::Usable),
        NeighbourState::Stale => mac.map(Neighbour::Stale),
        NeighbourState::Incomplete => Some(Neighbour::Resolving),
        NeighbourState::Failed => Some(Neighbour::Failed),
        _ => None,
    };
    Some(((header.ifindex, ip?), neighbour))
}

fn mac_of(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}
