//! What only the ethtool ioctl reports: the driver's name and counters; and RSS on kernels whose netlink lacks it.
//! Structures of linux/ethtool.h, read by offset.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ethtool::rss::{Fields, HashFields, Rss, RssContext, function};
use crate::numbers::ETH_SS_STATS;
use crate::sys::{
    COUNTERS, Command, DRIVER, HASH_FIELDS, PERMANENT_ADDRESS, RSS, STRING_COUNTS, STRINGS, ethtool,
};

/// The string set with the names of the driver's counters.
const COUNTER_NAMES: u32 = ETH_SS_STATS as u32;
/// Size in bytes of a string in a set, `ETH_GSTRING_LEN`.
const STRING: usize = 32;
/// Longest link-layer address, bytes (`MAX_ADDR_LEN`).
const ADDRESS: u32 = 32;

/// `UDP_V4_FLOW` of linux/ethtool.h: UDP over IPv4.
pub const UDP4: u32 = 2;
/// `UDP_V6_FLOW`.
pub const UDP6: u32 = 6;
/// Offset in `struct ethtool_rxnfc`.
const NFC_DATA: usize = 8;

/// Driver of a device: `ethtool -i`.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// The driver's name: `ixgbe`, `virtio_net`, `veth`.
    pub name: String,
    /// Its version; in-tree drivers report the kernel's release.
    #[serde(default)]
    pub version: String,
    /// The firmware's version, if any.
    #[serde(default)]
    pub firmware: String,
    /// Bus address: `0000:01:00.0`. Empty for software devices.
    #[serde(default)]
    pub bus: String,
}

/// A driver's counters, by its names.
type Counters = BTreeMap<String, u64>;

/// 32 bits at an offset; zeros beyond the end.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

/// 64 bits at an offset.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

