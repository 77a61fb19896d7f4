//! Receive side scaling: which queue of a card a hash selects (`ethtool -x`), and over which fields (`ethtool -n`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{dump, get, single, strings};
use crate::attribute::Attributes;
use crate::error::Error;
use crate::generic::{Generic, attributes};
use crate::numbers::*;

/// Receive side scaling: which queue a hash selects. `ethtool -x`.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rss {
    /// The default context, used unless a rule selects another.
    pub main: RssContext,
    /// Additional contexts, selected by flow rules, by ID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<u32, RssContext>,
}

/// One RSS context.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RssContext {
    /// The queue for each remainder of the hash. Empty: not reported by the device.
    #[serde(default)]
    pub table: Vec<u32>,
    /// The key of the hash function. Empty: not reported by the device.
    #[serde(default, with = "hex")]
    #[schemars(with = "String")]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(from = "String", into = "String")]
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
                .ok_or_else(|| format!("'{letter}' is not a field; expected letters of mvtsdfnr"))?;
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

/// Reads the RSS contexts of an interface. Since Linux 6.3; additional contexts since 6.12.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<Rss, Error> {
    let answers = get(generic, ETHTOOL_MSG_RSS_GET, interface)?;
    let functions = functions(generic)?;
    let main = context(single(&answers)?, &functions);
    let others = dump(generic, ETHTOOL_MSG_RSS_GET, interface, |body| {
        body.u32(ETHTOOL_A_RSS_START_CONTEXT, 1);
    });
    let contexts = match &others {
        Ok(answers) => attributes(answers)
            .filter_map(|is| {
                let own = RssContext { fields: hash_fields(is), ..context(is, &functions) };
                Some((is.u32(ETHTOOL_A_RSS_CONTEXT)?, own))
            })
            .collect(),
        // An older kernel cannot dump them.
        Err(_) => BTreeMap::new(),
    };
    Ok(Rss { main, contexts })
}

/// Reads the UDP hash fields of the main context. Since Linux 6.17; `None` before.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read_hash_fields(generic: &mut Generic, interface: &str) -> Result<Option<HashFields>, Error> {
    let answers = get(generic, ETHTOOL_MSG_RSS_GET, interface)?;
    let is = single(&answers)?;
    Ok(hash_fields(is))
}

/// The names of the hash function bits, from bit 0.
///
/// # Errors
/// The kernel does not know them.
pub fn functions(generic: &mut Generic) -> Result<Vec<String>, Error> {
    strings(generic, ETH_SS_RSS_HASH_FUNCS)
}

/// `None` if the kernel does not report them for this context.
fn hash_fields(is: Attributes<'_>) -> Option<HashFields> {
    let flows = is.nested(ETHTOOL_A_RSS_FLOW_HASH);
    let fields = |kind| flows.u32(kind).map(Fields);
    let there = is.has(ETHTOOL_A_RSS_FLOW_HASH);
    there.then(|| HashFields { udp4: fields(ETHTOOL_A_FLOW_UDP4), udp6: fields(ETHTOOL_A_FLOW_UDP6) })
}

fn context(is: Attributes<'_>, functions: &[String]) -> RssContext {
    let table = is.bytes(ETHTOOL_A_RSS_INDIR).unwrap_or_default();
    let (table, _) = table.as_chunks::<4>();
    RssContext {
        table: table.iter().map(|entry| u32::from_ne_bytes(*entry)).collect(),
        key: is.bytes(ETHTOOL_A_RSS_HKEY).unwrap_or_default().to_vec(),
        function: is.u32(ETHTOOL_A_RSS_HFUNC).and_then(|bits| function(bits, functions)),
        transform: is.u32(ETHTOOL_A_RSS_INPUT_XFRM).filter(|bits| *bits != 0),
        fields: None,
    }
}

/// The name of the hash function whose bit is set.
pub(crate) fn function(bits: u32, functions: &[String]) -> Option<String> {
    functions.get(usize::try_from(bits.trailing_zeros()).ok()?).cloned()
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
                u8::from_str_radix(pair, 16).map_err(|_| de::Error::custom(format!("'{pair}' is not a byte")))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bitset;
    use super::*;
    use crate::attribute::Writer;

    #[test]
    fn fields_are_written_with_ethtools_letters() {
        assert_eq!(Fields::PORTS.to_string(), "sdfn");
        assert_eq!("sd".parse(), Ok(Fields::ADDRESSES));
        assert!(Fields::PORTS.ports() && !Fields::ADDRESSES.ports());
        assert_eq!("sx".parse::<Fields>().unwrap_err(), "'x' is not a field; expected letters of mvtsdfnr");
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

    #[test]
    fn a_context_is_decoded() {
        let mut writer = Writer::default();
        writer.u32(ETHTOOL_A_RSS_HFUNC, 1);
        writer.bytes(ETHTOOL_A_RSS_INDIR, &[0_u32, 1, 0, 1].map(u32::to_ne_bytes).concat());
        writer.bytes(ETHTOOL_A_RSS_HKEY, &[0x6d, 0x5a]);
        let bytes = writer.finish();
        let functions = ["toeplitz", "xor"].map(str::to_owned);
        let wanted = RssContext {
            table: vec![0, 1, 0, 1],
            key: vec![0x6d, 0x5a],
            function: Some("toeplitz".into()),
            ..RssContext::default()
        };
        assert_eq!(context(Attributes::new(&bytes), &functions), wanted);
        assert_eq!(context(Attributes::new(&[]), &functions), RssContext::default());
        assert_eq!((function(2, &functions), function(8, &functions)), (Some("xor".into()), None));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), bits: u32) {
            let functions = ["toeplitz".to_owned()];
            let _ = (context(Attributes::new(&bytes), &functions), function(bits, &functions));
            let _ = bitset::read(Attributes::new(&bytes));
        }
    }
}
