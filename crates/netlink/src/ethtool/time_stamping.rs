//! Timestamps that a device makes of packets, in ethtool's terms: what it supports and what is configured
//! (`ethtool -T`). Through the ethtool family, or the older ioctl.
//!
//! The kernel's own stamps are separate: sockets request those.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{bitset, get, single};
use crate::attribute::Attributes;
use crate::error::Error;
use crate::generic::Generic;
use crate::numbers::*;
use crate::sys;

/// What a device supports: `ethtool -T`.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStampingOffer {
    /// Timestamping modes: `software-receive`, `hardware-transmit`, `hardware-raw-clock`, ... (`SOF_TIMESTAMPING_*`).
    #[serde(default)]
    pub kinds: BTreeSet<String>,
    /// Which packets it can stamp on transmit: `off`, `on`, `onestep-sync`. Empty: none, as for the next one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tx: BTreeSet<String>,
    /// Which packets it can stamp on receive: `none`, `all`, `ptpv2-event`, ...
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rx: BTreeSet<String>,
    /// Its clock: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

/// What a device is configured to stamp (`struct hwtstamp_config` of linux/net_tstamp.h).
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStamping {
    /// On transmit: `off`; `on`, for sockets that request it; `onestep-sync`, `onestep-p2p`.
    pub tx: String,
    /// On receive: `none`; `all`; `some`, more than was requested; `ptpv2-event` and similar, `ntp-all`.
    pub rx: String,
    /// The clock selected for it, if there are several: N of `/dev/ptpN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
}

impl TimeStamping {
    /// Whether every received packet is stamped.
    #[must_use]
    pub fn of_every_packet(&self) -> bool {
        self.rx == "all"
    }
}

/// Ethtool's names for `enum hwtstamp_tx_types` of linux/net_tstamp.h, in its order (`ts_tx_type_names` of
/// net/ethtool/common.c).
const TX: [&str; 4] = ["off", "on", "onestep-sync", "onestep-p2p"];
/// The same for `enum hwtstamp_rx_filters` (`ts_rx_filter_names`).
const RX: [&str; 16] = [
    "none",
    "all",
    "some",
    "ptpv1-l4-event",
    "ptpv1-l4-sync",
    "ptpv1-l4-delay-req",
    "ptpv2-l4-event",
    "ptpv2-l4-sync",
    "ptpv2-l4-delay-req",
    "ptpv2-l2-event",
    "ptpv2-l2-sync",
    "ptpv2-l2-delay-req",
    "ptpv2-event",
    "ptpv2-sync",
    "ptpv2-delay-req",
    "ntp-all",
];

/// Reads what an interface can stamp. Since Linux 5.8.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read_offer(generic: &mut Generic, interface: &str) -> Result<TimeStampingOffer, Error> {
    let answers = get(generic, ETHTOOL_MSG_TSINFO_GET, interface)?;
    Ok(offer(single(&answers)?))
}

/// Reads what an interface is configured to stamp. Since Linux 6.14.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<TimeStamping, Error> {
    let answers = get(generic, ETHTOOL_MSG_TSCONFIG_GET, interface)?;
    config(single(&answers)?).ok_or_else(|| Error::other("the kernel named no type or no filter"))
}

/// The same on an older kernel, by ioctl.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read_by_ioctl(socket: BorrowedFd<'_>, interface: &str) -> Result<TimeStamping, Error> {
    let [_flags, tx, rx] = sys::time_stamping(socket, interface).map_err(|error| {
        match error.raw_os_error() {
            // Drivers return EINVAL for ioctls that they do not support.
            Some(libc::EINVAL | libc::ENOTTY) => Error::errno(libc::EOPNOTSUPP),
            _ => error.into(),
        }
    })?;
    let word = |words: &[&str], number: u32| {
        let known = usize::try_from(number).ok().and_then(|at| words.get(at));
        known.map_or_else(|| number.to_string(), |word| (*word).to_owned())
    };
    Ok(TimeStamping { tx: word(&TX, tx), rx: word(&RX, rx), clock: None })
}

/// The bits that are set in a bit set.
fn set(is: Attributes<'_>, kind: u16) -> impl Iterator<Item = String> {
    bitset::read(is.nested(kind)).into_iter().filter(|(_, set)| *set).map(|(name, _)| name)
}

