//! A rule in nft's syntax, as far as it was decoded, so that users can find it in `nft -a list ruleset`.

use std::net::{Ipv4Addr, Ipv6Addr};

use udpath_netlink::numbers::*;

/// Keys of connection tracking (`enum nft_ct_keys`) that have a short name, by number.
const CT: [(u32, &str); 6] =
    [(0, "state"), (1, "direction"), (2, "status"), (3, "mark"), (6, "helper"), (13, "zone")];
/// Bits of `ct state`.
const STATES: [(u8, &str); 5] =
    [(1, "invalid"), (2, "established"), (4, "related"), (8, "new"), (64, "untracked")];

/// Content of a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    /// An IPv4 address or its leading bytes, with the length of the mask applied to it.
    Ipv4 {
        name: &'static str,
        bits: Option<u32>,
    },
    Ipv6 {
        name: &'static str,
        bits: Option<u32>,
    },
    /// A number in network byte order.
    Number(String),
    Meta(u16),
    Ct(u32),
    /// `ct state` and a mask of the states tested.
    CtState(u8),
    Unknown,
}

impl Field {
    /// A header field: base 0 is the link header, 1 the network header, 2 the transport header.
    pub(super) fn payload(ipv4: bool, base: usize, offset: usize, len: usize) -> Self {
        let part = |size: usize| (len < size).then(|| u32::try_from(len * 8).unwrap_or(u32::MAX));
        match (base, ipv4, offset, len) {
            (1, true, 9, 1) => Self::Number("ip protocol".into()),
            (1, true, 12, 1..=4) => Self::Ipv4 { name: "ip saddr", bits: part(4) },
            (1, true, 16, 1..=4) => Self::Ipv4 { name: "ip daddr", bits: part(4) },
            (1, false, 6, 1) => Self::Number("ip6 nexthdr".into()),
            (1, false, 8, 1..=16) => Self::Ipv6 { name: "ip6 saddr", bits: part(16) },
            (1, false, 24, 1..=16) => Self::Ipv6 { name: "ip6 daddr", bits: part(16) },
            (2, _, 0, 2) => Self::Number("udp sport".into()),
            (2, _, 2, 2) => Self::Number("udp dport".into()),
            (2, _, 4, 2) => Self::Number("udp length".into()),
            _ => {
                let base = ["@ll", "@nh", "@th", "@ih"].get(base).unwrap_or(&"@?");
                Self::Number(format!("{base},{},{}", offset * 8, len * 8))
            }
        }
    }

    /// The same after applying a mask.
    pub(super) fn masked(self, mask: &[u8]) -> Self {
        let ones = mask.iter().map(|byte| byte.count_ones()).sum();
        match self {
            Self::Ipv4 { name, .. } => Self::Ipv4 { name, bits: Some(ones) },
            Self::Ipv6 { name, .. } => Self::Ipv6 { name, bits: Some(ones) },
            // Host byte order; all states are in the lowest byte.
            Self::Ct(0) => Self::CtState(mask.iter().fold(0, |all, byte| all | byte)),
            other => other,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Ipv4 { name, .. } | Self::Ipv6 { name, .. } => (*name).to_owned(),
            Self::Number(name) => name.clone(),
            Self::Meta(NFT_META_IIFNAME) => "iifname".into(),
            Self::Meta(NFT_META_IIF) => "iif".into(),
            Self::Meta(NFT_META_NFPROTO) => "meta nfproto".into(),
            Self::Meta(NFT_META_L4PROTO) => "meta l4proto".into(),
            Self::Meta(NFT_META_PROTOCOL) => "meta protocol".into(),
            Self::Meta(NFT_META_PKTTYPE) => "meta pkttype".into(),
            Self::Meta(key) => format!("meta key {key}"),
            Self::Ct(key) => match CT.iter().find(|(known, _)| known == key) {
                Some((_, name)) => format!("ct {name}"),
                None => format!("ct key {key}"),
            },
            Self::CtState(_) => "ct state".into(),
            Self::Unknown => "a condition".into(),
        }
    }

    /// Formats a value of this field.
    pub(super) fn value(&self, data: &[u8]) -> String {
        let prefix = |bits: &Option<u32>| bits.map_or(String::new(), |bits| format!("/{bits}"));
        match self {
            Self::Ipv4 { bits, .. } => format!("{}{}", Ipv4Addr::from(filled(data)), prefix(bits)),
            Self::Ipv6 { bits, .. } => format!("{}{}", Ipv6Addr::from(filled(data)), prefix(bits)),
            Self::Meta(NFT_META_IIFNAME) => {
                let name: Vec<u8> = data.iter().copied().take_while(|byte| *byte != 0).collect();
                // Without a terminating zero it is a prefix of a name.
                let more = if name.len() == data.len() { "*" } else { "" };
                format!("\"{}{more}\"", String::from_utf8_lossy(&name))
            }
            Self::Meta(NFT_META_L4PROTO) if data == [libc::IPPROTO_UDP as u8] => "udp".into(),
            Self::Meta(NFT_META_NFPROTO) if data == [2] => "ipv4".into(),
            Self::Meta(NFT_META_NFPROTO) if data == [10] => "ipv6".into(),
            Self::Meta(_) | Self::Ct(_) | Self::CtState(_) => number(&reversed(data)),
            Self::Number(_) | Self::Unknown => number(data),
        }
    }

    /// A comparison as text.
    pub(super) fn compared(&self, operator: &str, data: &[u8]) -> String {
        match self {
            // Not 0 after a mask: one of these states.
            Self::CtState(states) if data.iter().all(|byte| *byte == 0) => {
                let named = STATES.iter().filter(|(bit, _)| states & bit != 0).map(|(_, name)| *name);
                let not = if operator == "!= " { "" } else { "!= " };
                format!("ct state {not}{}", named.collect::<Vec<_>>().join(","))
            }
            field => format!("{} {operator}{}", field.name(), field.value(data)),
        }
    }
}

/// A set by its name; an anonymous set has no meaningful name.
pub(super) fn set(name: &str) -> String {
    if name.starts_with("__") { "{ ... }".into() } else { format!("@{name}") }
}

/// The words of a rule, without those that others imply.
pub(super) fn joined(words: &[String]) -> String {
    let about = |what: &str| words.iter().any(|word| word.starts_with(what));
    let implied = |word: &String| match word.as_str() {
        "meta l4proto udp" => about("udp "),
        "meta nfproto ipv4" => about("ip "),
        "meta nfproto ipv6" => about("ip6 "),
        other => other.is_empty(),
    };
    let said: Vec<_> = words.iter().filter(|word| !implied(word)).map(String::as_str).collect();
    said.join(" ")
}

fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| data.get(index).copied().unwrap_or(0))
}

fn reversed(data: &[u8]) -> Vec<u8> {
    if cfg!(target_endian = "little") { data.iter().rev().copied().collect() } else { data.to_vec() }
}

/// Up to eight bytes as a number, longer data as hexadecimal.
fn number(data: &[u8]) -> String {
    if data.len() <= 8 {
        data.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)).to_string()
    } else {
        data.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}
