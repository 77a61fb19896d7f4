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

/// Bytes of a frame that the kernel needs beside the packet (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Longest headers of a packet.
const HEADERS: usize = ethernet::LEN + vlan::MAX * vlan::LEN + ipv6::LEN + udp::LEN;

/// The interface with its program attached; let go when dropped, and when the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Device(XdpDevice);

impl Device {
    /// Attaches to `interface` and opens a port on each of its queues.
    pub(super) fn open(
        interface: &str,
        plan: &Plan,
        protocol: &dyn Protocol,
    ) -> Result<(Self, Vec<XdpPort>), Error> {
        let longest = plan.size.max(protocol.template().max_reply(plan.size)) + HEADERS + HEADROOM;
        let config = Config {
            frame_size: if longest > 2048 { 4096 } else { 2048 },
            // A virtual interface has no device: a sender at its other end leaves UDP checksums to one, so that its frames
            // carry half of one. A full check would refuse them all.
            checksums: if is_virtual(interface) { Checksums::Partial } else { Checksums::Unverified },
            ..Config::default()
        };
        let mut device = XdpDevice::open(interface, config).map_err(explain)?;
        let ports = device.ports().map_err(explain)?;
        Ok((Self(device), ports))
    }

    /// From now on replies to `locals` come to the ports.
    pub(super) fn bind(&mut self, locals: &[SocketAddr]) -> Result<(), Error> {
        locals.iter().try_for_each(|local| self.0.bind(*local).map_err(explain))
    }

    /// How the program is attached and who copies, in words.
    pub(super) fn mode(&self, port: &XdpPort) -> String {
        format!("{} mode ({})", port.properties().mode, self.0.mode())
    }

    /// Replies that were to be taken and went to the kernel's sockets instead, which nobody reads.
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
    failed(match error {
        xdp::Error::NoNative { interface } => {
            format!("the driver of {interface} has no native XDP; use the socket engine")
        }
        xdp::Error::NoAfXdp => {
            "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use the socket engine".to_owned()
        }
        other => other.to_string(),
    })
}
