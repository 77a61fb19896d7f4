//! The host's addresses, and source address selection.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::hash::{Halves, Map, halves};

/// Scope of addresses that are valid on this host only (`RT_SCOPE_HOST` of linux/rtnetlink.h).
const HOST: u8 = 254;
/// Scope of addresses that are valid on one link only (`RT_SCOPE_LINK`).
const LINK: u8 = 253;

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress {
    /// Index of its interface.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Prefix length of its network, bits.
    pub prefix: u8,
    /// Its configured broadcast address (`IFA_BROADCAST`).
    pub broadcast: Option<Ipv4Addr>,
    /// Its scope, as rtnetlink numbers it: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Whether it is in use: neither tentative (another host may have it) nor a duplicate.
    pub usable: bool,
    /// IPv4: another address of the interface is in the same network and is preferred as a source.
    pub secondary: bool,
    /// IPv6: not to be used as the source of new flows.
    pub deprecated: bool,
}

impl LocalAddress {
    /// A usable address of global scope, as most are.
    #[must_use]
    pub const fn new(interface: u32, address: IpAddr, prefix: u8) -> Self {
        Self {
            interface,
            address,
            prefix,
            broadcast: None,
            scope: 0,
            usable: true,
            secondary: false,
            deprecated: false,
        }
    }
}

/// All addresses of the host at one moment.
///
/// Whether an address is local takes one hash and one or two slots of a small table. In addition to interface
/// addresses there are networks that the kernel treats as local as a whole (`ip route add local 192.0.2.0/24 dev lo`,
/// and 127.0.0.0/8); they are scanned, but only for addresses that no interface has.
#[derive(Debug, Default)]
pub struct LocalAddresses {
    v4: Map<u32, ()>,
    /// With the interface index for link-local addresses, which are valid on their own link only; with 0 for all
    /// others.
    v6: Map<(u32, Halves), ()>,
    broadcasts: Map<u32, ()>,
    networks: Box<[(IpAddr, u8)]>,
    /// By interface; those of one interface in the kernel's order.
    all: Box<[LocalAddress]>,
}

impl LocalAddresses {
    /// A table of interface `addresses`, those of one interface in the kernel's order, and of local `networks`, each
    /// an address and a prefix length.
    #[must_use]
    pub fn new(
        addresses: impl IntoIterator<Item = LocalAddress>,
        networks: impl IntoIterator<Item = (IpAddr, u8)>,
    ) -> Self {
        let mut all: Vec<_> = addresses.into_iter().collect();
        all.sort_by_key(|local| local.interface);
        let (mut v4, mut v6, mut broadcasts) = (Vec::new(), Vec::new(), Vec::new());
        for local in all.iter().filter(|local| local.usable) {
            match local.address {
                IpAddr::V4(address) => {
                    v4.push((address.to_bits(), ()));
                    broadcasts.extend(local.broadcast.map(|broadcast| (broadcast.to_bits(), ())));
                    // The kernel also treats the network's last address as broadcast if none was configured
                    // (`fib_add_ifaddr`); networks of one or two addresses have none (RFC 3021).
                    if local.prefix < 31 && local.scope != HOST {
                        broadcasts.push((address.to_bits() | u32::MAX >> local.prefix, ()));
                    }
                }
                IpAddr::V6(address) => v6.push((v6_key(local.interface, address), ())),
            }
        }
        let mut networks: Vec<_> = networks.into_iter().collect();
        networks.sort_unstable();
        networks.dedup();
        Self {
            v4: Map::new(v4),
            v6: Map::new(v6),
            broadcasts: Map::new(broadcasts),
            networks: networks.into(),
            all: all.into(),
        }
    }

    /// Whether the kernel would accept a datagram for `address`, received on `interface`, as local.
    ///
    /// As in the kernel, an address belongs to the host: it is accepted on any interface. Only IPv6 link-local
    /// addresses are valid on their own link alone.
    #[must_use]
    #[inline]
    pub fn is_local(&self, interface: u32, address: IpAddr) -> bool {
        let known = match address {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(v6_key(interface, address)),
        };
        known || self.is_in_network(address)
    }

