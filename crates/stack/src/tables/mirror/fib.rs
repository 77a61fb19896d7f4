//! The kernel's routes, built from its messages: main table and local table, several routes per prefix.
//!
//! Most messages describe an added or removed route completely. Some do not: routes with the same prefix and metric
//! may be appended, prepended, replaced, or merged into a multipath route. And IPv4 routes disappear without a
//! message when their interface or source address goes away (`fib_sync_down_dev`). In these cases the mirror does not
//! guess: [`Fib::is_unsure`] requests that the list be read again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use udpath_netlink::flag;
use udpath_netlink::rtnetlink::route::{CLONED, kind, table};
use udpath_netlink::rtnetlink::{self, Route as RouteMessage};

use super::super::{Hop, Route};

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
    /// Distinguishes it from other routes with the same prefix and metric: type, hops and source, without their
    /// variable parts.
    identity: u64,
    /// Its current route; `None` if all its hops are dead.
    route: Option<Route>,
}

#[derive(Debug, Default)]
pub(super) struct Fib {
    /// By prefix, each list in the kernel's order.
    main: HashMap<Prefix, Vec<Entry>>,
    local: HashMap<Prefix, Vec<Entry>>,
    unsure: bool,
}

/// The effect of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Nothing,
    Main,
    Local,
}

impl Fib {
    /// Whether the routes must be read again.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// The list is complete: doubts from before it are resolved.
    pub(super) fn trust(&mut self) {
        self.unsure = false;
    }

    /// Routes may have changed without a message.
    pub(super) fn doubt(&mut self) {
        self.unsure = true;
    }

    /// Adds an entry of the kernel's list.
    pub(super) fn list(&mut self, message: &RouteMessage) {
        if let Some((table, prefix, entry)) = read(message) {
            let entries = self.table(table).entry(prefix).or_default();
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }

    /// Applies the notice of a new or changed route.
    pub(super) fn add(&mut self, message: &RouteMessage, flags: u16) -> Changed {
        let Some((table, prefix, entry)) = read(message) else { return Changed::Nothing };
        let entries = self.table(table).entry(prefix).or_default();
        if entries.contains(&entry) {
            return Changed::Nothing;
        }
        let metric = entry.metric;
        let mut others = entries.iter_mut().filter(|other| other.metric == metric);
        match (others.next(), others.next()) {
            (None, _) => entries.push(entry),
            (Some(one), None) if flags & flag::REPLACE != 0 || one.identity == entry.identity => *one = entry,
            _ => self.unsure = true,
        }
        table
    }

    /// Applies the notice of a removed route.
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
        // One of several hops, or a route whose notice was missed.
        self.unsure |= !known;
        if known { table } else { Changed::Nothing }
    }

    /// Replaces `old`; returns for the main and the local table whether they differ.
    pub(super) fn differs(&self, old: &Self) -> (bool, bool) {
        (self.main != old.main, self.local != old.local)
    }

    /// The best route to each prefix.
    pub(super) fn routes(&self) -> impl Iterator<Item = (IpAddr, u8, Route)> {
        self.main.iter().filter_map(|(prefix, entries)| {
            let live = entries.iter().filter_map(|entry| Some((entry.metric, entry.route?)));
            // The first one with the lowest metric, like in the kernel.
            let (_, route) = live.min_by_key(|(metric, _)| *metric)?;
            Some((prefix.address, prefix.len, route))
        })
    }

    /// Local prefixes.
    pub(super) fn local(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.local.keys().map(|prefix| (prefix.address, prefix.len))
    }

    fn table(&mut self, table: Changed) -> &mut HashMap<Prefix, Vec<Entry>> {
        if table == Changed::Local { &mut self.local } else { &mut self.main }
    }
}

