//! The interface that a local address belongs to: where the program of the in-kernel loop must sit.

use std::net::IpAddr;
use std::path::Path;
use std::{fs, io};

use super::sys;

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Largest IP packet, bytes.
    pub(super) mtu: usize,
}

impl Interface {
    /// The interface that has `address`; none if no interface has it.
    pub(super) fn with_address(address: IpAddr) -> io::Result<Option<Self>> {
        let Some(name) = sys::interface_addresses()?.into_iter().find(|(_, a)| *a == address).map(|(n, _)| n)
        else {
            return Ok(None);
        };
        // The loopback's or an unusual device's MTU file is there too; without /sys the Ethernet default stands in.
        let mtu = fs::read_to_string(Path::new("/sys/class/net").join(&name).join("mtu"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(1500);
        Ok(Some(Self { name, mtu }))
    }
}
