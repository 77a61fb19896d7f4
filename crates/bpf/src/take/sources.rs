//! The senders whose datagrams are left to the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Maximum number of addresses, and of networks, in [`Sources`]. Each entry takes about 100 bytes of kernel memory.
pub(super) const SOURCES: u32 = 16_384;

/// Senders whose datagrams are left to the kernel and its source validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Single addresses: this host's, broadcast and network addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Networks; if there are any, each frame costs a lookup.
    pub networks: BTreeSet<Network>,
}

/// A network from which no datagram is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The VLAN of the frames; 0: untagged.
    pub vlan: u16,
    /// The network's first address.
    pub address: IpAddr,
    /// Prefix length.
    pub len: u8,
}

impl Sources {
    /// Is a datagram from this address, in an untagged frame, left to the kernel?
    #[must_use]
    pub fn leaves(&self, source: IpAddr) -> bool {
        let covers =
            |network: &Network| network.vlan == 0 && masked(source, network.len) == Some(network.address);
        self.addresses.contains(&source) || self.networks.iter().any(covers)
    }
}

/// The first `len` bits of an address, the others 0. `None` if the address has fewer bits.
pub(super) fn masked(address: IpAddr, len: u8) -> Option<IpAddr> {
    let len = u32::from(len);
    match address {
        IpAddr::V4(v4) if len <= 32 => {
            Some(IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(32 - len).unwrap_or(0)).into()))
        }
        IpAddr::V6(v6) if len <= 128 => {
            Some(IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(128 - len).unwrap_or(0)).into()))
        }
        _ => None,
    }
}
