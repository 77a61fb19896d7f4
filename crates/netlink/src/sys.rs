//! The two system calls without a safe wrapper: ioctls of network devices, and netlink's socket options.
//!
//! An ioctl reads and writes a structure of the caller. Ethtool has many commands, each with its own structure: a
//! [`Command`] knows its size, so that the buffer always has room for everything the kernel may write.
#![allow(unsafe_code, reason = "ioctl with a structure of the caller's, setsockopt at SOL_NETLINK")]

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Switches on an option of a netlink socket (`NETLINK_*` of linux/netlink.h).
pub(crate) fn enable(socket: impl AsFd, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: `on` lives during the call and `len` is its size.
    let done = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), libc::SOL_NETLINK, option, (&raw const on).cast(), len)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for more names or counters than the driver had a moment ago. The kernel writes as many as it has now,
/// whatever the request says, and channels may have been added since: 128 channels add fewer than 8,000 even with the
/// driver that has the most (mlx5). Lower: the kernel might write past the buffer. Higher: more memory is cleared for
/// every request.
const SPARE: usize = 16_384;
/// Maximum size of a request, bytes: eight times an RSS table of 65,536 entries with a key. It keeps an invalid
/// count from exhausting memory.
const LIMIT: usize = 4 << 20;

/// An ethtool command and the room that its structure needs. This module's constants are the only commands.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    number: u32,
    /// Bytes of the structure itself.
    fixed: usize,
    /// Where the request gives the length of the list behind the structure: offset of a count, bytes per entry.
    counts: &'static [(usize, usize)],
    /// Bytes of room beyond that.
    spare: usize,
}