/// Table, prefix and route of a message; `None` if the mirror does not use it: another table, a route for certain
/// sources or traffic classes only, or one that the kernel created for a single peer.
fn read(message: &RouteMessage) -> Option<(Changed, Prefix, Entry)> {
    let unspecified = match i32::from(message.family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    if message.flags & CLONED != 0 || message.source_len != 0 || message.tos != 0 {
        return None;
    }
    let prefix = Prefix { address: message.destination.unwrap_or(unspecified), len: message.prefix_len };
    let table = match (message.table, message.kind) {
        (table::MAIN, _) => Changed::Main,
        (table::LOCAL, kind::LOCAL | kind::ANYCAST) => Changed::Local,
        _ => return None,
    };
    let RouteMessage { kind, preferred_source: source, mtu, .. } = *message;
    let mut hasher = DefaultHasher::new();
    (kind, source).hash(&mut hasher);
    for hop in &message.hops {
        (hop.interface, hop.gateway, hop.beyond_ip).hash(&mut hasher);
    }
    let route = match kind {
        kind::UNICAST if message.hops.is_empty() => Some(Route::Kernel),
        kind::UNICAST => message.hops.iter().find(|hop| !hop.dead).map(|hop| match *hop {
            rtnetlink::Hop { beyond_ip: false, interface, gateway, .. } => {
                Route::Hop(Hop { interface, gateway, source, mtu })
            }
            _ => Route::Kernel,
        }),
        kind::BLACKHOLE | kind::UNREACHABLE | kind::PROHIBIT | kind::THROW => Some(Route::Reject),
        _ => Some(Route::Kernel),
    };
    Some((table, prefix, Entry { metric: message.metric.unwrap_or(0), identity: hasher.finish(), route }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, metric: u32, hops: &[rtnetlink::Hop]) -> RouteMessage {
        let (address, len) = prefix.split_once('/').unwrap();
        let route = RouteMessage::new(address.parse().unwrap(), len.parse().unwrap());
        RouteMessage { metric: Some(metric), hops: hops.to_vec(), ..route }
    }

    fn by(interface: u32) -> rtnetlink::Hop {
        rtnetlink::Hop { interface, ..rtnetlink::Hop::default() }
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
        assert_eq!(fib.add(&route("10.0.0.0/8", 20, &[by(4)]), flag::REPLACE), Changed::Main);
        assert_eq!(ways(&fib), [4]);
        assert!(!fib.is_unsure());
    }

    #[test]
    fn incomplete_messages_cause_a_new_read() {
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
        fib.list(&route("10.0.0.0/8", 0, &[rtnetlink::Hop { dead: true, ..by(2) }]));
        fib.list(&route("10.0.0.0/8", 5, &[by(3)]));
        assert_eq!(ways(&fib), [3]);
        // Up again: the same route, not a new one.
        assert_eq!(fib.add(&route("10.0.0.0/8", 0, &[by(2)]), 0), Changed::Main);
        assert_eq!(ways(&fib), [2]);
        assert!(!fib.is_unsure());
    }

    #[test]
    fn other_tables_clones_and_classes_do_not_count() {
        let mut fib = Fib::default();
        let plain = route("10.0.0.0/8", 0, &[by(2)]);
        let clone = RouteMessage { flags: CLONED, ..plain.clone() };
        let class = RouteMessage { tos: 8, ..plain.clone() };
        let from = RouteMessage { source_len: 8, ..plain.clone() };
        let other = RouteMessage { table: 1000, ..plain.clone() };
        let broadcast = RouteMessage { table: table::LOCAL, kind: kind::BROADCAST, ..plain.clone() };
        for message in [clone, class, from, other, broadcast] {
            assert_eq!(fib.add(&message, 0), Changed::Nothing);
            assert_eq!(fib.remove(&message), Changed::Nothing);
        }
        assert!(!fib.is_unsure());
        let local = RouteMessage { table: table::LOCAL, kind: kind::LOCAL, ..plain };
        assert_eq!(fib.add(&local, 0), Changed::Local);
        assert_eq!(fib.local().collect::<Vec<_>>(), [("10.0.0.0".parse().unwrap(), 8)]);
    }
}
