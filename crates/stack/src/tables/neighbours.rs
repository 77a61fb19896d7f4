//! The MAC addresses of neighbours: the kernel's ARP and neighbour discovery caches, merged.

use std::net::IpAddr;

use super::hash::{Halves, Map, halves};
use crate::wire::Mac;

/// The state of a neighbour in the kernel. The states (`NUD_*` of linux/neighbour.h) are grouped by what a sender may
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// It has this MAC address: reachable, delay, probe, permanent, noarp.
    Usable(Mac),
    /// It had this MAC address but has not been confirmed for a while. Send to it, and request confirmation from
    /// the kernel ([`Resolver`](super::Resolver)): the kernel does not see frames sent past it, and would never do
    /// so on its own.
    Stale(Mac),
    /// Being resolved: incomplete.
    Resolving,
    /// It did not answer: failed. Resolution may be retried.
    Failed,
}

impl Neighbour {
    /// The MAC address to send frames to.
    #[must_use]
    #[inline]
    pub const fn mac(self) -> Option<Mac> {
        match self {
            Self::Usable(mac) | Self::Stale(mac) => Some(mac),
            Self::Resolving | Self::Failed => None,
        }
    }
}

/// All neighbours at one moment.
///
/// A lookup is one hash and, nearly always, one cache line: an IPv4 entry takes 16 bytes, an IPv6 entry 32. At most
/// half of the slots are used, so 1,000 IPv4 neighbours take 32 KiB.
#[derive(Debug, Default)]
pub struct Neighbours {
    v4: Map<(u32, u32), Neighbour>,
    v6: Map<(u32, Halves), Neighbour>,
}

impl Neighbours {
    /// A table of `(interface, address, neighbour)`; of several with the same address the last wins.
    #[must_use]
    pub fn new(neighbours: impl IntoIterator<Item = (u32, IpAddr, Neighbour)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (interface, address, neighbour) in neighbours {
            match address {
                IpAddr::V4(address) => v4.push(((interface, address.to_bits()), neighbour)),
                IpAddr::V6(address) => v6.push(((interface, halves(address)), neighbour)),
            }
        }
        Self { v4: Map::new(v4), v6: Map::new(v6) }
    }

    /// The state of `address` on the link of `interface`; `None` if unknown.
    #[must_use]
    #[inline]
    pub fn get(&self, interface: u32, address: IpAddr) -> Option<Neighbour> {
        match address {
            IpAddr::V4(address) => self.v4.get((interface, address.to_bits())),
            IpAddr::V6(address) => self.v6.get((interface, halves(address))),
        }
    }

    /// Number of neighbours.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_small_as_said() {
        assert_eq!(size_of::<Option<((u32, u32), Neighbour)>>(), 16);
        assert_eq!(size_of::<Option<((u32, Halves), Neighbour)>>(), 32);
    }

    #[test]
    fn the_same_address_on_two_links_is_two_neighbours() {
        let (here, there) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap());
        let table = Neighbours::new([
            (2, v4, Neighbour::Usable(here)),
            (3, v4, Neighbour::Stale(there)),
            (2, v6, Neighbour::Failed),
            (3, v6, Neighbour::Resolving),
            (3, v6, Neighbour::Usable(there)),
        ]);
        assert_eq!(table.len(), 4);
        assert_eq!(table.get(2, v4).and_then(Neighbour::mac), Some(here));
        assert_eq!(table.get(3, v4), Some(Neighbour::Stale(there)));
        assert_eq!(table.get(2, v6).and_then(Neighbour::mac), None);
        assert_eq!(table.get(3, v6), Some(Neighbour::Usable(there)));
        assert_eq!(table.get(4, v4), None);
    }
}
