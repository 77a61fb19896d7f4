//! Where a destination is reached: the kernel's main table, longest prefix first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::prefixes::Prefixes;

/// How a destination is reached over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The interface to send by.
    pub interface: u32,
    /// The router to send to, of either family (RFC 5549); `None` if the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The source address the route prefers; `None` leaves the choice to
    /// [`LocalAddresses::source_for`](super::LocalAddresses::source_for).
    pub source: Option<IpAddr>,
    /// Most bytes of an IP packet on this way, if the route says less than the interface.
    pub mtu: Option<u32>,
}

/// What the table says of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Send it there.
    Hop(Hop),
    /// Nothing may be sent there: blackhole, unreachable, prohibit, throw.
    Reject,
    /// Only the kernel can: local delivery, broadcast, encapsulation.
    Kernel,
}

/// The routes of both families at one moment. Memory is bounded by their number: up to 24 bytes per IPv4 prefix and 48
/// per IPv6 prefix, and at most 512 KiB more.
#[derive(Debug)]
pub struct Routes {
    v4: Prefixes<u32>,
    v6: Prefixes<u128>,
    /// What prefixes lead to, each once: thousands of routes share a few hops.
    routes: Box<[Route]>,
    len: usize,
}

impl Routes {
    /// A table of `(destination, prefix length, route)`. Bits behind the prefix do not matter, a length beyond the
    /// address's is taken for all its bits, and of several routes with one prefix the first counts.
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

    /// IPv4 addresses where the answer of [`get`](Self::get) changes, ascending from 0.0.0.0 on, each with the answer from there
    /// to the next.
    pub fn changes_v4(&self) -> impl Iterator<Item = (Ipv4Addr, Option<&Route>)> {
        let changes = self.v4.changes();
        changes.map(|(first, number)| {
            (Ipv4Addr::from_bits(first), number.and_then(|at| self.routes.get(at as usize)))
        })
    }

    /// How many routes it was made of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
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
