//! The interface with a local address: where the program of the kernel engine is attached.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use udpath_netlink::rtnetlink::Rtnetlink;

use super::sys;

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Largest IP packet, bytes.
    pub(super) mtu: usize,
    /// Receive queues. With one, all replies are handled by one CPU.
    pub(super) queues: usize,
    /// Whether the CPU that sends a request also processes it at the other end: a veth, which has no hash of its own.
    pub(super) veth: bool,
}

impl Interface {
    /// Whether flows move to the CPU that receives their replies, unless each has a home
    /// ([`udpath_bpf::Layout::homes`]): a veth with several queues.
    pub(super) fn moves_flows(&self) -> bool {
        self.veth && self.queues > 1
    }

    /// The interface that has `address`; none if no interface has it.
    pub(super) fn with_address(address: IpAddr) -> io::Result<Option<Self>> {
        let Some(name) = sys::interface_addresses()?.into_iter().find(|(_, a)| *a == address).map(|(n, _)| n)
        else {
            return Ok(None);
        };
        // Every device has an MTU file; without /sys the Ethernet default is used.
        let device = Path::new("/sys/class/net").join(&name);
        let mtu = udpath_files::kernel::text(device.join("mtu"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(1500);
        let is_receive = |name: &&OsString| name.as_encoded_bytes().starts_with(b"rx-");
        let queues = udpath_files::names(device.join("queues"), udpath_files::MAX_NAMES);
        let queues = queues.map_or(1, |names| names.iter().filter(is_receive).count());
        // What cannot be asked is taken for a NIC, whose hash keeps each flow on its queue.
        let links = Rtnetlink::open().and_then(|mut route| route.links()).unwrap_or_default();
        let link = links.into_iter().find(|link| link.name.as_deref() == Some(&name));
        let veth = link.is_some_and(|link| link.kind.as_deref() == Some("veth"));
        Ok(Some(Self { name, mtu, queues, veth }))
    }
}
