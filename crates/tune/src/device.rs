//! Changes settings of a device, over netlink or ioctl. Nothing is read back: the caller compares, because drivers
//! round, and some accept a value and ignore it. All functions need CAP_NET_ADMIN over the namespace.
//!
//! Cost: with most drivers, channels and rings restart the device (the link goes down briefly, queues and interrupts
//! are recreated, and some drivers, such as vmxnet3, reset the RSS table to their default, so set RSS after them);
//! features may restart it; coalescing, RSS and NAPI settings do not.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use udpath_netlink::ethtool::channels::ChannelCounts;
use udpath_netlink::ethtool::coalesce::{COALESCING, Width};
use udpath_netlink::ethtool::rings::Rings;
use udpath_netlink::ethtool::rss::{Fields, HashFields, functions};
use udpath_netlink::ethtool::{self, bitset};
use udpath_netlink::ioctl::device::{UDP4, UDP6, call, words};
use udpath_netlink::netdev::{self, NapiChange};
use udpath_netlink::numbers::*;
use udpath_netlink::{Error, Generic, Rtnetlink, Writer, ioctl};

/// A change of the main RSS context. `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RssChange {
    /// Queue for each remainder of the hash; as many as the device has entries. Empty: restore the driver's default.
    pub table: Option<Vec<u32>>,
    /// The key; same length as the device's.
    pub key: Option<Vec<u8>>,
    /// The hash function's name.
    pub function: Option<String>,
}

/// Sockets to the kernel that change devices, of one network namespace.
pub struct DeviceWriter {
    route: Result<Rtnetlink, Error>,
    generic: Result<Generic, Error>,
    control: Result<OwnedFd, Error>,
}

impl fmt::Debug for DeviceWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceWriter").field("generic", &self.generic).finish_non_exhaustive()
    }
}

impl DeviceWriter {
    /// Opens the sockets, in the calling thread's network namespace. If a socket could not be opened, the first change
    /// that needs it reports why.
    #[must_use]
    pub fn open() -> Self {
        // Not bound: it only carries ioctls.
        let control =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        Self { route: Rtnetlink::open(), generic: Generic::open(), control: control.map_err(Error::from) }
    }

    fn generic(&mut self) -> Result<&mut Generic, Error> {
        self.generic.as_mut().map_err(|refused| refused.clone())
    }

