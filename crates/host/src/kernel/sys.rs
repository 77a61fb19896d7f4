//! The ethtool ioctl: one call that reads and writes a structure of the caller's, in a buffer that is always big enough.
#![allow(unsafe_code, reason = "ioctl has no safe form; this module is its only place")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for what comes in lists: strings of 32 bytes, numbers of 8. Four MiB is 131,072 counter names, thirty times what
/// the largest driver has with 128 queues. The kernel writes as many strings and counters as the driver has at that
/// moment, however many were asked for, so there is no exact size; untouched pages cost nothing.
const LISTS: usize = 4 << 20;

/// A command and the room that its structure needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    number: u32,
    room: usize,
    /// Where the request says how much may be written behind the structure: offset of a count, bytes of each.
    counts: &'static [(usize, usize)],
    /// Bytes of the structure itself.
    fixed: usize,
}

const fn exact(number: u32, fixed: usize) -> Command {
    Command { number, room: fixed, counts: &[], fixed }
}

const fn list(number: u32, fixed: usize, counts: &'static [(usize, usize)]) -> Command {
    Command { number, room: LISTS, counts, fixed }
}

/// Bytes of `struct ethtool_rxnfc`; the places of rules begin four bytes before its end, in its padding.
const RXNFC: usize = 192;

/// `ETHTOOL_GDRVINFO`, `struct ethtool_drvinfo`.
pub(super) const DRIVER: Command = exact(0x03, 196);
/// `ETHTOOL_GSTRINGS`, `struct ethtool_gstrings`.
pub(super) const STRINGS: Command = list(0x1b, 12, &[]);
/// `ETHTOOL_GSTATS`, `struct ethtool_stats`.
pub(super) const COUNTERS: Command = list(0x1d, 8, &[]);
/// `ETHTOOL_GPERMADDR`, `struct ethtool_perm_addr` with `MAX_ADDR_LEN` bytes.
pub(super) const PERMANENT_ADDRESS: Command = list(0x20, 8, &[(4, 1)]);
/// `ETHTOOL_GRXFH`, `struct ethtool_rxnfc`, as the next ones.
pub(super) const HASH_FIELDS: Command = exact(0x29, RXNFC);
/// `ETHTOOL_SRXFH`.
pub(super) const SET_HASH_FIELDS: Command = exact(0x2a, RXNFC);
/// `ETHTOOL_GRXCLSRLCNT`.
pub(super) const RULE_COUNT: Command = exact(0x2e, RXNFC);
/// `ETHTOOL_GRXCLSRULE`.
pub(super) const RULE: Command = exact(0x2f, RXNFC);
/// `ETHTOOL_GRXCLSRLALL`.
pub(super) const RULES: Command = list(0x30, RXNFC, &[(184, 4)]);
/// `ETHTOOL_GSSET_INFO`, `struct ethtool_sset_info` with one count for each of 64 sets.
pub(super) const STRING_COUNTS: Command = exact(0x37, 16 + 64 * 4);
/// `ETHTOOL_GRSSH`, `struct ethtool_rxfh`.
pub(super) const RSS: Command = list(0x46, 24, &[(8, 4), (12, 1)]);
/// `ETHTOOL_SRSSH`.
pub(super) const SET_RSS: Command = list(0x47, 24, &[(8, 4), (12, 1)]);

/// `ETH_RXFH_INDIR_NO_CHANGE`: in the place of a count, and stands for none.
pub(super) const UNCHANGED: u32 = u32::MAX;

/// Makes the request on an interface of the socket's network namespace: the command's number, then `request`. Gives the
/// structure as the kernel leaves it, from its first byte on, with zeros where nothing was written.
pub(super) fn ethtool(
    socket: BorrowedFd<'_>,
    interface: &str,
    command: Command,
    request: &[u8],
) -> io::Result<Vec<u8>> {
    let mut structure = vec![0_u8; command.room];
    structure[..4].copy_from_slice(&command.number.to_ne_bytes());
    let filled = structure.get_mut(4..4 + request.len());
    let too_long = || io::Error::from_raw_os_error(libc::EMSGSIZE);
    filled.ok_or_else(too_long)?.copy_from_slice(request);
    let asked = command.counts.iter().map(|(at, each)| {
        let count =
            u32::from_ne_bytes([structure[*at], structure[at + 1], structure[at + 2], structure[at + 3]]);
        if count == UNCHANGED { 0 } else { (count as usize).saturating_mul(*each) }
    });
    if asked.fold(command.fixed, usize::saturating_add) > command.room {
        return Err(too_long());
    }
    // SAFETY: an ifreq of zeros is a valid one: numbers and a null pointer.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if interface.len() >= ifreq.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    ifreq.ifr_ifru.ifru_data = structure.as_mut_ptr().cast();
    // SAFETY: the request points to a live buffer with room for the command's structure and for the list behind it: as
    // long as the request says, which was compared above, or, for strings and counters, as long as the driver's is,
    // which is far below the room (see LISTS). Buffer and request outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ifreq) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(structure) }
}
