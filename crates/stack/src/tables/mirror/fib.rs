//! The kernel's routes as its messages tell of them: main table and local table, several routes to one prefix.
//!
//! Adding and removing is told by messages that mostly say all. Where they do not - routes to one prefix with one
//! metric may be appended, prepended, replaced, or join into one of several hops - and where the kernel says nothing at
//! all - IPv4 routes vanish in silence with their interface or their source address (`fib_sync_down_dev`) - the
//! mirror does not guess: [`Fib::is_unsure`] asks for the list to be read anew.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHopFlags, RouteType,
    RouteVia,
};

use super::super::{Hop, Route};

/// The table that ordinary routes are in (`RT_TABLE_MAIN`).
const MAIN: u32 = 254;
/// The table of the machine's own addresses (`RT_TABLE_LOCAL`).
const LOCAL: u32 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Prefix {
    address: IpAddr,
    len: u8,
}

/// One route to a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Lower is better.
    metric: u32,
    /// Tells it from other routes with the same prefix and metric: type, hops and source, without what changes in them.
    identity: u64,
    /// Where it leads now; `None` if all its hops are dead.
    route: Option<Route>,
}

#[derive(Debug, Default)]
pub(super) struct Fib {
    /// Of one prefix in the kernel's order.
    main: HashMap<Prefix, Vec<Entry>>,
    local: HashMap<Prefix, Vec<Entry>>,
    unsure: bool,
}

/// What one message changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Nothing,
    Main,
    Local,
}

impl Fib {
    /// Whether the routes are to be read anew.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// The list is complete: what was in doubt before is known.
    pub(super) fn trust(&mut self) {
        self.unsure = false;
    }

    /// Routes may have changed without a word.
    pub(super) fn doubt(&mut self) {
        self.unsure = true;
    }