    fn control(&self) -> Result<BorrowedFd<'_>, Error> {
        self.control.as_ref().map(AsFd::as_fd).map_err(Clone::clone)
    }

    fn set(&mut self, command: u16, interface: &str, fill: impl FnOnce(&mut Writer)) -> Result<(), Error> {
        ethtool::set(self.generic()?, command, interface, fill)
    }

    /// Sets the number of channels; `None` leaves a type unchanged.
    ///
    /// # Errors
    /// Rejected by the kernel or the driver: above its maximum, or the RSS table or AF_XDP sockets prevent it.
    pub fn set_channels(&mut self, interface: &str, counts: &ChannelCounts) -> Result<(), Error> {
        let values = [
            (ETHTOOL_A_CHANNELS_RX_COUNT, counts.rx),
            (ETHTOOL_A_CHANNELS_TX_COUNT, counts.tx),
            (ETHTOOL_A_CHANNELS_OTHER_COUNT, counts.other),
            (ETHTOOL_A_CHANNELS_COMBINED_COUNT, counts.combined),
        ];
        let set = self.set(ETHTOOL_MSG_CHANNELS_SET, interface, |body| {
            values.iter().filter_map(|(kind, value)| Some((*kind, (*value)?))).for_each(|(kind, value)| {
                body.u32(kind, value);
            });
        });
        set.map_err(|refused| refused.when(format!("set the channels of {interface}")))
    }

    /// Sets ring sizes and modes; `None` leaves one unchanged, and maxima are ignored.
    ///
    /// # Errors
    /// Rejected by the kernel or the driver.
    pub fn set_rings(&mut self, interface: &str, rings: &Rings) -> Result<(), Error> {
        let words = [
            (ETHTOOL_A_RINGS_RX, rings.rx),
            (ETHTOOL_A_RINGS_TX, rings.tx),
            (ETHTOOL_A_RINGS_RX_BUF_LEN, rings.rx_buf_len),
            (ETHTOOL_A_RINGS_CQE_SIZE, rings.cqe_size),
        ];
        let bytes = [
            (ETHTOOL_A_RINGS_TX_PUSH, rings.tx_push.map(u8::from)),
            (ETHTOOL_A_RINGS_RX_PUSH, rings.rx_push.map(u8::from)),
            (ETHTOOL_A_RINGS_TCP_DATA_SPLIT, rings.tcp_data_split.and_then(|split| u8::try_from(split).ok())),
        ];
        let set = self.set(ETHTOOL_MSG_RINGS_SET, interface, |body| {
            words.iter().filter_map(|(kind, value)| Some((*kind, (*value)?))).for_each(|(kind, value)| {
                body.u32(kind, value);
            });
            bytes.iter().filter_map(|(kind, value)| Some((*kind, (*value)?))).for_each(|(kind, value)| {
                body.u8(kind, value);
            });
        });
        set.map_err(|refused| refused.when(format!("set the rings of {interface}")))
    }

    /// Sets coalescing values by ethtool's names; others stay unchanged.
    ///
    /// # Errors
    /// A name that does not exist, or rejected by the kernel or the driver.
    pub fn set_coalescing(&mut self, interface: &str, values: &[(&str, u32)]) -> Result<(), Error> {
        let what = || format!("set the coalescing of {interface}");
        let mut known = Vec::new();
        for (name, value) in values {
            let row = COALESCING.iter().find(|(known, ..)| known == name);
            let unknown = || Error::other(format_args!("there is no coalescing value '{name}'")).when(what());
            let (_, kind, width) = row.ok_or_else(unknown)?;
            known.push((*kind, *width, *value));
        }
        let set = self.set(ETHTOOL_MSG_COALESCE_SET, interface, |body| {
            for (kind, width, value) in known {
                match width {
                    Width::Byte => body.u8(kind, u8::from(value != 0)),
                    Width::Word => body.u32(kind, value),
                };
            }
        });
        set.map_err(|refused| refused.when(what()))
    }

    /// Switches offloads by the kernel's names; others stay unchanged, unless one of these requires them.
    ///
    /// # Errors
    /// An unknown name. If the device does not support it, there is no error: read it back.
    pub fn set_features(&mut self, interface: &str, features: &[(&str, bool)]) -> Result<(), Error> {
        let set = self.set(ETHTOOL_MSG_FEATURES_SET, interface, |body| {
            body.nest(ETHTOOL_A_FEATURES_WANTED, |set| bitset::write(set, features));
        });
        set.map_err(|refused| refused.when(format!("set the offloads of {interface}")))
    }

    /// Sets table, key or function of the main RSS context: over netlink since Linux 6.17, before that by ioctl.
    ///
    /// # Errors
    /// An unknown function, or rejected by the kernel or the driver.
    pub fn set_rss(&mut self, interface: &str, change: &RssChange) -> Result<(), Error> {
        let what = || format!("set the RSS of {interface}");
        let function = match &change.function {
            None => None,
            Some(name) => Some(self.function_bit(name).map_err(|refused| refused.when(what()))?),
        };
        let by_netlink = self.set(ETHTOOL_MSG_RSS_SET, interface, |body| {
            if let Some(table) = &change.table {
                body.bytes(ETHTOOL_A_RSS_INDIR, &words(table));
            }
            if let Some(key) = &change.key {
                body.bytes(ETHTOOL_A_RSS_HKEY, key);
            }
            if let Some(function) = function {
                body.u32(ETHTOOL_A_RSS_HFUNC, function);
            }
        });
        let set = match by_netlink {
            Err(refused) if unknown_command(&refused) => self.set_rss_by_ioctl(interface, change, function),
            done => done,
        };
        set.map_err(|refused| refused.when(what()))
    }

    fn function_bit(&mut self, name: &str) -> Result<u32, Error> {
        let functions = functions(self.generic()?)?;
        let bit = functions.iter().position(|known| known == name);
        let unknown =
            || Error::other(format_args!("'{name}' is not a hash function; known: {}", functions.join(", ")));
        bit.and_then(|bit| u32::try_from(bit).ok()).map(|bit| 1 << bit).ok_or_else(unknown)
    }

    /// `struct ethtool_rxfh`: context, entries, key bytes, function, padding; table; key.
    fn set_rss_by_ioctl(
        &self,
        interface: &str,
        change: &RssChange,
        function: Option<u32>,
    ) -> Result<(), Error> {
        let length = |length: usize| u32::try_from(length).map_err(Error::other);
        let entries = change.table.as_ref().map_or(Ok(ioctl::UNCHANGED), |table| length(table.len()))?;
        let key = change.key.as_deref().unwrap_or_default();
        let mut request = words(&[0, entries, length(key.len())?]);
        request.extend([u8::try_from(function.unwrap_or(0)).unwrap_or(0), 0, 0, 0, 0, 0, 0, 0]);
        request.extend(words(change.table.as_deref().unwrap_or_default()));
        request.extend(key);
        call(self.control()?, interface, ioctl::SET_RSS, &request).map(|_| ())
    }

    /// Configures a NAPI instance by ID (`napi-set`, since Linux 6.13).
    ///
    /// # Errors
    /// No such instance, or rejected by the kernel.
    pub fn set_napi(&mut self, id: u32, change: &NapiChange) -> Result<(), Error> {
        netdev::set_napi(self.generic()?, id, change)
    }

    /// Sets an interface's root qdisc to this kind, without parameters; `None`: the kernel's default.
    ///
    /// # Errors
    /// Rejected by the kernel: no such interface, or no such qdisc for it.
    pub fn set_qdisc(&mut self, interface: u32, kind: Option<&str>) -> Result<(), Error> {
        let route = self.route.as_mut().map_err(|refused| refused.clone())?;
        let done = route.set_root_qdisc(interface, kind);
        done.map_err(|refused| refused.when(format!("set the root qdisc of interface {interface}")))
    }

    /// Sets which UDP fields are hashed; `None` leaves a family unchanged. Over netlink since Linux 6.17, before that
    /// by ioctl.
    ///
    /// # Errors
    /// Rejected by the kernel or the driver: many devices support only addresses, or addresses and ports.
    pub fn set_hash_fields(&mut self, interface: &str, fields: &HashFields) -> Result<(), Error> {
        let flows = [(ETHTOOL_A_FLOW_UDP4, UDP4, fields.udp4), (ETHTOOL_A_FLOW_UDP6, UDP6, fields.udp6)];
        let wanted: Vec<(u16, u32, Fields)> =
            flows.into_iter().filter_map(|(kind, flow, fields)| Some((kind, flow, fields?))).collect();
        let by_netlink = self.set(ETHTOOL_MSG_RSS_SET, interface, |body| {
            body.nest(ETHTOOL_A_RSS_FLOW_HASH, |nest| {
                for (kind, _, fields) in &wanted {
                    nest.u32(*kind, fields.0);
                }
            });
        });
        let set = match by_netlink {
            Err(refused) if unknown_command(&refused) => wanted.iter().try_for_each(|(_, flow, fields)| {
                let mut request = words(&[*flow]);
                request.extend(u64::from(fields.0).to_ne_bytes());
                call(self.control()?, interface, ioctl::SET_HASH_FIELDS, &request).map(|_| ())
            }),
            done => done,
        };
        set.map_err(|refused| refused.when(format!("set the hash fields of {interface}")))
    }
}

/// Whether the kernel lacks the command. A driver's error has the same errno.
fn unknown_command(refused: &Error) -> bool {
    refused.errno == Some(libc::EOPNOTSUPP)
}
