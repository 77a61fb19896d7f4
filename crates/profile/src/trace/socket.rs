//! A UDP socket as identified by the sources.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::trace::Bound;

/// A UDP socket, by its bound address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
pub struct Socket {
    /// Its port.
    pub port: u16,
    /// Its address, unspecified for a wildcard bind; `None` if there was no room for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<IpAddr>,
    /// The inode number of its network namespace, as in /proc/PID/ns/net.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub netns: Option<u32>,
}

impl Socket {
    pub(super) fn new(port: u16, bound: Option<Bound>) -> Self {
        Self { port, address: bound.map(|bound| bound.address), netns: bound.map(|bound| bound.netns) }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, "*:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_shown_as_people_write_them() {
        let bound = Bound { address: IpAddr::from([0; 16]), port: 53, netns: 7 };
        assert_eq!(Socket::new(53, Some(bound)).to_string(), "[::]:53");
        assert_eq!(Socket::new(53, None).to_string(), "*:53");
    }
}
