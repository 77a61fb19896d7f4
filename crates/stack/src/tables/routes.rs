//! Routes: the kernel's main table, by longest prefix.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::prefixes::Prefixes;

/// The next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The outgoing interface.
    pub interface: u32,
    /// The gateway, of either family (RFC 5549); `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The route's preferred source address; `None` leaves the choice to
    /// [`LocalAddresses::source_for`](super::LocalAddresses::source_for).
    pub source: Option<IpAddr>,
    /// The route's MTU, bytes, if it is set.
    pub mtu: Option<u32>,
}

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Send to this next hop.
    Hop(Hop),
    /// Reject: blackhole, unreachable, prohibit, throw.
    Reject,
    /// Only the kernel can: local delivery, broadcast, encapsulation.
    Kernel,
}

/// The routes of both families at one moment. Memory is bounded by their number: up to 24 bytes per IPv4 prefix and
/// 48 per IPv6 prefix, and at most 512 KiB more.
#[derive(Debug)]
pub struct Routes {
    v4: Prefixes<u32>,
    v6: Prefixes<u128>,
    /// The distinct routes: thousands of prefixes share a few.
    routes: Box<[Route]>,
    len: usize,
}

impl Routes {
    /// A table of `(destination, prefix length, route)`. Host bits are ignored, a prefix length beyond the address's
    /// is clamped, and of several routes with the same prefix the first wins.
    #[must_use]
    pub fn new(routes: impl IntoIterator<Item = (IpAddr, u8, Route)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut distinct = Vec::new();
        let mut numbers = HashMap::new();
        for (destination, prefix, route) in routes {
            let number = *numbers.entry(route).or_insert_with(|| {
                distinct.push(route);
                distinct.len() as u32 - 1
            });
            match destination {
                IpAddr::V4(address) => v4.push((address.to_bits(), prefix, number)),
                IpAddr::V6(address) => v6.push((address.to_bits(), prefix, number)),
            }
        }
        let len = v4.len() + v6.len();
        Self { v4: Prefixes::new(v4), v6: Prefixes::new(v6), routes: distinct.into(), len }
    }

    /// The route of the longest prefix that covers `destination`; `None` if none does.
    #[must_use]
    #[inline]
    pub fn get(&self, destination: IpAddr) -> Option<&Route> {
        let number = match destination {
            IpAddr::V4(address) => self.v4.get(address.to_bits()),
            IpAddr::V6(address) => self.v6.get(address.to_bits()),
        };
        self.routes.get(number? as usize)
    }

    /// The IPv4 addresses at which the result of [`get`](Self::get) changes, ascending from 0.0.0.0, each with the
    /// result from there to the next.
    pub fn changes_v4(&self) -> impl Iterator<Item = (Ipv4Addr, Option<&Route>)> {
        let changes = self.v4.changes();
        changes.map(|(first, number)| {
            (Ipv4Addr::from_bits(first), number.and_then(|at| self.routes.get(at as usize)))
        })
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Routes {
    fn default() -> Self {
        Self::new([])
    }
}
