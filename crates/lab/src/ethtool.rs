//! Offloads through the ethtool ioctl: one number per request, known to every kernel.

use std::io;
use std::os::fd::BorrowedFd;

use crate::{Offloads, sys};

/// An offload's command numbers to read and to write it (linux/ethtool.h), in the order of [`Offloads::named`].
const COMMANDS: [(u32, u32); 6] = [
    (0x14, 0x15), // ETHTOOL_GRXCSUM, ETHTOOL_SRXCSUM
    (0x16, 0x17), // ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM
    (0x18, 0x19), // ETHTOOL_GSG, ETHTOOL_SSG
    (0x1e, 0x1f), // ETHTOOL_GTSO, ETHTOOL_STSO
    (0x23, 0x24), // ETHTOOL_GGSO, ETHTOOL_SGSO
    (0x2b, 0x2c), // ETHTOOL_GGRO, ETHTOOL_SGRO
];

/// What is on at an interface of the socket's network namespace.
pub(crate) fn offloads(socket: BorrowedFd<'_>, interface: &str) -> io::Result<Offloads> {
    let mut on = [false; COMMANDS.len()];
    for (on, (get, _)) in on.iter_mut().zip(COMMANDS) {
        *on = sys::ethtool(socket, interface, get, 0)? != 0;
    }
    let [rx_checksum, tx_checksum, scatter_gather, tso, gso, gro] = on;
    Ok(Offloads { rx_checksum, tx_checksum, scatter_gather, tso, gso, gro })
}

/// Asks for all of them. The kernel may leave out what it cannot do without saying so: read back.
pub(crate) fn set_offloads(socket: BorrowedFd<'_>, interface: &str, wanted: &Offloads) -> io::Result<()> {
    let now = offloads(socket, interface)?;
    let asked = wanted.named().map(|(_, on)| on).into_iter().zip(now.named().map(|(_, on)| on)).zip(COMMANDS);
    // Off from the top, on from the bottom: no step asks for an offload without what it needs.
    let (on, off): (Vec<_>, Vec<_>) =
        asked.filter(|((want, have), _)| want != have).partition(|((want, _), _)| *want);
    for ((want, _), (_, set)) in off.into_iter().rev().chain(on) {
        sys::ethtool(socket, interface, set, u32::from(want))?;
    }
    Ok(())
}