/// Text that fills its field or ends with a zero.
fn text(bytes: &[u8], at: usize, length: usize) -> String {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Numbers of 32 bits, one after the other.
pub fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// An ethtool ioctl whose errors mean the same as those of netlink; `data` follows the command number.
///
/// # Errors
/// `EOPNOTSUPP` if driver or kernel lack the command, `ENODEV` if the interface does not exist; otherwise the refusal.
pub fn call(
    socket: BorrowedFd<'_>,
    interface: &str,
    command: Command,
    data: &[u8],
) -> Result<Vec<u8>, Error> {
    ethtool(socket, interface, command, data).map_err(|error| {
        match error.raw_os_error() {
            // Drivers return EINVAL for get commands they do not support; for set commands it refers to the value.
            Some(libc::EINVAL) if !command.sets() => Error::errno(libc::EOPNOTSUPP),
            Some(libc::ENOTTY) => Error::errno(libc::EOPNOTSUPP),
            _ => error.into(),
        }
    })
}

/// The driver of an interface.
///
/// # Errors
/// As [`call`].
pub fn driver(socket: BorrowedFd<'_>, interface: &str) -> Result<Driver, Error> {
    let info = call(socket, interface, DRIVER, &[])?;
    Ok(Driver {
        name: text(&info, 4, 32),
        version: text(&info, 36, 32),
        firmware: text(&info, 68, 32),
        bus: text(&info, 100, 32),
    })
}

/// The permanent link-layer address, for kernels whose `RTM_GETLINK` does not report it (before 5.6).
///
/// # Errors
/// As [`call`].
pub fn permanent_address(socket: BorrowedFd<'_>, interface: &str) -> Result<Vec<u8>, Error> {
    let found = call(socket, interface, PERMANENT_ADDRESS, &words(&[ADDRESS]))?;
    let length = word(&found, 4).min(ADDRESS) as usize;
    Ok(found[8..8 + length].to_vec())
}

/// The counters that the driver keeps itself (`ethtool -S`).
///
/// # Errors
/// As [`call`].
pub fn driver_counters(socket: BorrowedFd<'_>, interface: &str) -> Result<Counters, Error> {
    // Reserved, then a mask of the requested sets.
    let mut request = words(&[0]);
    request.extend((1_u64 << COUNTER_NAMES).to_ne_bytes());
    let counts = call(socket, interface, STRING_COUNTS, &request)?;
    // The mask is returned without the sets that the driver does not have.
    let count = word(&counts, 16);
    if long(&counts, 8) == 0 || count == 0 {
        return Err(Error::errno(libc::EOPNOTSUPP));
    }
    let names = call(socket, interface, STRINGS, &words(&[COUNTER_NAMES, count]))?;
    let values = call(socket, interface, COUNTERS, &words(&[count]))?;
    // Queues may have been added or removed between the two calls; then names and values do not match.
    if word(&names, 8) != word(&values, 4) {
        return Err(Error::other("the driver's counters changed while they were read"));
    }
    Ok(counters(&names, &values))
}

/// The main RSS context. `functions`: gives the names of the hash function bits, from bit 0.
///
/// # Errors
/// As [`call`].
pub fn rss(
    socket: BorrowedFd<'_>,
    interface: &str,
    functions: impl FnOnce() -> Vec<String>,
) -> Result<Rss, Error> {
    // Context 0 and no space: the answer contains only the sizes.
    let sizes = call(socket, interface, RSS, &words(&[0, 0, 0]))?;
    let (entries, key) = (word(&sizes, 8), word(&sizes, 12));
    let found = call(socket, interface, RSS, &words(&[0, entries, key]))?;
    Ok(Rss { main: context(&found, &functions()), ..Rss::default() })
}

/// The UDP hash fields of the main RSS context.
///
/// # Errors
/// As [`call`].
pub fn hash_fields(socket: BorrowedFd<'_>, interface: &str) -> Result<HashFields, Error> {
    let fields = |flow: u32| -> Result<Fields, Error> {
        let found = call(socket, interface, HASH_FIELDS, &words(&[flow]))?;
        Ok(Fields(word(&found, NFC_DATA)))
    };
    Ok(HashFields { udp4: Some(fields(UDP4)?), udp6: fields(UDP6).ok() })
}

/// Combines `struct ethtool_gstrings` and `struct ethtool_stats`.
///
/// vmxnet3 repeats the names of a queue's counters for each queue, indented below a line `Rx Queue#` whose value is the
/// queue: they become `Rx Queue 3: ucast pkts rx`. Any other repeated name gets a number.
fn counters(names: &[u8], values: &[u8]) -> Counters {
    let mut counters = Counters::new();
    let mut queue = String::new();
    for at in 0..word(names, 8) as usize {
        let (name, value) = (text(names, 12 + STRING * at, STRING), long(values, 8 + 8 * at));
        let trimmed = name.trim();
        if let Some(heading) = trimmed.strip_suffix("Queue#") {
            queue = format!("{heading}Queue {value}: ");
        } else if !trimmed.is_empty() {
            let indented = name.starts_with(' ');
            let name = if indented { format!("{queue}{trimmed}") } else { trimmed.to_owned() };
            let again = (2..).map(|time| format!("{name} ({time})"));
            let free = std::iter::once(name.clone()).chain(again).find(|name| !counters.contains_key(name));
            counters.extend(free.map(|name| (name, value)));
        }
    }
    counters
}

/// `struct ethtool_rxfh`: table, then key, after 24 bytes.
fn context(found: &[u8], functions: &[String]) -> RssContext {
    let (entries, key) = (word(found, 8) as usize, word(found, 12) as usize);
    let begin = 24 + 4 * entries;
    RssContext {
        table: (0..entries).map(|entry| word(found, 24 + 4 * entry)).collect(),
        key: found.get(begin..begin + key).unwrap_or_default().to_vec(),
        function: function(found.get(16).copied().unwrap_or(0).into(), functions),
        ..RssContext::default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn counted(rows: &[(&str, u64)]) -> Counters {
        let count = u32::try_from(rows.len()).unwrap();
        let (mut names, mut values) = (words(&[0x1b, COUNTER_NAMES, count]), words(&[0x1d, count]));
        for (name, value) in rows {
            let mut string = name.as_bytes().to_vec();
            string.resize(STRING, 0);
            names.extend(string);
            values.extend(value.to_ne_bytes());
        }
        counters(&names, &values)
    }

    #[test]
    fn counters_take_their_names_in_order() {
        let wanted = Counters::from([("rx_packets".into(), 5), ("tx_packets".into(), 1 << 40)]);
        assert_eq!(counted(&[("rx_packets", 5), ("     tx_packets", 1 << 40), ("", 0)]), wanted);
        let twice = Counters::from([("drops".into(), 1), ("drops (2)".into(), 2), ("drops (3)".into(), 3)]);
        assert_eq!(counted(&[("drops", 1), ("drops", 2), ("drops", 3)]), twice);
    }

    /// Two queues, as in drivers/net/vmxnet3/vmxnet3_ethtool.c.
    #[test]
    fn counters_below_a_queue_are_that_queues() {
        let rows = [
            ("Rx Queue#", 0),
            ("  ucast pkts rx", 7),
            ("Rx Queue#", 1),
            ("  ucast pkts rx", 9),
            ("tx timeout count", 2),
        ];
        let wanted =
            [("Rx Queue 0: ucast pkts rx", 7), ("Rx Queue 1: ucast pkts rx", 9), ("tx timeout count", 2)];
        assert_eq!(counted(&rows), wanted.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_table_is_followed_by_its_key() {
        let mut found = words(&[0x46, 0, 4, 2]);
        found.extend([1, 0, 0, 0]);
        found.extend(words(&[0]));
        found.extend(words(&[3, 2, 1, 0]));
        found.extend([0x6d, 0x5a]);
        let found = context(&found, &["toeplitz".to_owned()]);
        assert_eq!((found.table, found.key), (vec![3, 2, 1, 0], vec![0x6d, 0x5a]));
        assert_eq!(found.function.as_deref(), Some("toeplitz"));
    }

    #[test]
    fn the_loopback_has_none_of_this() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let refused = [
            driver(socket.as_fd(), "lo").unwrap_err(),
            driver_counters(socket.as_fd(), "lo").unwrap_err(),
            hash_fields(socket.as_fd(), "lo").unwrap_err(),
        ];
        for refused in refused {
            assert_eq!(refused.errno, Some(libc::EOPNOTSUPP), "{refused:?}");
        }
    }
    proptest! {
        /// Structures from the kernel may be truncated or invalid.
        #[test]
        fn no_structure_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            // Counts in the range that the kernel could return.
            for at in [8, 9, 10, 11, 12, 13, 14, 15] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if at % 4 == 0 { *byte } else { 0 };
                }
            }
            let _ = (context(&bytes, &[]), counters(&bytes, &bytes));
        }
    }
}
