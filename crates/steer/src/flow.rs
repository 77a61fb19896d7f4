//! The 5-tuple of a datagram: the input of every steering decision.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Source and destination address, both of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Of an IPv4 packet.
    V4 {
        /// Of the sender.
        source: Ipv4Addr,
        /// Of the receiver.
        destination: Ipv4Addr,
    },
    /// Of an IPv6 packet.
    V6 {
        /// Of the sender.
        source: Ipv6Addr,
        /// Of the receiver.
        destination: Ipv6Addr,
    },
}

/// A flow: addresses, ports, protocol. In text form a UDP flow, `{"source": "192.0.2.7:4000", "destination":
/// "192.0.2.1:53"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(into = "Text", try_from = "Text")]
pub struct Flow {
    /// Source and destination address.
    pub addresses: Addresses,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol number (IANA): 17 is UDP.
    pub protocol: u8,
}

/// Why two addresses are not a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// One is IPv4, the other IPv6.
    #[error("invalid flow from {source_address} to {destination}: give two addresses of one family")]
    Families {
        /// Of the sender.
        source_address: IpAddr,
        /// Of the receiver.
        destination: IpAddr,
    },
}

impl Flow {
    /// The protocol number of UDP (RFC 768).
    pub const UDP: u8 = 17;

    /// A UDP flow. IPv4-mapped IPv6 addresses (`::ffff:192.0.2.1`) are treated as what they are on the wire: IPv4.
    ///
    /// # Errors
    /// The addresses are of different families.
    pub fn udp(source: SocketAddr, destination: SocketAddr) -> Result<Self, FlowError> {
        let addresses = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            (source_address, destination) => {
                return Err(FlowError::Families { source_address, destination });
            }
        };
        Ok(Self {
            addresses,
            source_port: source.port(),
            destination_port: destination.port(),
            protocol: Self::UDP,
        })
    }

    /// The source.
    #[must_use]
    pub const fn source(&self) -> SocketAddr {
        let address = match self.addresses {
            Addresses::V4 { source, .. } => IpAddr::V4(source),
            Addresses::V6 { source, .. } => IpAddr::V6(source),
        };
        SocketAddr::new(address, self.source_port)
    }

    /// The destination.
    #[must_use]
    pub const fn destination(&self) -> SocketAddr {
        let address = match self.addresses {
            Addresses::V4 { destination, .. } => IpAddr::V4(destination),
            Addresses::V6 { destination, .. } => IpAddr::V6(destination),
        };
        SocketAddr::new(address, self.destination_port)
    }

    /// The same flow with another source port.
    #[must_use]
    pub const fn with_source_port(self, source_port: u16) -> Self {
        Self { source_port, ..self }
    }

    /// The flow of the replies.
    #[must_use]
    pub const fn reversed(self) -> Self {
        let addresses = match self.addresses {
            Addresses::V4 { source, destination } => {
                Addresses::V4 { source: destination, destination: source }
            }
            Addresses::V6 { source, destination } => {
                Addresses::V6 { source: destination, destination: source }
            }
        };
        let (source_port, destination_port) = (self.destination_port, self.source_port);
        Self { addresses, source_port, destination_port, protocol: self.protocol }
    }

    /// Whether it is an IPv4 flow.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.addresses, Addresses::V4 { .. })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.source(), self.destination())
    }
}

/// The text form of a flow.
#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    source: SocketAddr,
    destination: SocketAddr,
    #[serde(default = "udp", skip_serializing_if = "is_udp")]
    protocol: u8,
}

const fn udp() -> u8 {
    Flow::UDP
}

/// serde gives a reference.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
const fn is_udp(protocol: &u8) -> bool {
    *protocol == Flow::UDP
}

impl From<Flow> for Text {
    fn from(flow: Flow) -> Self {
        Self { source: flow.source(), destination: flow.destination(), protocol: flow.protocol }
    }
}

impl TryFrom<Text> for Flow {
    type Error = FlowError;

    fn try_from(text: Text) -> Result<Self, FlowError> {
        Ok(Self { protocol: text.protocol, ..Self::udp(text.source, text.destination)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_one_family() {
        let v4: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:53".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:53".parse().unwrap();
        let flow = Flow::udp(v4, mapped).unwrap();
        assert!(flow.is_ipv4());
        assert_eq!(flow.to_string(), "192.0.2.7:4000 -> 192.0.2.1:53");
        assert_eq!(flow.reversed().reversed(), flow);
        assert_eq!(flow.reversed().to_string(), "192.0.2.1:53 -> 192.0.2.7:4000");
        assert!(Flow::udp(v4, v6).unwrap_err().to_string().contains("two addresses of one family"));
    }

    #[test]
    fn its_text_form_is_read_back() {
        let text = r#"{"source":"[2001:db8::2]:1","destination":"[2001:db8::1]:53"}"#;
        let flow: Flow = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&flow).unwrap(), text);
        let mixed = r#"{"source":"[2001:db8::2]:1","destination":"192.0.2.1:53"}"#;
        assert!(serde_json::from_str::<Flow>(mixed).unwrap_err().to_string().contains("family"));
    }
}
