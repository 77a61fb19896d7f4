//! Ioctls of a network device: one call that reads and writes a structure of the caller's, in a buffer that is always big
//! enough. Ethtool's has many commands, each with its own structure.
#![allow(unsafe_code, reason = "ioctl has no safe form; this module is its only place")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many names or counters there is room for beyond those that the driver had a moment ago. The kernel writes as many
/// as it has now, however many are asked for, and channels may have been added since: 128 of them bring under 8,000 with
/// the most talkative driver (mlx5). Fewer: the kernel might write past the room. More: that much memory is cleared for
/// every request.
const SPARE: usize = 16_384;
/// The most that a request may ask for, bytes: eight times an RSS table of 65,536 entries with a key. It keeps a count
/// that makes no sense from taking all memory.
const LIMIT: usize = 4 << 20;

/// A command and the room that its structure needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    number: u32,
    /// Bytes of the structure itself.
    fixed: usize,
    /// Where the request says how much comes behind the structure: offset of a count, bytes of each.
    counts: &'static [(usize, usize)],
    /// Bytes of room beyond that.
    spare: usize,
}

impl Command {
    /// Does it change the device?
    pub(super) const fn sets(self) -> bool {
        matches!(self.number, SET_HASH_FIELDS_NUMBER | SET_RSS_NUMBER)
    }
}

const fn exact(number: u32, fixed: usize) -> Command {
    Command { number, fixed, counts: &[], spare: 0 }
}

const fn list(number: u32, fixed: usize, counts: &'static [(usize, usize)]) -> Command {
    Command { number, fixed, counts, spare: 0 }
}

/// Bytes of `struct ethtool_rxnfc`; the places of rules begin four bytes before its end, in its padding.
const RXNFC: usize = 192;

/// `ETHTOOL_GDRVINFO`, `struct ethtool_drvinfo`.
pub(super) const DRIVER: Command = exact(0x03, 196);
/// `ETHTOOL_GSTRINGS`, `struct ethtool_gstrings`.
pub(super) const STRINGS: Command = Command { spare: 32 * SPARE, ..list(0x1b, 12, &[(8, 32)]) };
/// `ETHTOOL_GSTATS`, `struct ethtool_stats`.
pub(super) const COUNTERS: Command = Command { spare: 8 * SPARE, ..list(0x1d, 8, &[(4, 8)]) };
/// `ETHTOOL_GPERMADDR`, `struct ethtool_perm_addr` with `MAX_ADDR_LEN` bytes.
pub(super) const PERMANENT_ADDRESS: Command = list(0x20, 8, &[(4, 1)]);
/// `ETHTOOL_GRXFH`, `struct ethtool_rxnfc`, as the next ones.
pub(super) const HASH_FIELDS: Command = exact(0x29, RXNFC);
/// `ETHTOOL_SRXFH`.
pub(super) const SET_HASH_FIELDS: Command = exact(SET_HASH_FIELDS_NUMBER, RXNFC);
const SET_HASH_FIELDS_NUMBER: u32 = 0x2a;
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
pub(super) const SET_RSS: Command = list(SET_RSS_NUMBER, 24, &[(8, 4), (12, 1)]);
const SET_RSS_NUMBER: u32 = 0x47;

/// Bytes of `struct hwtstamp_config` of linux/net_tstamp.h: flags, type, filter, each a number of 32 bits.
const TIME_STAMPING: usize = 12;

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
    let mut structure = command.number.to_ne_bytes().to_vec();
    structure.extend_from_slice(request);
    let count = |at: usize| match structure.get(at..).and_then(<[u8]>::first_chunk) {
        None | Some(&[0xff, 0xff, 0xff, 0xff]) => 0,
        Some(count) => u32::from_ne_bytes(*count) as usize,
    };
    let asked = command
        .counts
        .iter()
        .fold(0_usize, |sum, (at, each)| sum.saturating_add(count(*at).saturating_mul(*each)));
    if asked > LIMIT || structure.len() > command.fixed + asked {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    structure.resize(command.fixed + asked + command.spare, 0);
    // The structure has room for the command's own and for the list behind it: as long as the request says, or, for names
    // and counters, as the driver's list can have become since (see SPARE).
    call(socket, interface, libc::SIOCETHTOOL, &mut structure)?;
    Ok(structure)
}

/// `SIOCGHWTSTAMP`: flags, type and filter, as numbers of linux/net_tstamp.h.
pub(super) fn time_stamping(socket: BorrowedFd<'_>, interface: &str) -> io::Result<[u32; 3]> {
    let mut structure = [0; TIME_STAMPING];
    call(socket, interface, libc::SIOCGHWTSTAMP, &mut structure)?;
    let (words, _) = structure.as_chunks::<4>();
    let word = |at: usize| u32::from_ne_bytes(words[at]);
    Ok([word(0), word(1), word(2)])
}

/// Makes a request on an interface of the socket's network namespace. `structure`: what the request reads and writes, with
/// room for all that it may write.
fn call(
    socket: BorrowedFd<'_>,
    interface: &str,
    request: libc::c_ulong,
    structure: &mut [u8],
) -> io::Result<()> {
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
    // SAFETY: the request points to a live buffer with room for all that the kernel may write, which the two callers see
    // to. Buffer and request outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut ifreq) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
