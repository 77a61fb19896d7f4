//! Offloads through the ethtool ioctl: one number per request, supported by every kernel.

use std::io;
use std::os::fd::BorrowedFd;

use udpath_netlink::ioctl::{self, Command, ethtool_value};

use crate::Offloads;

/// The commands that read and write an offload, in the order of [`Offloads::named`].
const COMMANDS: [(Command, Command); 6] = [
    (ioctl::RX_CHECKSUM, ioctl::SET_RX_CHECKSUM),
    (ioctl::TX_CHECKSUM, ioctl::SET_TX_CHECKSUM),
    (ioctl::SCATTER_GATHER, ioctl::SET_SCATTER_GATHER),
    (ioctl::TSO, ioctl::SET_TSO),
    (ioctl::GSO, ioctl::SET_GSO),
    (ioctl::GRO, ioctl::SET_GRO),
];

/// The offloads that are on at an interface in the socket's network namespace.
pub(crate) fn offloads(socket: BorrowedFd<'_>, interface: &str) -> io::Result<Offloads> {
    let mut on = [false; COMMANDS.len()];
    for (on, (get, _)) in on.iter_mut().zip(COMMANDS) {
        *on = ethtool_value(socket, interface, get, 0)? != 0;
    }
    let [rx_checksum, tx_checksum, scatter_gather, tso, gso, gro] = on;
    Ok(Offloads { rx_checksum, tx_checksum, scatter_gather, tso, gso, gro })
}

/// Sets all of them. The kernel may silently drop what it does not support: read back.
pub(crate) fn set_offloads(socket: BorrowedFd<'_>, interface: &str, wanted: &Offloads) -> io::Result<()> {
    let now = offloads(socket, interface)?;
    let asked = wanted.named().map(|(_, on)| on).into_iter().zip(now.named().map(|(_, on)| on)).zip(COMMANDS);
    // Off from the top, on from the bottom: no step requests an offload without its dependencies.
    let (on, off): (Vec<_>, Vec<_>) =
        asked.filter(|((want, have), _)| want != have).partition(|((want, _), _)| *want);
    for ((want, _), (_, set)) in off.into_iter().rev().chain(on) {
        ethtool_value(socket, interface, set, u32::from(want))?;
    }
    Ok(())
}
