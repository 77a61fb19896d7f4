//! rtnetlink: links, addresses, neighbours, routes, rules and queueing disciplines of a network namespace.
//!
//! ```text
//!  client.rs        Rtnetlink: requests, one at a time
//!   Update           the object of a notification or of a list entry
//!  link.rs ...      one kind of object each: read from a message's body, and written into one
//! ```

pub mod address;
#[cfg(test)]
mod captured;
mod client;
pub mod link;
pub mod neighbour;
pub mod qdisc;
pub mod route;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use address::Address;
pub use client::{Rtnetlink, VethEnd, xdp};
pub use link::Link;
pub use neighbour::Neighbour;
pub use qdisc::Qdisc;
pub use route::{Hop, Route};

use crate::attribute::Writer;
use crate::numbers::*;

/// Multicast groups (`RTNLGRP_*` of linux/rtnetlink.h) as bits of a subscription: group n is bit n - 1.
pub mod group {
    /// Links.
    pub const LINK: u32 = 1 << 0;
    /// Neighbours.
    pub const NEIGHBOUR: u32 = 1 << 2;
    /// IPv4 addresses.
    pub const IPV4_ADDRESS: u32 = 1 << 4;
    /// IPv4 routes.
    pub const IPV4_ROUTE: u32 = 1 << 6;
    /// IPv6 addresses.
    pub const IPV6_ADDRESS: u32 = 1 << 8;
    /// IPv6 routes.
    pub const IPV6_ROUTE: u32 = 1 << 10;
    /// Next hop objects.
    pub const NEXT_HOP: u32 = 1 << 31;
}

/// The object of a notification or of a list entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A link that is new or has changed.
    NewLink(Link),
    /// A link that is gone.
    DelLink(Link),
    /// An address that is new or has changed.
    NewAddress(Address),
    /// An address that is gone.
    DelAddress(Address),
    /// A neighbour that is new or has changed.
    NewNeighbour(Neighbour),
    /// A neighbour that is gone.
    DelNeighbour(Neighbour),
    /// A route that is new or has changed.
    NewRoute(Route),
    /// A route that is gone.
    DelRoute(Route),
    /// A change of next hop objects.
    NextHop,
    /// A message of another type.
    Other(u16),
}

impl Update {
    /// Reads a message of this type; `None` if it is malformed.
    #[must_use]
    pub fn parse(kind: u16, body: &[u8]) -> Option<Self> {
        Some(match kind {
            RTM_NEWLINK => Self::NewLink(Link::parse(body)?),
            RTM_DELLINK => Self::DelLink(Link::parse(body)?),
            RTM_NEWADDR => Self::NewAddress(Address::parse(body)?),
            RTM_DELADDR => Self::DelAddress(Address::parse(body)?),
            RTM_NEWNEIGH => Self::NewNeighbour(Neighbour::parse(body)?),
            RTM_DELNEIGH => Self::DelNeighbour(Neighbour::parse(body)?),
            RTM_NEWROUTE => Self::NewRoute(Route::parse(body)?),
            RTM_DELROUTE => Self::DelRoute(Route::parse(body)?),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => Self::NextHop,
            other => Self::Other(other),
        })
    }

    /// The type and body of the message for this update, for tests that act as the kernel. The body of [`NextHop`]
    /// and [`Other`] is empty.
    ///
    /// [`NextHop`]: Self::NextHop
    /// [`Other`]: Self::Other
    #[must_use]
    pub fn encode(&self) -> (u16, Vec<u8>) {
        match self {
            Self::NewLink(link) => (RTM_NEWLINK, link.body()),
            Self::DelLink(link) => (RTM_DELLINK, link.body()),
            Self::NewAddress(address) => (RTM_NEWADDR, address.body()),
            Self::DelAddress(address) => (RTM_DELADDR, address.body()),
            Self::NewNeighbour(neighbour) => (RTM_NEWNEIGH, neighbour.body()),
            Self::DelNeighbour(neighbour) => (RTM_DELNEIGH, neighbour.body()),
            Self::NewRoute(route) => (RTM_NEWROUTE, route.body()),
            Self::DelRoute(route) => (RTM_DELROUTE, route.body()),
            Self::NextHop => (RTM_NEWNEXTHOP, Vec::new()),
            Self::Other(kind) => (*kind, Vec::new()),
        }
    }
}

/// Requests for lists: type and body. All take [`crate::flag::DUMP`].
pub mod list {
    use super::{
        IFLA_EXT_MASK, Link, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETROUTE, RTM_GETRULE, Writer,
    };

    /// `RTEXT_FILTER_SKIP_STATS` of linux/rtnetlink.h.
    const SKIP_STATS: u32 = 1 << 3;

    /// Links without their IPv6 statistics, which make up most of a link's message.
    #[must_use]
    pub fn links() -> (u16, Vec<u8>) {
        let mut body = Link::default().writer(0);
        body.u32(IFLA_EXT_MASK, SKIP_STATS);
        (RTM_GETLINK, body.finish())
    }

    /// Addresses.
    #[must_use]
    pub fn addresses() -> (u16, Vec<u8>) {
        (RTM_GETADDR, vec![0; 8])
    }

    /// Neighbours.
    #[must_use]
    pub fn neighbours() -> (u16, Vec<u8>) {
        (RTM_GETNEIGH, vec![0; 12])
    }

    /// Routes.
    #[must_use]
    pub fn routes() -> (u16, Vec<u8>) {
        (RTM_GETROUTE, vec![0; 12])
    }

    /// Rules of policy routing of one family.
    #[must_use]
    pub fn rules(family: u8) -> (u16, Vec<u8>) {
        // struct fib_rule_hdr.
        (RTM_GETRULE, Writer::after(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).finish())
    }
}

/// The family of an address.
fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// An address of a family; `None` if the family is not an IP family, or the length does not match it.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn updates_are_read_as_encoded() {
        let address: IpAddr = [10, 0, 0, 1].into();
        let updates = [
            Update::NewLink(Link { index: 2, ..Link::default() }),
            Update::DelLink(Link { index: 3, ..Link::default() }),
            Update::NewAddress(Address::new(2, address, 24)),
            Update::DelAddress(Address::new(2, address, 24)),
            Update::NewNeighbour(Neighbour::new(2, address)),
            Update::DelNeighbour(Neighbour::new(2, address)),
            Update::NewRoute(Route::new(address, 32)),
            Update::DelRoute(Route::new(address, 32)),
            Update::NextHop,
            Update::Other(200),
        ];
        for update in updates {
            let (kind, body) = update.encode();
            assert_eq!(Update::parse(kind, &body), Some(update));
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(kind in 0_u16..120, bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Update::parse(kind, &bytes);
        }
    }
}
