//! A frame from nothing: for sockets that send first, and for the load.

use std::net::SocketAddr;

use super::ethernet::{self, EtherType, Mac};
use super::{Addresses, Headers, Template, UdpChecksum, udp, vlan};

/// The VLAN tags of a frame, the outer first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tags {
    tags: [(u16, vlan::Control); vlan::MAX],
    count: u8,
}

impl Tags {
    /// No tag.
    pub const NONE: Self = Self { tags: [(0, vlan::Control(0)); vlan::MAX], count: 0 };

    /// One tag of IEEE 802.1Q.
    #[must_use]
    pub const fn one(control: vlan::Control) -> Self {
        let tags = [(EtherType::VLAN.0, control), (0, vlan::Control(0))];
        Self { tags, count: 1 }
    }

    /// A provider's tag (IEEE 802.1ad) and a customer's in it.
    #[must_use]
    pub const fn two(outer: vlan::Control, inner: vlan::Control) -> Self {
        Self { tags: [(EtherType::SERVICE_VLAN.0, outer), (EtherType::VLAN.0, inner)], count: 2 }
    }

    /// How many there are, 0 to 2.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    fn iter(&self) -> impl Iterator<Item = (EtherType, vlan::Control)> {
        self.tags.iter().take(self.count()).map(|(kind, control)| (EtherType(*kind), *control))
    }
}

/// Between which stations a frame goes, and on which VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// The sender.
    pub source: Mac,
    /// The receiver: the peer, or the router on the way to it.
    pub destination: Mac,
    /// Its tags.
    pub tags: Tags,
}

impl Link {
    /// Bytes of the Ethernet header with its tags.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        ethernet::LEN + self.tags.count() * vlan::LEN
    }

    /// Writes Ethernet header and tags before a packet of `ether_type`; nothing if `frame` is too short.
    pub(super) fn emit(&self, frame: &mut [u8], ether_type: EtherType) {
        let mut types = self.tags.iter().map(|(kind, _)| kind).chain([ether_type]);
        let mut next = || types.next().unwrap_or(ether_type);
        let Ok(mut header) = ethernet::View::new_mut(frame) else { return };
        let repr = ethernet::Repr { destination: self.destination, source: self.source, ether_type: next() };
        repr.emit(&mut header);
        let mut rest = header.into_payload();
        for (_, control) in self.tags.iter() {
            let Ok(mut tag) = vlan::View::new_mut(rest) else { return };
            vlan::Repr { control, ether_type: next() }.emit(&mut tag);
            rest = tag.into_payload();
        }
    }
}

/// Everything that all datagrams of one flow have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// MAC addresses and tags.
    pub link: Link,
    /// IP addresses.
    pub addresses: Addresses,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// TTL or hop limit: usually [`HOPS`](super::HOPS).
    pub hops: u8,
    /// TOS or traffic class: DSCP in the upper 6 bits, ECN in the lower 2.
    pub traffic_class: u8,
    /// IPv6 flow label, of which the lower 20 bits count.
    pub flow_label: u32,
}

impl Flow {
    /// A flow with the usual hops, and neither traffic class nor flow label.
    ///
    /// # Errors
    /// [`Unfit::Families`] if one address is IPv4 and the other IPv6.
    pub const fn new(link: Link, source: SocketAddr, destination: SocketAddr) -> Result<Self, Unfit> {
        let Some(addresses) = Addresses::new(source.ip(), destination.ip()) else {
            return Err(Unfit::Families);
        };
        Ok(Self {
            link,
            addresses,
            source_port: source.port(),
            destination_port: destination.port(),
            hops: super::HOPS,
            traffic_class: 0,
            flow_label: 0,
        })
    }

    /// Where the payload begins in this flow's frames.
    #[must_use]
    pub const fn payload_offset(&self) -> usize {
        let ip = if self.addresses.is_ipv4() { super::ipv4::LEN } else { super::ipv6::LEN };
        self.link.header_len() + ip + udp::LEN
    }
}

/// Writes a whole frame of `flow` that carries `payload`. What is returned describes it; it is
/// [`Headers::frame_end`] bytes long. Who sends many keeps a [`Template`].
///
/// # Errors
/// [`Unfit`] if the payload is longer than `frame` or a datagram has room for; nothing was written then.
pub fn build(
    frame: &mut [u8],
    flow: &Flow,
    payload: &[u8],
    udp_checksum: UdpChecksum,
) -> Result<Headers, Unfit> {
    Template::new(flow).emit_payload(frame, payload, udp_checksum)
}

/// Why a frame cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The frame would be longer than its buffer.
    #[error("a frame of {frame_len} bytes does not fit a buffer of {room}")]
    NoRoom {
        /// Bytes of the frame.
        frame_len: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// The payload is longer than a UDP datagram's can be.
    #[error("a payload of {payload_len} bytes does not fit a datagram, which takes {most}")]
    TooLong {
        /// Bytes of the payload.
        payload_len: usize,
        /// Most that fit.
        most: usize,
    },
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions")]
    Families,
}
