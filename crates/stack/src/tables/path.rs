//! The complete path of a datagram that is not a reply.

use std::net::IpAddr;

use super::{Hop, Interface, Interfaces, LocalAddresses, Neighbour, Neighbours, Route, Routes};
use crate::wire::Mac;

/// All tables at one moment, valid while the guard they were loaded under lives. Each is consistent; two of them may
/// be from different moments, so that a route may lead to an interface that is already gone. [`View::path`] reports
/// that.
#[derive(Debug, Clone, Copy)]
pub struct View<'g> {
    /// The interfaces.
    pub interfaces: &'g Interfaces,
    /// The host's addresses.
    pub addresses: &'g LocalAddresses,
    /// The neighbours.
    pub neighbours: &'g Neighbours,
    /// The routes.
    pub routes: &'g Routes,
}

/// How to address and send a frame to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The outgoing interface.
    pub interface: u32,
    /// The source IP address, unless the application is bound to another.
    pub source: IpAddr,
    /// The source MAC address: the interface's.
    pub own: Mac,
    /// The destination MAC address: the router's, or that of the destination itself.
    pub next_hop: Mac,
    /// The IP address of the next hop: the router or the destination.
    pub next_hop_address: IpAddr,
    /// Maximum length of the IP packet, bytes.
    pub mtu: u32,
    /// Whether the MAC address has not been confirmed for a while. Send, and request confirmation from
    /// the kernel ([`Resolver::ask`](super::Resolver::ask)).
    pub stale: bool,
}

/// Why a datagram cannot be sent past the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPath {
    /// A multicast, broadcast or unspecified address.
    #[error("{0} is not a unicast address; use a kernel socket")]
    NotUnicast(IpAddr),
    /// An address of this host.
    #[error("{0} is an address of this host; use a kernel socket")]
    Local(IpAddr),
    /// An IPv6 link-local address without an interface.
    #[error("{0} is a link-local address; specify its interface")]
    NeedsInterface(IpAddr),
    /// No route.
    #[error("no route to {0}; add one to the main table")]
    NoRoute(IpAddr),
    /// A route rejects it.
    #[error("the route to {0} rejects all packets (blackhole, unreachable, prohibit or throw)")]
    Rejected(IpAddr),
    /// A type of route that only the kernel implements.
    #[error("only the kernel can use the route to {0}; use a kernel socket")]
    Kernel(IpAddr),
    /// The interface is gone.
    #[error("interface {0} does not exist")]
    NoInterface(u32),
    /// The interface cannot send.
    #[error("interface {0} is down or has no carrier")]
    InterfaceDown(u32),
    /// The interface is not Ethernet.
    #[error("interface {0} is not Ethernet; use a kernel socket")]
    NotEthernet(u32),
    /// The host has no suitable source address.
    #[error("this host has no source address for {destination} on interface {interface}; add one")]
    NoSource {
        /// The outgoing interface.
        interface: u32,
        /// The destination.
        destination: IpAddr,
    },
    /// The next hop's MAC address is unknown. Request it with [`Resolver::ask`](super::Resolver::ask), and look the
    /// path up again a little later.
    #[error("the MAC address of {next_hop} on interface {interface} is unknown")]
    NeighbourUnknown {
        /// The interface.
        interface: u32,
        /// The next hop to resolve.
        next_hop: IpAddr,
    },
    /// The kernel is resolving it. Look the path up again a little later.
    #[error("the MAC address of {next_hop} on interface {interface} is being resolved")]
    NeighbourResolving {
        /// The interface.
        interface: u32,
        /// The next hop to resolve.
        next_hop: IpAddr,
    },
    /// The next hop did not answer the kernel. Resolution may be retried.
    #[error("{next_hop} does not answer on interface {interface}")]
    NeighbourFailed {
        /// The interface.
        interface: u32,
        /// The next hop to resolve.
        next_hop: IpAddr,
    },
}

impl NoPath {
    /// The neighbour to resolve, if its address is missing: interface and IP address. `None` also while the kernel
    /// is resolving it.
    #[must_use]
    pub const fn to_ask(&self) -> Option<(u32, IpAddr)> {
        match *self {
            Self::NeighbourUnknown { interface, next_hop }
            | Self::NeighbourFailed { interface, next_hop } => Some((interface, next_hop)),
            _ => None,
        }
    }

    /// Whether the problem may resolve itself in a moment: a neighbour is being or can be resolved.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NeighbourUnknown { .. } | Self::NeighbourResolving { .. } | Self::NeighbourFailed { .. }
        )
    }
}

