//! Changes settings of a device. Nothing is read back: the caller compares, because drivers round, and some accept a
//! value and ignore it. All functions need CAP_NET_ADMIN over the namespace.
//!
//! Cost: with most drivers, channels and rings restart the device (the link goes down briefly, queues and interrupts
//! are recreated, and some drivers, such as vmxnet3, reset the RSS table to their default, so set RSS after them);
//! features may restart it; coalescing, RSS and NAPI settings do not.

use udpath_netlink::ethtool::{self, COALESCING, Width, bitset};
use udpath_netlink::numbers::*;
use udpath_netlink::{Error, Writer, ioctl};

use super::Kernel;
use super::ioctl::{UDP4, UDP6};
use crate::snapshot::{ChannelCounts, Fields, HashFields, Rings};

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

impl Kernel {
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
        let functions = self.hash_functions()?;
        let bit = functions.iter().position(|known| known == name);
        let unknown =
            || Error::other(format_args!("'{name}' is no hash function; there are {}", functions.join(", ")));
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
        self.ioctl(interface, ioctl::SET_RSS, &request).map(|_| ())
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
                self.ioctl(interface, ioctl::SET_HASH_FIELDS, &request).map(|_| ())
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

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}
