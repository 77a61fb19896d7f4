//! What of a packet goes into the hash, and in which order.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::{Addresses, Flow};

/// Which fields of a packet a network card hashes: `ethtool -N DEV rx-flow-hash udp4 sd` or `sdfn`.
///
/// Fragments have no ports, so a card hashes them by addresses whatever is set; with `sdfn` a flow's fragments may
/// arrive on another queue than its whole datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
pub enum Fields {
    /// Source and destination address: all flows between two hosts have one hash.
    #[serde(rename = "sd")]
    Addresses,
    /// Addresses, source port, destination port.
    #[serde(rename = "sdfn")]
    AddressesPorts,
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Addresses => "sd",
            Self::AddressesPorts => "sdfn",
        })
    }
}

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sd" => Ok(Self::Addresses),
            "sdfn" => Ok(Self::AddressesPorts),
            other => {
                Err(format!("{other:?} is not known; write sd (addresses) or sdfn (addresses and ports)"))
            }
        }
    }
}

/// What is done to the fields before they are hashed (`RXH_XFRM_*` of `include/uapi/linux/ethtool.h`, and
/// `Documentation/networking/scaling.rst`). Both kinds give the two directions of a flow one hash, and lose entropy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transform {
    /// Nothing.
    #[default]
    None,
    /// Source ^ destination in the place of both, for addresses and for ports. ice, iavf.
    SymmetricXor,
    /// Source | destination in the place of the source, source ^ destination in that of the destination. mlx5.
    SymmetricOrXor,
}

/// The input of the hash, in the order of Microsoft's definition: source address, destination address, source port,
/// destination port, each as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl Input {
    /// Two IPv6 addresses and two ports.
    pub const MAX_LEN: usize = 36;

    /// The input that a flow's packets make.
    #[must_use]
    pub fn new(flow: &Flow, fields: Fields, transform: Transform) -> Self {
        let mut input = Self { bytes: [0; Self::MAX_LEN], len: 0 };
        match flow.addresses {
            Addresses::V4 { source, destination } => {
                input.pair(&source.octets(), &destination.octets(), transform);
            }
            Addresses::V6 { source, destination } => {
                input.pair(&source.octets(), &destination.octets(), transform);
            }
        }
        if fields == Fields::AddressesPorts {
            input.pair(&flow.source_port.to_be_bytes(), &flow.destination_port.to_be_bytes(), transform);
        }
        input
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Adds a field of the source and that of the destination.
    fn pair(&mut self, source: &[u8], destination: &[u8], transform: Transform) {
        let len = source.len();
        let (first, second) = self.bytes[self.len..self.len + 2 * len].split_at_mut(len);
        for (at, (&from, &to)) in source.iter().zip(destination).enumerate() {
            (first[at], second[at]) = match transform {
                Transform::None => (from, to),
                Transform::SymmetricXor => (from ^ to, from ^ to),
                Transform::SymmetricOrXor => (from | to, from ^ to),
            };
        }
        self.len += 2 * len;
    }
}
