//! The senders and VLANs from which the program takes datagrams.
//!
//! ```text
//! source ─▸ a bit of 4096 clear ─▸ taken                                one load, in nearly all cases
//!              set ─▸ in `sources`? ─▸ kernel
//!           any networks? ─▸ in one of `prefixes`? ──▸ kernel           only if there are any
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Take;
use super::maps::{VLANS, prefix_key, source_key};
use crate::Error;

/// Maximum number of addresses, and of networks, in [`Sources`]. Each entry takes about 100 bytes of kernel memory.
pub(super) const SOURCES: u32 = 16_384;
/// Words of the map's bits.
const MAYBE: usize = 4096 / 64;
/// A VLAN's byte, as in the program's source.
const TAG_KEPT: u8 = 0x80;
const TAG_REMOVED: u8 = 0x40;

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
fn masked(address: IpAddr, len: u8) -> Option<IpAddr> {
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

impl Take {
    /// Leaves datagrams from exactly these senders to the kernel from now on. Senders in both sets are left throughout.
    ///
    /// # Errors
    /// More than 16,384 addresses or networks, or a prefix longer than its address. The previous set then stays in
    /// effect.
    pub fn set_sources(&mut self, sources: &Sources) -> Result<(), Error> {
        let refused = |error: &(dyn std::error::Error + 'static)| Error::Sources { reason: reason(error) };
        for address in sources.addresses.difference(&self.sources.addresses) {
            self.maps.sources.insert(source_key(*address), 1, 0).map_err(|error| refused(&error))?;
        }
        for network in sources.networks.difference(&self.sources.networks) {
            let Network { address, len, .. } = *network;
            if masked(address, len) != Some(address) {
                return Err(Error::Sources { reason: format!("{address}/{len} is not a network") });
            }
            self.maps.prefixes.insert(&prefix_key(network), 1, 0).map_err(|error| refused(&error))?;
        }
        self.publish_checks(sources);
        // Removal fails only if the key does not exist.
        for address in self.sources.addresses.difference(&sources.addresses) {
            let _ = self.maps.sources.remove(&source_key(*address));
        }
        for network in self.sources.networks.difference(&sources.networks) {
            let _ = self.maps.prefixes.remove(&prefix_key(network));
        }
        self.sources.clone_from(sources);
        Ok(())
    }

    /// Senders whose datagrams are left to the kernel.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Takes tagged frames (IEEE 802.1Q) of these VLANs, 1 to 4094, from now on, and writes this priority (PCP, 0 to 7)
    /// into their tag, which a reply keeps. Untagged frames, and those of VLAN 0 without their tag, are always taken;
    /// those of other VLANs are left to the kernel.
    pub fn set_vlans(&self, vlans: impl IntoIterator<Item = (u16, u8)>) {
        let mut words = [0_u64; 4096 / VLANS];
        let of_none = (0, TAG_REMOVED);
        let of_some = vlans.into_iter().filter(|(vlan, _)| (1..4095).contains(vlan));
        for (vlan, entry) in of_some.map(|(vlan, pcp)| (vlan, TAG_KEPT | pcp & 7)).chain([of_none]) {
            let shift = usize::from(vlan) % VLANS * 8;
            let word = &mut words[usize::from(vlan) / VLANS];
            *word = *word & !(0xff << shift) | u64::from(entry) << shift;
        }
        for (at, word) in words.into_iter().enumerate() {
            self.maps.vlans.element(at)[0].store(word, Release);
        }
    }

    /// Bits that are still needed stay set: a word is replaced atomically.
    fn publish_checks(&self, sources: &Sources) {
        let mut maybe = [0_u64; MAYBE];
        for address in &sources.addresses {
            let spot = spot(*address);
            maybe[spot / 64] |= 1 << (spot % 64);
        }
        let words = self.maps.checks.element(0);
        for (word, bits) in words.iter().zip(maybe) {
            word.store(bits, Release);
        }
        words[MAYBE].store(u64::from(!sources.networks.is_empty()), Relaxed);
    }
}

/// The bit of an address, as in the program's source.
pub(super) fn spot(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
        }
    };
    ((bits ^ bits >> 12 ^ bits >> 24) % 4096) as usize
}

/// The system's own error text, if there is one.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    match crate::attach::errno(error) {
        Some(libc::E2BIG | libc::ENOSPC) => format!("there are more than {SOURCES}"),
        Some(code) => std::io::Error::from_raw_os_error(code).to_string(),
        None => error.to_string(),
    }
}