    /// Takes an entry of the kernel's list.
    pub(super) fn list(&mut self, message: &RouteMessage) {
        if let Some((table, prefix, entry)) = read(message) {
            let entries = self.table(table).entry(prefix).or_default();
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }

    /// Takes the notice of a new or changed route.
    pub(super) fn add(&mut self, message: &RouteMessage, flags: u16) -> Changed {
        let Some((table, prefix, entry)) = read(message) else { return Changed::Nothing };
        let entries = self.table(table).entry(prefix).or_default();
        if entries.contains(&entry) {
            return Changed::Nothing;
        }
        let metric = entry.metric;
        let mut rivals = entries.iter_mut().filter(|other| other.metric == metric);
        match (rivals.next(), rivals.next()) {
            (None, _) => entries.push(entry),
            (Some(one), None) if flags & NLM_F_REPLACE != 0 || one.identity == entry.identity => *one = entry,
            _ => self.unsure = true,
        }
        table
    }

    /// Takes the notice of a route's end.
    pub(super) fn remove(&mut self, message: &RouteMessage) -> Changed {
        let Some((table, prefix, entry)) = read(message) else { return Changed::Nothing };
        let tables = self.table(table);
        let mut known = false;
        if let Some(entries) = tables.get_mut(&prefix) {
            let same = |other: &Entry| other.metric == entry.metric && other.identity == entry.identity;
            if let Some(at) = entries.iter().position(same) {
                entries.remove(at);
                known = true;
            }
            if entries.is_empty() {
                tables.remove(&prefix);
            }
        }
        // One of several hops, or something that was missed.
        self.unsure |= !known;
        if known { table } else { Changed::Nothing }
    }

    /// Takes the place of `old`; says for the main and the local table whether they differ.
    pub(super) fn differs(&self, old: &Self) -> (bool, bool) {
        (self.main != old.main, self.local != old.local)
    }

    /// The best route to each prefix.
    pub(super) fn routes(&self) -> impl Iterator<Item = (IpAddr, u8, Route)> {
        self.main.iter().filter_map(|(prefix, entries)| {
            let live = entries.iter().filter_map(|entry| Some((entry.metric, entry.route?)));
            // The first of the lowest metric, as the kernel takes them.
            let (_, route) = live.min_by_key(|(metric, _)| *metric)?;
            Some((prefix.address, prefix.len, route))
        })
    }

    /// What is the machine's own, by prefix.
    pub(super) fn local(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.local.keys().map(|prefix| (prefix.address, prefix.len))
    }

    fn table(&mut self, table: Changed) -> &mut HashMap<Prefix, Vec<Entry>> {
        if table == Changed::Local { &mut self.local } else { &mut self.main }
    }
}

/// Table, prefix and route of a message; `None` if the mirror has no use for it: another table, one that counts
/// only for some senders or traffic classes, one that the kernel made for a single peer.
fn read(message: &RouteMessage) -> Option<(Changed, Prefix, Entry)> {
    let header = &message.header;
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    if header.flags.contains(RouteFlags::Cloned) || header.source_prefix_length != 0 || header.tos != 0 {
        return None;
    }
    let mut prefix = Prefix { address: unspecified, len: header.destination_prefix_length };
    let mut table = u32::from(header.table);
    let (mut metric, mut source, mut mtu) = (0, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => prefix.address = ip(address)?,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::PrefSource(address) => source = Some(ip(address)?),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let table = match (table, header.kind) {
        (MAIN, _) => Changed::Main,
        (LOCAL, RouteType::Local | RouteType::Anycast) => Changed::Local,
        _ => return None,
    };
    let hops = hops(message);
    let mut hasher = DefaultHasher::new();
    (u8::from(header.kind), source).hash(&mut hasher);
    for hop in &hops {
        (hop.interface, hop.gateway, hop.wrapped).hash(&mut hasher);
    }
    let route = match header.kind {
        RouteType::Unicast if hops.is_empty() => Some(Route::Kernel),
        RouteType::Unicast => hops.iter().find(|hop| !hop.dead).map(|hop| match hop {
            RawHop { wrapped: false, interface, gateway, .. } => {
                Route::Hop(Hop { interface: *interface, gateway: *gateway, source, mtu })
            }
            _ => Route::Kernel,
        }),
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            Some(Route::Reject)
        }
        _ => Some(Route::Kernel),
    };
    Some((table, prefix, Entry { metric, identity: hasher.finish(), route }))
}

struct RawHop {
    interface: u32,
    gateway: Option<IpAddr>,
    /// The interface is down.
    dead: bool,
    /// The packet is to be put into another (`RTA_ENCAP`), or the gateway is none of IP.
    wrapped: bool,
}

/// The hops of a route: one, or those of `RTA_MULTIPATH` in their order. None if the message names no interface.
fn hops(message: &RouteMessage) -> Vec<RawHop> {
    let several = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    if let Some(several) = several {
        let hops = several.iter().map(|hop| {
            let dead = hop.flags.contains(RouteNextHopFlags::Dead);
            self::hop(&hop.attributes, Some(hop.interface_index), dead)
        });
        return hops.flatten().collect();
    }
    let interface = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(interface) => Some(*interface),
        _ => None,
    });
    let dead = message.header.flags.contains(RouteFlags::Dead);
    hop(&message.attributes, interface, dead).into_iter().collect()
}

