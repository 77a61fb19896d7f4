//! Opens the interface: its ports, and the program that takes the flows' replies.

use std::net::SocketAddr;
use std::path::Path;

use udpath_bpf::Outcome;
use udpath_stack::port::xdp::{self, Config, XdpDevice, XdpPort};
use udpath_stack::port::{Checksums, Port};
use udpath_stack::wire::{ethernet, ipv4, ipv6, udp, vlan};

use super::failed;
use crate::Error;
use crate::plan::Plan;
use crate::template::Protocol;

/// Bytes of a frame that the kernel needs before the packet (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Bytes of a packet's longest headers.
const MAX_HEADERS: usize = ethernet::LEN + vlan::MAX * vlan::LEN + ipv6::LEN + udp::LEN;

/// The interface with its program attached; detached on drop, and however the process ends.
#[derive(Debug)]
pub(super) struct Device(XdpDevice);

impl Device {
    /// Attaches to `interface` and opens a port on each of its queues.
    pub(super) fn open(
        interface: &str,
        plan: &Plan,
        protocol: &dyn Protocol,
    ) -> Result<(Self, Vec<XdpPort>), Error> {
        let longest = plan.size.max(protocol.template().max_reply(plan.size)) + MAX_HEADERS + HEADROOM;
        let config = Config {
            frame_size: if longest > 2048 { 4096 } else { 2048 },
            // A virtual interface has no device, but the sender at its other end leaves UDP checksums to one: they are
            // partial in its frames, and full verification would reject all of them.
            checksums: if is_virtual(interface) { Checksums::Partial } else { Checksums::Unverified },
            ..Config::default()
        };
        let mut device = XdpDevice::open(interface, config).map_err(explain)?;
        let ports = device.ports().map_err(explain)?;
        Ok((Self(device), ports))
    }

    /// From now on replies to `locals` arrive at the ports.
    pub(super) fn bind(&mut self, locals: &[SocketAddr]) -> Result<(), Error> {
        locals.iter().try_for_each(|local| self.0.bind(*local).map_err(explain))
    }

    /// The modes of the port and of the program, for a note.
    pub(super) fn mode(&self, port: &XdpPort) -> String {
        format!("{} mode ({})", port.properties().mode, self.0.mode())
    }

    /// Replies that went to the kernel's sockets, which are not read, instead of being taken.
    pub(super) fn to_the_kernel(&self) -> u64 {
        let outcomes = self.0.outcomes();
        outcomes.of(Outcome::TooLong) + outcomes.of(Outcome::NoSocket)
    }
}

/// Payload that fits one packet of `mtu` bytes.
pub(super) fn most_payload(mtu: u32, ipv6: bool) -> usize {
    let headers = udp::LEN + if ipv6 { ipv6::LEN } else { ipv4::LEN };
    (mtu as usize).saturating_sub(headers)
}

fn is_virtual(interface: &str) -> bool {
    !Path::new("/sys/class/net").join(interface).join("device").exists()
}

fn explain(error: xdp::Error) -> Error {
    match error {
        xdp::Error::NoNative { interface } => {
            failed(format!("the driver of {interface} has no native XDP; use the socket engine"))
        }
        xdp::Error::NoAfXdp => {
            failed("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use the socket engine")
        }
        other => failed(other),
    }
}