fn offer(is: Attributes<'_>) -> TimeStampingOffer {
    TimeStampingOffer {
        kinds: set(is, ETHTOOL_A_TSINFO_TIMESTAMPING).collect(),
        tx: set(is, ETHTOOL_A_TSINFO_TX_TYPES).collect(),
        rx: set(is, ETHTOOL_A_TSINFO_RX_FILTERS).collect(),
        clock: is.u32(ETHTOOL_A_TSINFO_PHC_INDEX),
    }
}

/// A type and a filter, each as a set with one member.
fn config(is: Attributes<'_>) -> Option<TimeStamping> {
    let provider = is.nested(ETHTOOL_A_TSCONFIG_HWTSTAMP_PROVIDER);
    Some(TimeStamping {
        tx: set(is, ETHTOOL_A_TSCONFIG_TX_TYPES).next()?,
        rx: set(is, ETHTOOL_A_TSCONFIG_RX_FILTERS).next()?,
        clock: provider.u32(ETHTOOL_A_TS_HWTSTAMP_PROVIDER_INDEX),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::super::strings;
    use super::*;
    use crate::attribute::Writer;

    fn bits(writer: &mut Writer, kind: u16, names: &[&str]) {
        let listed: Vec<(&str, bool)> = names.iter().map(|name| (*name, false)).collect();
        writer.nest(kind, |set| {
            set.flag(ETHTOOL_A_BITSET_NOMASK);
            bitset::write(set, &listed);
        });
    }

    #[test]
    fn a_configuration_has_a_type_a_filter_and_perhaps_a_clock() {
        let mut writer = Writer::default();
        bits(&mut writer, ETHTOOL_A_TSCONFIG_TX_TYPES, &["on"]);
        bits(&mut writer, ETHTOOL_A_TSCONFIG_RX_FILTERS, &["all"]);
        let bytes = writer.finish();
        let wanted = TimeStamping { tx: "on".into(), rx: "all".into(), clock: None };
        assert_eq!(config(Attributes::new(&bytes)), Some(wanted.clone()));
        assert!(wanted.of_every_packet());
        let mut writer = Writer::after(&bytes);
        writer.nest(ETHTOOL_A_TSCONFIG_HWTSTAMP_PROVIDER, |provider| {
            provider.u32(ETHTOOL_A_TS_HWTSTAMP_PROVIDER_INDEX, 3);
        });
        let bytes = writer.finish();
        assert_eq!(config(Attributes::new(&bytes)), Some(TimeStamping { clock: Some(3), ..wanted }));
        assert_eq!(config(Attributes::new(&[])), None);
    }

    #[test]
    fn an_offer_of_hardware_names_its_clock() {
        let mut writer = Writer::default();
        bits(&mut writer, ETHTOOL_A_TSINFO_TIMESTAMPING, &["hardware-receive", "software-receive"]);
        bits(&mut writer, ETHTOOL_A_TSINFO_RX_FILTERS, &["none", "all"]);
        writer.u32(ETHTOOL_A_TSINFO_PHC_INDEX, 1);
        let bytes = writer.finish();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = TimeStampingOffer {
            kinds: names(&["hardware-receive", "software-receive"]),
            rx: names(&["none", "all"]),
            clock: Some(1),
            ..TimeStampingOffer::default()
        };
        assert_eq!(offer(Attributes::new(&bytes)), wanted);
    }

    /// The names used for an older kernel's numbers match the running kernel's bit names.
    #[test]
    fn the_words_are_the_running_kernels() {
        let mut generic = Generic::open().unwrap();
        // ETH_SS_TS_TX_TYPES and ETH_SS_TS_RX_FILTERS of linux/ethtool.h.
        assert_eq!(strings(&mut generic, 13).unwrap()[..TX.len()], TX);
        assert_eq!(strings(&mut generic, 14).unwrap()[..RX.len()], RX);
    }

    #[test]
    fn the_loopback_is_stamped_by_software_alone() {
        let mut generic = Generic::open().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let offer = read_offer(&mut generic, "lo").unwrap();
        assert!(offer.kinds.contains("software-receive"), "{offer:?}");
        assert!(!offer.kinds.iter().any(|kind| kind.starts_with("hardware")), "{offer:?}");
        assert_eq!((offer.clock, offer.rx.len()), (None, 0));
        assert_eq!(read(&mut generic, "lo").unwrap_err().errno, Some(libc::EOPNOTSUPP));
        assert_eq!(read_by_ioctl(socket.as_fd(), "lo").unwrap_err().errno, Some(libc::EOPNOTSUPP));
        assert_eq!(read_by_ioctl(socket.as_fd(), "nope0").unwrap_err().errno, Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (offer(Attributes::new(&bytes)), config(Attributes::new(&bytes)));
        }
    }
}