fn hop(attributes: &[RouteAttribute], interface: Option<u32>, dead: bool) -> Option<RawHop> {
    let mut hop = RawHop { interface: interface?, gateway: None, dead, wrapped: false };
    for attribute in attributes {
        match attribute {
            RouteAttribute::Gateway(address) => hop.gateway = ip(address),
            RouteAttribute::Via(RouteVia::Inet(address)) => hop.gateway = Some(IpAddr::V4(*address)),
            RouteAttribute::Via(RouteVia::Inet6(address)) => hop.gateway = Some(IpAddr::V6(*address)),
            RouteAttribute::Via(_) | RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => {
                hop.wrapped = true;
            }
            _ => {}
        }
    }
    Some(hop)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, metric: u32, attributes: &[RouteAttribute]) -> RouteMessage {
        let (address, len) = prefix.split_once('/').unwrap();
        let address: IpAddr = address.parse().unwrap();
        let mut message = RouteMessage::default();
        message.header.address_family =
            if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.destination_prefix_length = len.parse().unwrap();
        message.header.table = 254;
        message.header.kind = RouteType::Unicast;
        message.attributes =
            vec![RouteAttribute::Destination(address.into()), RouteAttribute::Priority(metric)];
        message.attributes.extend_from_slice(attributes);
        message
    }

    fn by(interface: u32) -> RouteAttribute {
        RouteAttribute::Oif(interface)
    }

    fn ways(fib: &Fib) -> Vec<u32> {
        let interface = |(_, _, route)| match route {
            Route::Hop(hop) => hop.interface,
            _ => 0,
        };
        fib.routes().map(interface).collect()
    }

    #[test]
    fn the_lowest_metric_wins_and_its_end_leaves_the_next() {
        let mut fib = Fib::default();
        let (near, far) = (route("10.0.0.0/8", 10, &[by(2)]), route("10.0.0.0/8", 20, &[by(3)]));
        assert_eq!(fib.add(&far, 0), Changed::Main);
        assert_eq!(fib.add(&near, 0), Changed::Main);
        assert_eq!(fib.add(&near, 0), Changed::Nothing);
        assert_eq!(ways(&fib), [2]);
        assert_eq!(fib.remove(&near), Changed::Main);
        assert_eq!(ways(&fib), [3]);
        assert_eq!(fib.add(&route("10.0.0.0/8", 20, &[by(4)]), NLM_F_REPLACE), Changed::Main);
        assert_eq!(ways(&fib), [4]);
        assert!(!fib.is_unsure());
    }

    #[test]
    fn what_a_message_does_not_say_is_asked_for() {
        let mut fib = Fib::default();
        fib.add(&route("10.0.0.0/8", 0, &[by(2)]), 0);
        fib.add(&route("10.0.0.0/8", 0, &[by(3)]), 0);
        assert!(fib.is_unsure(), "before or behind the other?");
        let mut fib = Fib::default();
        assert_eq!(fib.remove(&route("10.0.0.0/8", 0, &[by(2)])), Changed::Nothing);
        assert!(fib.is_unsure(), "it was never seen");
    }

    #[test]
    fn dead_hops_are_passed_over() {
        let mut fib = Fib::default();
        let mut message = route("10.0.0.0/8", 0, &[by(2)]);
        message.header.flags = RouteFlags::Dead;
        fib.list(&message);
        fib.list(&route("10.0.0.0/8", 5, &[by(3)]));
        assert_eq!(ways(&fib), [3]);
        // Up again: the same route, not another.
        assert_eq!(fib.add(&route("10.0.0.0/8", 0, &[by(2)]), 0), Changed::Main);
        assert_eq!(ways(&fib), [2]);
        assert!(!fib.is_unsure());
    }

    #[test]
    fn other_tables_clones_and_classes_do_not_count() {
        let mut fib = Fib::default();
        let plain = route("10.0.0.0/8", 0, &[by(2)]);
        let mut clone = plain.clone();
        clone.header.flags = RouteFlags::Cloned;
        let mut class = plain.clone();
        class.header.tos = 8;
        let mut from = plain.clone();
        from.header.source_prefix_length = 8;
        let other = route("10.0.0.0/8", 0, &[by(2), RouteAttribute::Table(1000)]);
        let mut broadcast = plain.clone();
        (broadcast.header.table, broadcast.header.kind) = (255, RouteType::Broadcast);
        for message in [clone, class, from, other, broadcast] {
            assert_eq!(fib.add(&message, 0), Changed::Nothing);
            assert_eq!(fib.remove(&message), Changed::Nothing);
        }
        assert!(!fib.is_unsure());
        let mut local = plain;
        (local.header.table, local.header.kind) = (255, RouteType::Local);
        assert_eq!(fib.add(&local, 0), Changed::Local);
        assert_eq!(fib.local().collect::<Vec<_>>(), [("10.0.0.0".parse().unwrap(), 8)]);
    }
}
