//! Writes the senders and VLANs from which the program takes datagrams to its maps.
//!
//! ```text
//! source ─▸ a bit of 4096 clear ─▸ taken                                one load, in nearly all cases
//!              set ─▸ in `sources`? ─▸ kernel
//!           any networks? ─▸ in one of `prefixes`? ──▸ kernel           only if there are any
//! ```

use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::maps::{Maps, VLANS, prefix_key, source_key};
use super::sources::{Network, SOURCES, Sources, masked};
use crate::Error;
use crate::error::Cause;

/// Words of the map's bits.
const MAYBE: usize = 4096 / 64;
/// A VLAN's byte, as in the program's source.
const TAG_KEPT: u8 = 0x80;
const TAG_REMOVED: u8 = 0x40;

/// Replaces the senders that are left to the kernel: those in both sets are left throughout. Leaves `old` in effect if
/// it fails.
pub(super) fn replace_sources(maps: &mut Maps, old: &Sources, new: &Sources) -> Result<(), Error> {
    let refused = |error: &(dyn std::error::Error + 'static)| Error::Sources { source: reason(error) };
    for address in new.addresses.difference(&old.addresses) {
        maps.sources.insert(source_key(*address), 1, 0).map_err(|error| refused(&error))?;
    }
    for network in new.networks.difference(&old.networks) {
        let Network { address, len, .. } = *network;
        if masked(address, len) != Some(address) {
            return Err(Error::Sources { source: format!("{address}/{len} is not a network").into() });
        }
        maps.prefixes.insert(&prefix_key(network), 1, 0).map_err(|error| refused(&error))?;
    }
    publish_checks(maps, new);
    // Removal fails only if the key does not exist.
    for address in old.addresses.difference(&new.addresses) {
        let _ = maps.sources.remove(&source_key(*address));
    }
    for network in old.networks.difference(&new.networks) {
        let _ = maps.prefixes.remove(&prefix_key(network));
    }
    Ok(())
}

/// Replaces the VLANs whose tagged frames are taken, each with the priority of replies.
pub(super) fn write_vlans(maps: &Maps, vlans: impl IntoIterator<Item = (u16, u8)>) {
    let mut words = [0_u64; 4096 / VLANS];
    let of_none = (0, TAG_REMOVED);
    let of_some = vlans.into_iter().filter(|(vlan, _)| (1..4095).contains(vlan));
    for (vlan, entry) in of_some.map(|(vlan, pcp)| (vlan, TAG_KEPT | pcp & 7)).chain([of_none]) {
        let shift = usize::from(vlan) % VLANS * 8;
        let word = &mut words[usize::from(vlan) / VLANS];
        *word = *word & !(0xff << shift) | u64::from(entry) << shift;
    }
    for (at, word) in words.into_iter().enumerate() {
        maps.vlans.element(at)[0].store(word, Release);
    }
}

/// Bits that are still needed stay set: a word is replaced atomically.
fn publish_checks(maps: &Maps, sources: &Sources) {
    let mut maybe = [0_u64; MAYBE];
    for address in &sources.addresses {
        let spot = spot(*address);
        maybe[spot / 64] |= 1 << (spot % 64);
    }
    let words = maps.checks.element(0);
    for (word, bits) in words.iter().zip(maybe) {
        word.store(bits, Release);
    }
    words[MAYBE].store(u64::from(!sources.networks.is_empty()), Relaxed);
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

/// The system's own error, if there is one.
fn reason(error: &(dyn std::error::Error + 'static)) -> Cause {
    match crate::attach::errno(error) {
        Some(libc::E2BIG | libc::ENOSPC) => format!("there are more than {SOURCES}").into(),
        Some(code) => std::io::Error::from_raw_os_error(code).into(),
        None => crate::attach::cause(error),
    }
}