    #[cold]
    fn is_in_network(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|&(network, prefix)| common_bits(network, address) >= Some(prefix))
    }

    /// Whether `address` is a broadcast address of one of the host's networks. 255.255.255.255 is not included: that
    /// needs no table.
    #[must_use]
    #[inline]
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.broadcasts.contains(address.to_bits())
    }

    /// Networks that are local as a whole, each an address and a prefix length.
    #[must_use]
    pub fn networks(&self) -> &[(IpAddr, u8)] {
        &self.networks
    }

    /// The addresses of one interface, including those not usable yet, in the kernel's order.
    #[must_use]
    pub fn of(&self, interface: u32) -> &[LocalAddress] {
        let from = self.all.partition_point(|local| local.interface < interface);
        let to = self.all.partition_point(|local| local.interface <= interface);
        self.all.get(from..to).unwrap_or_default()
    }

    /// All addresses, by interface.
    #[must_use]
    pub fn all(&self) -> &[LocalAddress] {
        &self.all
    }

    /// The source address that the kernel would select for a `destination` that is reached over `interface` through
    /// `next_hop`, when neither application nor route specify one. `None` if the host has none that fits.
    ///
    /// IPv4: the interface's first primary address in the next hop's network, else its first one, else another
    /// interface's (`inet_select_addr`). IPv6: RFC 6724, section 5, rules 2, 3, 5 and 8; its rules on mobility,
    /// labels and temporary addresses are not implemented.
    #[must_use]
    pub fn source_for(&self, interface: u32, next_hop: IpAddr, destination: IpAddr) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(_) => self.source_v4(interface, next_hop),
            IpAddr::V6(destination) => self.source_v6(interface, destination).map(IpAddr::V6),
        }
    }

    fn source_v4(&self, interface: u32, next_hop: IpAddr) -> Option<IpAddr> {
        let fits = |local: &&LocalAddress| {
            local.address.is_ipv4() && local.usable && !local.secondary && local.scope < HOST
        };
        let own = || self.of(interface).iter().filter(fits);
        own()
            .find(|local| common_bits(local.address, next_hop) >= Some(local.prefix))
            .or_else(|| own().next())
            .or_else(|| self.all.iter().filter(fits).find(|local| local.scope < LINK))
            .map(|local| local.address)
    }

    fn source_v6(&self, interface: u32, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        let wanted = scope(destination);
        let candidates = self.all.iter().filter(|local| local.usable && local.scope < HOST);
        let candidates = candidates.filter_map(|local| match local.address {
            // A link-local address cannot be the source on another link.
            IpAddr::V6(address) if scope(address) > SCOPE_LINK || local.interface == interface => {
                Some((local, address))
            }
            _ => None,
        });
        // The first of the best: `min` of the reversed rank, because `max` would return the last.
        let best = candidates.min_by_key(|(local, address)| {
            let reach = scope(*address);
            let common = common_bits(IpAddr::V6(*address), IpAddr::V6(destination)).unwrap_or(0);
            Reverse((
                reach >= wanted,
                if reach >= wanted { -i16::from(reach) } else { i16::from(reach) },
                !local.deprecated,
                local.interface == interface,
                common.min(local.prefix),
            ))
        });
        best.map(|(_, address)| address)
    }
}

#[inline(always)]
fn v6_key(interface: u32, address: Ipv6Addr) -> (u32, Halves) {
    (if address.is_unicast_link_local() { interface } else { 0 }, halves(address))
}

/// Leading bits that two addresses of one family have in common; `None` for two families.
fn common_bits(a: IpAddr, b: IpAddr) -> Option<u8> {
    let bits = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return None,
    };
    Some(bits as u8)
}

/// Scopes of IPv6 addresses, as in multicast addresses (RFC 6724, 3.1): link, the former site-local, global.
const SCOPE_LINK: u8 = 2;
const SCOPE_SITE: u8 = 5;
const SCOPE_GLOBAL: u8 = 14;

