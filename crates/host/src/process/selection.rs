//! How a reuseport group selects a socket for a datagram, and the words for it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use udpath_bpf::{MAX_FIELD, MAX_PAYLOAD};

/// How a reuseport group selects a socket for a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// By the kernel's hash of the flow, or by incoming CPU where a member has one.
    ByFlow,
    /// Member `CPU mod members`, in bind order. Takes precedence over every incoming CPU.
    ByCpu,
    /// Member `CPU mod N` of another number than the members: a program from before one of them was closed, or another
    /// bound.
    ByCpuModulo(u32),
    /// Each datagram to the next member.
    RoundRobin,
    /// Each datagram to the member with the shortest queue, in bytes.
    LeastLoaded,
    /// By a hash of a part of the payload.
    Field {
        /// From the first byte of the payload.
        offset: u16,
        /// Bytes: 1 to 32.
        length: u8,
    },
}

impl Selection {
    /// What users may write.
    pub const WORDS: &str = "by-flow, by-cpu, round-robin, least-loaded, or field:OFFSET+LENGTH with up to 32 bytes of the payload, as in \
         field:1+8";

    /// What it does to the order of a flow's datagrams, if not all of them go to one socket.
    #[must_use]
    pub const fn reorders(self) -> Option<&'static str> {
        match self {
            // A flow moves with the CPU that receives it.
            Self::ByFlow | Self::ByCpu | Self::ByCpuModulo(_) => None,
            Self::RoundRobin | Self::LeastLoaded => {
                Some("gives up the order of datagrams within a flow: several sockets read them")
            }
            Self::Field { .. } => Some(
                "keeps the order of datagrams with the same field, and gives up that of others within a flow",
            ),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByFlow => f.write_str("by-flow"),
            Self::ByCpu => f.write_str("by-cpu"),
            Self::ByCpuModulo(members) => write!(f, "by-cpu:{members}"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::LeastLoaded => f.write_str("least-loaded"),
            Self::Field { offset, length } => write!(f, "field:{offset}+{length}"),
        }
    }
}

impl FromStr for Selection {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "by-flow" => Ok(Self::ByFlow),
            "by-cpu" => Ok(Self::ByCpu),
            "round-robin" => Ok(Self::RoundRobin),
            "least-loaded" => Ok(Self::LeastLoaded),
            _ => modulo(text).or_else(|| field(text)).ok_or(Self::WORDS),
        }
    }
}

/// `by-cpu:4`.
fn modulo(text: &str) -> Option<Selection> {
    let members = number(text.strip_prefix("by-cpu:")?)?;
    (members > 0).then_some(Selection::ByCpuModulo(members))
}

/// `field:6+8`.
fn field(text: &str) -> Option<Selection> {
    let (offset, length) = text.strip_prefix("field:")?.split_once('+')?;
    let (offset, length) = (number::<u16>(offset)?, number::<u8>(length)?);
    let fits = (1..=MAX_FIELD).contains(&length) && u32::from(offset) + u32::from(length) <= MAX_PAYLOAD;
    fits.then_some(Selection::Field { offset, length })
}

/// A number of digits alone: `parse` would accept a sign.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for text in
            ["by-flow", "by-cpu", "by-cpu:4", "round-robin", "least-loaded", "field:0+1", "field:65475+32"]
        {
            assert_eq!(text.parse::<Selection>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "flow",
            "by-cpu:",
            "by-cpu:0",
            "by-cpu:+4",
            "field:",
            "field:1",
            "field:1+0",
            "field:1+33",
            "field:65476+32",
            "field:+1+2",
            "field:1++2",
        ] {
            assert_eq!(text.parse::<Selection>(), Err(Selection::WORDS), "{text}");
        }
    }
}