impl View<'_> {
    /// The path to `destination`, by the main routing table.
    ///
    /// # Errors
    /// What is missing: [`NoPath`].
    pub fn path(&self, destination: IpAddr) -> Result<Path, NoPath> {
        if is_link_local(destination) {
            return Err(NoPath::NeedsInterface(destination));
        }
        self.check(0, destination)?;
        match self.routes.get(destination) {
            None => Err(NoPath::NoRoute(destination)),
            Some(Route::Reject) => Err(NoPath::Rejected(destination)),
            Some(Route::Kernel) => Err(NoPath::Kernel(destination)),
            Some(Route::Hop(hop)) => self.follow(hop, destination),
        }
    }

    /// The path to a `destination` on the link of `interface`, whatever the routes say. For IPv6 link-local
    /// addresses, and for applications bound to an interface.
    ///
    /// # Errors
    /// What is missing: [`NoPath`].
    pub fn path_on_link(&self, interface: u32, destination: IpAddr) -> Result<Path, NoPath> {
        self.check(interface, destination)?;
        self.follow(&Hop { interface, gateway: None, source: None, mtu: None }, destination)
    }

    fn check(&self, interface: u32, destination: IpAddr) -> Result<(), NoPath> {
        let everyone = match destination {
            IpAddr::V4(address) => address.is_broadcast() || self.addresses.is_broadcast(address),
            IpAddr::V6(_) => false,
        };
        if destination.is_multicast() || destination.is_unspecified() || everyone {
            Err(NoPath::NotUnicast(destination))
        } else if destination.is_loopback() || self.addresses.is_local(interface, destination) {
            Err(NoPath::Local(destination))
        } else {
            Ok(())
        }
    }

    fn follow(&self, hop: &Hop, destination: IpAddr) -> Result<Path, NoPath> {
        let Hop { interface, gateway, source, mtu } = *hop;
        let &Interface { mac, mtu: most, up, running, .. } =
            self.interfaces.get(interface).ok_or(NoPath::NoInterface(interface))?;
        let own = mac.ok_or(NoPath::NotEthernet(interface))?;
        if !(up && running) {
            return Err(NoPath::InterfaceDown(interface));
        }
        let next_hop_address = gateway.unwrap_or(destination);
        let source = source
            .or_else(|| self.addresses.source_for(interface, next_hop_address, destination))
            .ok_or(NoPath::NoSource { interface, destination })?;
        let next_hop = next_hop_address;
        let (next_hop, stale) = match self.neighbours.get(interface, next_hop) {
            Some(Neighbour::Usable(mac)) => (mac, false),
            Some(Neighbour::Stale(mac)) => (mac, true),
            Some(Neighbour::Resolving) => return Err(NoPath::NeighbourResolving { interface, next_hop }),
            Some(Neighbour::Failed) => return Err(NoPath::NeighbourFailed { interface, next_hop }),
            None => return Err(NoPath::NeighbourUnknown { interface, next_hop }),
        };
        let mtu = mtu.map_or(most, |route| route.min(most));
        Ok(Path { interface, source, own, next_hop, next_hop_address, mtu, stale })
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::super::LocalAddress;
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0xfe]);
    const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn interface(index: u32) -> Interface {
        Interface {
            index,
            name: format!("eth{index}"),
            mac: Some(OWN),
            mtu: 1500,
            up: true,
            running: true,
            rx_queues: 1,
            tx_queues: 1,
            vlan: None,
        }
    }

    struct TestTables(Interfaces, LocalAddresses, Neighbours, Routes);

    impl TestTables {
        fn new() -> Self {
            let hop = |interface, gateway: Option<&str>| Hop {
                interface,
                gateway: gateway.map(ip),
                source: None,
                mtu: None,
            };
            let tunnel = Interface { mac: None, ..interface(4) };
            let down = Interface { running: false, ..interface(3) };
            Self(
                Interfaces::new([interface(2), down, tunnel], 1),
                LocalAddresses::new(
                    [
                        LocalAddress::new(2, ip("10.0.0.1"), 24),
                        LocalAddress::new(2, ip("fe80::1"), 64),
                        LocalAddress::new(2, ip("2001:db8::1"), 64),
                    ],
                    [],
                ),
                Neighbours::new([
                    (2, ip("10.0.0.254"), Neighbour::Usable(ROUTER)),
                    (2, ip("10.0.0.9"), Neighbour::Stale(PEER)),
                    (2, ip("10.0.0.10"), Neighbour::Resolving),
                    (2, ip("10.0.0.11"), Neighbour::Failed),
                    (2, ip("fe80::fe"), Neighbour::Usable(ROUTER)),
                ]),
                Routes::new([
                    (ip("10.0.0.0"), 24, Route::Hop(Hop { source: Some(ip("10.0.0.1")), ..hop(2, None) })),
                    (ip("0.0.0.0"), 0, Route::Hop(Hop { mtu: Some(1400), ..hop(2, Some("10.0.0.254")) })),
                    (ip("192.0.2.0"), 24, Route::Reject),
                    (ip("192.0.2.128"), 25, Route::Kernel),
                    (ip("10.3.0.0"), 16, Route::Hop(hop(3, None))),
                    (ip("10.4.0.0"), 16, Route::Hop(hop(4, None))),
                    (ip("10.5.0.0"), 16, Route::Hop(hop(5, None))),
                    (ip("10.6.0.0"), 16, Route::Hop(hop(2, Some("fe80::fe")))),
                    (ip("2001:db8:f::"), 48, Route::Hop(hop(2, Some("fe80::fe")))),
                ]),
            )
        }

        fn view(&self) -> View<'_> {
            View { interfaces: &self.0, addresses: &self.1, neighbours: &self.2, routes: &self.3 }
        }

        fn path(&self, destination: &str) -> Result<Path, NoPath> {
            self.view().path(ip(destination))
        }
    }

    #[test]
    fn by_a_router_and_on_the_link() {
        let tables = TestTables::new();
        let router = Path {
            interface: 2,
            source: ip("10.0.0.1"),
            own: OWN,
            next_hop: ROUTER,
            next_hop_address: ip("10.0.0.254"),
            mtu: 1400,
            stale: false,
        };
        assert_eq!(tables.path("198.51.100.1"), Ok(router));
        let peer =
            Path { next_hop: PEER, next_hop_address: ip("10.0.0.9"), mtu: 1500, stale: true, ..router };
        assert_eq!(tables.path("10.0.0.9"), Ok(peer));
        // An IPv4 destination through an IPv6 router.
        let v6 = Path { next_hop_address: ip("fe80::fe"), mtu: 1500, ..router };
        assert_eq!(tables.path("10.6.0.1"), Ok(v6));
        assert_eq!(tables.path("2001:db8:f::1"), Ok(Path { source: ip("2001:db8::1"), ..v6 }));
        let on_link = tables.view().path_on_link(2, ip("fe80::fe"));
        assert_eq!(on_link, Ok(Path { source: ip("fe80::1"), ..v6 }));
    }

    #[test]
    fn why_not() {
        let tables = TestTables::new();
        let why = |destination: &str| tables.path(destination).unwrap_err();
        for address in ["10.0.0.255", "255.255.255.255", "224.0.0.1", "ff02::1", "0.0.0.0", "::"] {
            assert_eq!(why(address), NoPath::NotUnicast(ip(address)));
        }
        for own in ["10.0.0.1", "127.0.0.1", "::1", "2001:db8::1"] {
            assert_eq!(why(own), NoPath::Local(ip(own)));
        }
        assert_eq!(why("fe80::fe"), NoPath::NeedsInterface(ip("fe80::fe")));
        assert_eq!(why("2001:db8:e::1"), NoPath::NoRoute(ip("2001:db8:e::1")));
        assert_eq!(why("192.0.2.1"), NoPath::Rejected(ip("192.0.2.1")));
        assert_eq!(why("192.0.2.129"), NoPath::Kernel(ip("192.0.2.129")));
        assert_eq!(why("10.3.0.1"), NoPath::InterfaceDown(3));
        assert_eq!(why("10.4.0.1"), NoPath::NotEthernet(4));
        assert_eq!(why("10.5.0.1"), NoPath::NoInterface(5));
        let no_source = NoPath::NoSource { interface: 2, destination: ip("fd00::1") };
        let bare = TestTables(tables.0, LocalAddresses::default(), tables.2, tables.3);
        assert_eq!(bare.view().path_on_link(2, ip("fd00::1")), Err(no_source));
    }

    #[test]
    fn a_neighbour_that_is_missing_can_be_asked_for_unless_it_is_being_asked() {
        let tables = TestTables::new();
        let ask = |destination: &str| {
            let why = tables.path(destination).unwrap_err();
            assert!(why.may_pass(), "{why}");
            why.to_ask()
        };
        assert_eq!(ask("10.0.0.8"), Some((2, ip("10.0.0.8"))));
        assert_eq!(ask("10.0.0.11"), Some((2, ip("10.0.0.11"))));
        assert_eq!(ask("10.0.0.10"), None);
        assert!(!tables.path("192.0.2.1").unwrap_err().may_pass());
    }
}