impl Command {
    /// Whether it changes a setting, which the driver may reject.
    #[must_use]
    pub const fn sets(self) -> bool {
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
pub const DRIVER: Command = exact(0x03, 196);
/// `ETHTOOL_GSTRINGS`, `struct ethtool_gstrings`.
pub const STRINGS: Command = Command { spare: 32 * SPARE, ..list(0x1b, 12, &[(8, 32)]) };
/// `ETHTOOL_GSTATS`, `struct ethtool_stats`.
pub const COUNTERS: Command = Command { spare: 8 * SPARE, ..list(0x1d, 8, &[(4, 8)]) };
/// `ETHTOOL_GPERMADDR`, `struct ethtool_perm_addr` with `MAX_ADDR_LEN` bytes.
pub const PERMANENT_ADDRESS: Command = list(0x20, 8, &[(4, 1)]);
/// `ETHTOOL_GRXFH`, `struct ethtool_rxnfc`, as the next ones.
pub const HASH_FIELDS: Command = exact(0x29, RXNFC);
/// `ETHTOOL_SRXFH`.
pub const SET_HASH_FIELDS: Command = exact(SET_HASH_FIELDS_NUMBER, RXNFC);
const SET_HASH_FIELDS_NUMBER: u32 = 0x2a;
/// `ETHTOOL_GRXCLSRLCNT`.
pub const RULE_COUNT: Command = exact(0x2e, RXNFC);
/// `ETHTOOL_GRXCLSRULE`.
pub const RULE: Command = exact(0x2f, RXNFC);
/// `ETHTOOL_GRXCLSRLALL`.
pub const RULES: Command = list(0x30, RXNFC, &[(184, 4)]);
/// `ETHTOOL_GSSET_INFO`, `struct ethtool_sset_info` with one count for each of 64 sets.
pub const STRING_COUNTS: Command = exact(0x37, 16 + 64 * 4);
/// `ETHTOOL_GRSSH`, `struct ethtool_rxfh`.
pub const RSS: Command = list(0x46, 24, &[(8, 4), (12, 1)]);
/// `ETHTOOL_SRSSH`.
pub const SET_RSS: Command = list(SET_RSS_NUMBER, 24, &[(8, 4), (12, 1)]);
const SET_RSS_NUMBER: u32 = 0x47;

/// Bytes of `struct hwtstamp_config` of linux/net_tstamp.h: flags, type, filter, each a number of 32 bits.
const TIME_STAMPING: usize = 12;

/// Bytes of `struct ethtool_value`: command and number.
const VALUE: usize = 8;

/// `ETHTOOL_GRXCSUM`, `struct ethtool_value`, as the next ones.
pub const RX_CHECKSUM: Command = exact(0x14, VALUE);
/// `ETHTOOL_SRXCSUM`.
pub const SET_RX_CHECKSUM: Command = exact(0x15, VALUE);
/// `ETHTOOL_GTXCSUM`.
pub const TX_CHECKSUM: Command = exact(0x16, VALUE);
/// `ETHTOOL_STXCSUM`.
pub const SET_TX_CHECKSUM: Command = exact(0x17, VALUE);
/// `ETHTOOL_GSG`.
pub const SCATTER_GATHER: Command = exact(0x18, VALUE);
/// `ETHTOOL_SSG`.
pub const SET_SCATTER_GATHER: Command = exact(0x19, VALUE);
/// `ETHTOOL_GTSO`.
pub const TSO: Command = exact(0x1e, VALUE);
/// `ETHTOOL_STSO`.
pub const SET_TSO: Command = exact(0x1f, VALUE);
/// `ETHTOOL_GGSO`.
pub const GSO: Command = exact(0x23, VALUE);
/// `ETHTOOL_SGSO`.
pub const SET_GSO: Command = exact(0x24, VALUE);
/// `ETHTOOL_GFLAGS`: bits `ETH_FLAG_*`.
pub const FLAGS: Command = exact(0x25, VALUE);
/// `ETHTOOL_GGRO`.
pub const GRO: Command = exact(0x2b, VALUE);
/// `ETHTOOL_SGRO`.
pub const SET_GRO: Command = exact(0x2c, VALUE);

/// `ETH_RXFH_INDIR_NO_CHANGE`: instead of a count of entries, leaves the RSS table as it is.
pub const UNCHANGED: u32 = u32::MAX;

/// Sends the command and `request`, which follows the command's number in its structure, to an interface of the
/// socket's network namespace. Returns the whole structure as the kernel leaves it, with zeros where it wrote nothing.
///
/// # Errors
/// `EMSGSIZE` if the request is longer than its structure; otherwise the refusal of the kernel or driver.
pub fn ethtool(
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
    // There is room for the structure and the list behind it: as long as the request says, and, for names and
    // counters, as long as the driver's list may have become since (SPARE).
    call(socket, interface, libc::SIOCETHTOOL, &mut structure)?;
    Ok(structure)
}

/// An ethtool command that carries one number, such as [`TSO`] and [`SET_TSO`]. Returns the number as the kernel leaves
/// it.
///
/// # Errors
/// The refusal of the kernel or driver.
pub fn ethtool_value(
    socket: BorrowedFd<'_>,
    interface: &str,
    command: Command,
    value: u32,
) -> io::Result<u32> {
    let structure = ethtool(socket, interface, command, &value.to_ne_bytes())?;
    let found = structure.get(4..).and_then(<[u8]>::first_chunk);
    found.map(|found| u32::from_ne_bytes(*found)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// `SIOCGHWTSTAMP`: flags, type and filter, as numbers of linux/net_tstamp.h.
///
/// # Errors
/// The refusal of the kernel or driver.
pub fn time_stamping(socket: BorrowedFd<'_>, interface: &str) -> io::Result<[u32; 3]> {
    let mut structure = [0; TIME_STAMPING];
    call(socket, interface, libc::SIOCGHWTSTAMP, &mut structure)?;
    let (words, _) = structure.as_chunks::<4>();
    let word = |at: usize| u32::from_ne_bytes(words[at]);
    Ok([word(0), word(1), word(2)])
}

/// Makes an ioctl on an interface of the socket's network namespace. `structure`: the memory that the request reads
/// and writes, with room for everything it may write.
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
        *to = c_char::from_ne_bytes([from]);
    }
    ifreq.ifr_ifru.ifru_data = structure.as_mut_ptr().cast();
    // SAFETY: the request points to a live buffer with room for all the kernel may write, as the two callers ensure.
    // Buffer and request outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut ifreq) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn control() -> std::net::UdpSocket {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn the_loopback_answers_supported_commands() {
        let socket = control();
        // Its checksums cannot be switched off, and it has no RSS.
        assert_eq!(ethtool_value(socket.as_fd(), "lo", TX_CHECKSUM, 0).unwrap(), 1);
        let error = ethtool(socket.as_fd(), "lo", RSS, &[0; 12]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        let error = ethtool_value(socket.as_fd(), "nope0", FLAGS, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_request_longer_than_its_structure_is_refused() {
        let socket = control();
        let too_long = |command, request: &[u8]| {
            ethtool(socket.as_fd(), "lo", command, request).unwrap_err().raw_os_error()
        };
        assert_eq!(too_long(TSO, &[0; 5]), Some(libc::EMSGSIZE));
        // 2^32 - 2 entries of an RSS table.
        let mut entries = vec![0; 4];
        entries.extend((u32::MAX - 1).to_ne_bytes());
        assert_eq!(too_long(RSS, &entries), Some(libc::EMSGSIZE));
        // A name without room for its terminator.
        let name = "a-name-of-more-than-fifteen-characters";
        let error = ethtool_value(socket.as_fd(), name, TSO, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
