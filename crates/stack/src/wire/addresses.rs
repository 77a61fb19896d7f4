//! The two IP addresses of a datagram, always of one family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Sum;

/// Source and destination address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Addresses {
    V4 { source: Ipv4Addr, destination: Ipv4Addr },
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

impl Addresses {
    /// Both addresses, if they are of one family.
    #[must_use]
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Whether they are IPv4 addresses; IPv6 otherwise.
    #[must_use]
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        matches!(self, Self::V4 { .. })
    }

    /// The source.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> IpAddr {
        match *self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The destination.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// The addresses of the reverse direction.
    #[must_use]
    #[inline]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => Self::V4 { source: destination, destination: source },
            Self::V6 { source, destination } => Self::V6 { source: destination, destination: source },
        }
    }

    /// The contribution of both addresses to a checksum; the same in both directions.
    #[must_use]
    #[inline]
    pub fn sum(&self) -> Sum {
        match self {
            Self::V4 { source, destination } => {
                Sum::of(&source.octets()).plus(Sum::of(&destination.octets()))
            }
            Self::V6 { source, destination } => {
                Sum::of(&source.octets()).plus(Sum::of(&destination.octets()))
            }
        }
    }
}
