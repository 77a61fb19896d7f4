//! Which senders and VLANs the program takes datagrams of.
//!
//! ```text
//! source ─▸ a bit of 4096 off ──▸ taken                                one load, nearly always
//!              on ─▸ in `sources`? ──▸ kernel
//!           networks at all? ─▸ in one of `prefixes`? ──▸ kernel        where there are any
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Take;
use super::maps::{VLANS, prefix_key, source_key};
use crate::Error;

/// Most addresses, and most networks, of [`Sources`]. Each that is there takes about 100 bytes of the kernel's memory.
pub(super) const SOURCES: u32 = 16_384;
/// Words of the map's bits.
const MAYBE: usize = 4096 / 64;
/// A VLAN's byte, as in the program's source.
const TAG_KEPT: u8 = 0x80;
const TAG_REMOVED: u8 = 0x40;

/// Senders whose datagrams are left to the kernel, whose own validation decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Single addresses: this host's, broadcast and network addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Networks, which cost a lookup per frame as soon as there is one.
    pub networks: BTreeSet<Network>,
}

/// A network from which no datagram is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The VLAN that the frames come by; 0: untagged.
    pub vlan: u16,
    /// The network's first address.
    pub address: IpAddr,
    /// Bits of the prefix.
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

/// The first `len` bits of an address, the others 0. `None`: it has not that many.
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
    /// From now on leaves datagrams from these senders to the kernel, and from no others. What stays is left all the time.
    ///
    /// # Errors
    /// More than 16,384 addresses or networks, a prefix longer than its address. What was left before still is then.
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
        // Only what is not there cannot be removed.
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

    /// From now on takes tagged frames (IEEE 802.1Q) of these VLANs, 1 to 4094, and writes this priority (PCP, 0 to 7) into
    /// their tag, which a reply keeps. Untagged frames, and those of VLAN 0 without their tag, it takes anyway; those of other
    /// VLANs it leaves to the kernel.
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

    /// Bits that are still needed stay set: a word is replaced at once.
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

/// Which bit an address has, as in the program's source.
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

/// The system's own words where there are any.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    match crate::attach::errno(error) {
        Some(libc::E2BIG | libc::ENOSPC) => format!("there are more than {SOURCES}"),
        Some(code) => std::io::Error::from_raw_os_error(code).to_string(),
        None => error.to_string(),
    }
}
