//! Settings of a network device, group by group, with ethtool's names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Driver of a device: `ethtool -i`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Number of channels by type: `ethtool -l`. A channel is an interrupt and the queues it serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelCounts {
    /// Receive only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Transmit only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Neither: link interrupts, SR-IOV coordination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<u32>,
    /// One receive and one transmit queue each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined: Option<u32>,
}

/// Channels in use and maximum. `None` where the driver has no such type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// In use.
    pub now: ChannelCounts,
    /// The driver's maximum.
    pub max: ChannelCounts,
}

impl Channels {
    /// Number of receive queues in these channels.
    #[must_use]
    pub fn rx_queues(&self) -> u32 {
        self.now.rx.unwrap_or(0).saturating_add(self.now.combined.unwrap_or(0))
    }
}

/// Descriptor rings, entries per queue: `ethtool -g`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Maximum for receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
    /// Transmit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Maximum for transmit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_max: Option<u32>,
    /// Receive buffer size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_buf_len: Option<u32>,
    /// Completion entry size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cqe_size: Option<u32>,
    /// Whether transmit descriptors are pushed to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_push: Option<bool>,
    /// Whether receive descriptors are pushed to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_push: Option<bool>,
    /// Whether TCP headers and payload go to separate buffers. 1: no, 2: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_data_split: Option<u32>,
}

/// Interrupt coalescing by ethtool's names: `rx-usecs` (microseconds), `rx-frames`, `adaptive-rx` (0 or 1), ...
/// Parameters the driver lacks are omitted. `ethtool -c`.
pub type Coalescing = BTreeMap<String, u32>;

/// One offload of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Whether it is on.
    pub active: bool,
    /// Whether it was requested. Differs from `active` while something it depends on is missing.
    pub wanted: bool,
    /// Whether it can be changed. If not, ethtool shows `[fixed]`.
    pub changeable: bool,
}

/// Offloads by the kernel's names: `rx-gro`, `rx-udp-gro-forwarding`, `rx-ntuple-filter`. `ethtool -k`.
pub type Features = BTreeMap<String, Feature>;

/// Receive side scaling: which queue a hash selects. `ethtool -x`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rss {
    /// The default context, used unless a rule selects another.
    pub main: RssContext,
    /// Additional contexts, selected by flow rules, by ID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<u32, RssContext>,
}

/// One RSS context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RssContext {
    /// The queue for each remainder of the hash. Empty: not reported by the device.
    #[serde(default)]
    pub table: Vec<u32>,
    /// The key of the hash function. Empty: not reported by the device.
    #[serde(default, with = "hex")]
    pub key: Vec<u8>,
    /// The function: `toeplitz`, `xor`, `crc32`. `None`: not reported by the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Transformation of the fields before hashing: bits of `RXH_XFRM_*`; 1 is symmetric-xor, 2 symmetric-or-xor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<u32>,
    /// UDP hash fields of an additional context, where the device supports them per context and the kernel reports them
    /// (6.17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<HashFields>,
}

/// Which fields of UDP packets are hashed: `ethtool -n DEV rx-flow-hash udp4`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashFields {
    /// Over IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp4: Option<Fields>,
    /// Over IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp6: Option<Fields>,
}

/// A set of fields, in ethtool's letters: `sdfn` is source and destination, address and port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fields(pub u32);

impl Fields {
    /// Letters and bits (`RXH_*` of linux/ethtool.h).
    const LETTERS: [(char, u32); 8] = [
        ('m', 1 << 1),
        ('v', 1 << 2),
        ('t', 1 << 3),
        ('s', 1 << 4),
        ('d', 1 << 5),
        ('f', 1 << 6),
        ('n', 1 << 7),
        ('r', 1 << 31),
    ];
    /// Source and destination address.
    pub const ADDRESSES: Self = Self(1 << 4 | 1 << 5);
    /// Addresses and ports.
    pub const PORTS: Self = Self(1 << 4 | 1 << 5 | 1 << 6 | 1 << 7);

    /// Whether both ports are included. Without them all flows between two hosts share a queue.
    #[must_use]
    pub const fn ports(self) -> bool {
        self.0 & (1 << 6 | 1 << 7) == 1 << 6 | 1 << 7
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::LETTERS
            .iter()
            .filter(|(_, bit)| self.0 & bit != 0)
            .try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bit = |letter| Self::LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| bit);
        text.chars().try_fold(Self(0), |fields, letter| {
            let bit = bit(letter)
                .ok_or_else(|| format!("'{letter}' is no field; known are the letters mvtsdfnr"))?;
            Ok(Self(fields.0 | bit))
        })
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Bytes as hexadecimal text, as ethtool prints keys: `6d:5a:56`.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&pairs.join(":"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pairs = text.split(':').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                u8::from_str_radix(pair, 16).map_err(|_| de::Error::custom(format!("'{pair}' is no byte")))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_with_ethtools_letters() {
        assert_eq!(Fields::PORTS.to_string(), "sdfn");
        assert_eq!("sd".parse(), Ok(Fields::ADDRESSES));
        assert!(Fields::PORTS.ports() && !Fields::ADDRESSES.ports());
        assert_eq!("sx".parse::<Fields>().unwrap_err(), "'x' is no field; known are the letters mvtsdfnr");
        for bits in [0, 0x8000_00fe, 1 << 4] {
            assert_eq!(Fields(bits).to_string().parse(), Ok(Fields(bits)));
        }
    }

    #[test]
    fn a_key_is_text_in_json() {
        let context = RssContext { key: vec![0x6d, 0x05], ..RssContext::default() };
        let json = serde_json::to_string(&context).unwrap();
        assert_eq!(json, r#"{"table":[],"key":"6d:05"}"#);
        assert_eq!(serde_json::from_str::<RssContext>(&json).unwrap(), context);
        assert!(serde_json::from_str::<RssContext>(r#"{"key":"6d:5"}"#).is_ok());
        assert!(serde_json::from_str::<RssContext>(r#"{"key":"zz"}"#).is_err());
    }
}