fn scope(address: Ipv6Addr) -> u8 {
    match address.segments()[0] {
        0xfe80..=0xfebf => SCOPE_LINK,
        0xfec0..=0xfeff => SCOPE_SITE,
        _ => SCOPE_GLOBAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local(interface: u32, text: &str) -> LocalAddress {
        let (address, prefix) = text.split_once('/').unwrap();
        LocalAddress::new(interface, ip(address), prefix.parse().unwrap())
    }

    #[test]
    fn an_address_belongs_to_the_host_but_a_link_local_one_to_its_link() {
        let tentative = LocalAddress { usable: false, ..local(2, "2001:db8::3/64") };
        let table = LocalAddresses::new(
            [local(3, "10.0.1.1/24"), local(2, "10.0.0.1/24"), local(2, "fe80::1/64"), tentative],
            [(ip("127.0.0.0"), 8), (ip("2001:db8:5::"), 48)],
        );
        assert!(table.is_local(2, ip("10.0.0.1")) && table.is_local(3, ip("10.0.0.1")));
        assert!(!table.is_local(2, ip("10.0.0.2")));
        assert!(table.is_local(2, ip("fe80::1")) && !table.is_local(3, ip("fe80::1")));
        assert!(!table.is_local(2, ip("2001:db8::3")), "still tentative");
        assert!(table.is_local(2, ip("127.9.9.9")) && !table.is_local(2, ip("128.0.0.0")));
        assert!(table.is_local(2, ip("2001:db8:5:ffff::7")) && !table.is_local(2, ip("2001:db8:6::")));
        assert_eq!(table.of(2).len(), 3);
        assert_eq!(table.of(3), [local(3, "10.0.1.1/24")]);
        assert_eq!((table.of(4).len(), table.all().len()), (0, 4));
    }

    #[test]
    fn broadcasts_are_those_given_and_the_networks_last() {
        let given = LocalAddress { broadcast: Some([10, 9, 9, 9].into()), ..local(2, "10.0.0.1/22") };
        let table = LocalAddresses::new([given, local(2, "192.0.2.1/31"), local(2, "0.0.0.0/0")], []);
        for broadcast in ["10.0.3.255", "10.9.9.9", "255.255.255.255"] {
            assert!(table.is_broadcast(broadcast.parse().unwrap()), "{broadcast}");
        }
        for other in ["10.0.0.255", "192.0.2.1", "192.0.2.255"] {
            assert!(!table.is_broadcast(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn ipv4_sends_from_the_next_hops_network() {
        let second = LocalAddress { secondary: true, ..local(2, "10.0.1.7/24") };
        let loopback = LocalAddress { scope: HOST, ..local(1, "127.0.0.1/8") };
        let table = LocalAddresses::new(
            [loopback, local(2, "10.0.0.1/24"), second, local(2, "10.0.1.1/24"), local(4, "fe80::1/64")],
            [],
        );
        let from = |interface, hop| table.source_for(interface, ip(hop), ip("192.0.2.1"));
        assert_eq!(from(2, "10.0.1.254"), Some(ip("10.0.1.1")));
        assert_eq!(from(2, "10.0.9.254"), Some(ip("10.0.0.1")), "the first");
        assert_eq!(from(2, "fe80::9"), Some(ip("10.0.0.1")), "a next hop of the other family");
        assert_eq!(from(4, "10.0.9.254"), Some(ip("10.0.0.1")), "another interface's, and not 127.0.0.1");
        assert_eq!(LocalAddresses::default().source_for(2, ip("10.0.0.1"), ip("10.0.0.1")), None);
    }

    #[test]
    fn ipv6_sends_by_scope_then_age_then_interface_then_prefix() {
        let old = LocalAddress { deprecated: true, ..local(2, "2001:db8:1::1/64") };
        let table = LocalAddresses::new(
            [
                local(1, "::1/128"),
                local(2, "fe80::2/64"),
                old,
                local(2, "fd00::2/64"),
                local(2, "2001:db8:2::2/64"),
                local(3, "fe80::3/64"),
                local(3, "2001:db8:3::3/64"),
            ]
            .map(|local| LocalAddress { scope: if local.interface == 1 { HOST } else { 0 }, ..local }),
            [],
        );
        let from = |interface, destination| table.source_for(interface, ip(destination), ip(destination));
        assert_eq!(from(2, "fe80::9"), Some(ip("fe80::2")));
        assert_eq!(from(3, "fe80::9"), Some(ip("fe80::3")));
        assert_eq!(from(2, "2001:db8:1::9"), Some(ip("2001:db8:2::2")), "not the deprecated one");
        assert_eq!(from(2, "2001:db8:3::9"), Some(ip("2001:db8:2::2")), "the interface before the prefix");
        assert_eq!(from(3, "2600::1"), Some(ip("2001:db8:3::3")));
        assert_eq!(from(2, "fd00::9"), Some(ip("fd00::2")));
    }
}
