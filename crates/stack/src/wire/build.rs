//! Building a frame from scratch: for sockets that send first, and for load generation.

use std::net::{Ipv4Addr, SocketAddr};

use super::checksum::Sum;
use super::ethernet::{self, EtherType, Mac};
use super::words::words;
use super::{Addresses, Headers, UdpChecksum, Unfit, ipv4, ipv6, set16, udp, vlan};

/// The VLAN tags of a frame, outer first.
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

    /// Number of tags, 0 to 2.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count as usize
    }
}

/// The link-layer header of a frame: MAC addresses and VLAN tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkHeader {
    /// Source MAC address.
    pub source: Mac,
    /// Destination MAC address: the peer, or the router on the path to it.
    pub destination: Mac,
    /// VLAN tags.
    pub tags: Tags,
}

impl LinkHeader {
    /// Length of the Ethernet header with its tags, bytes.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        ethernet::LEN + self.tags.count() * vlan::LEN
    }

    /// Writes Ethernet header and tags for a packet of `ether_type`; writes nothing if `frame` is too short.
    pub(super) fn emit(&self, frame: &mut [u8], ether_type: EtherType) {
        let type_at = |place: usize| {
            self.tags
                .tags
                .get(place)
                .filter(|_| place < self.tags.count())
                .map_or(ether_type, |tag| EtherType(tag.0))
        };
        let Ok(mut header) = ethernet::View::new_mut(frame) else { return };
        let repr =
            ethernet::Repr { destination: self.destination, source: self.source, ether_type: type_at(0) };
        repr.emit(&mut header);
        let mut rest = header.into_payload();
        for (place, (_, control)) in self.tags.tags.iter().take(self.tags.count()).enumerate() {
            let Ok(mut tag) = vlan::View::new_mut(rest) else { return };
            vlan::Repr { control: *control, ether_type: type_at(place + 1) }.emit(&mut tag);
            rest = tag.into_payload();
        }
    }
}

/// The header fields that all datagrams of a flow share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// MAC addresses and tags.
    pub link: LinkHeader,
    /// IP addresses.
    pub addresses: Addresses,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// TTL or hop limit: usually [`DEFAULT_TTL`](super::DEFAULT_TTL).
    pub hops: u8,
    /// TOS or traffic class: DSCP in the upper 6 bits, ECN in the lower 2.
    pub traffic_class: u8,
    /// IPv6 flow label; only the lower 20 bits are used.
    pub flow_label: u32,
}

impl Flow {
    /// A flow with the default TTL, and neither traffic class nor flow label.
    ///
    /// # Errors
    /// [`Unfit::Families`] if one address is IPv4 and the other IPv6.
    pub const fn new(link: LinkHeader, source: SocketAddr, destination: SocketAddr) -> Result<Self, Unfit> {
        let Some(addresses) = Addresses::new(source.ip(), destination.ip()) else {
            return Err(Unfit::Families);
        };
        Ok(Self {
            link,
            addresses,
            source_port: source.port(),
            destination_port: destination.port(),
            hops: super::DEFAULT_TTL,
            traffic_class: 0,
            flow_label: 0,
        })
    }

    /// Offset of the payload in this flow's frames.
    #[must_use]
    pub const fn payload_offset(&self) -> usize {
        let ip = if self.addresses.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
        self.link.header_len() + ip + udp::LEN
    }

    /// The headers of an empty datagram.
    #[inline]
    pub(super) const fn headers(&self) -> Headers {
        Headers {
            source_ip: words(self.addresses.source()),
            destination_ip: words(self.addresses.destination()),
            source_port: self.source_port,
            destination_port: self.destination_port,
            payload_len: 0,
            l3: self.link.header_len() as u8,
            l4: (self.payload_offset() - udp::LEN) as u8,
        }
    }

    /// Writes all headers, `headers` being this flow's; writes nothing if `frame` is too short.
    #[inline]
    pub(super) fn write(&self, frame: &mut [u8], headers: &Headers, udp_field: u16) {
        let Some((link, packet)) = frame.split_at_mut_checked(headers.l3()) else { return };
        let (ether_type, datagram) = match self.addresses {
            Addresses::V4 { source, destination } => {
                let Some((header, datagram)) = packet.split_first_chunk_mut() else { return };
                self.ipv4(source, destination, headers.udp_len()).emit(header);
                (EtherType::IPV4, datagram)
            }
            Addresses::V6 { source, destination } => {
                let Some((header, datagram)) = packet.split_first_chunk_mut() else { return };
                let repr = ipv6::Repr {
                    source,
                    destination,
                    next_header: udp::PROTOCOL,
                    hop_limit: self.hops,
                    traffic_class: self.traffic_class,
                    flow_label: self.flow_label,
                    payload_len: headers.udp_len(),
                };
                repr.emit(header);
                (EtherType::IPV6, datagram)
            }
        };
        self.link.emit(link, ether_type);
        let Some(header) = datagram.first_chunk_mut::<{ udp::LEN }>() else { return };
        set16(header, 0, headers.source_port);
        set16(header, 2, headers.destination_port);
        set16(header, 4, headers.udp_len());
        set16(header, 6, udp_field);
    }

    /// The IPv4 header: DF and no identification, as in [replies](super::reply).
    #[inline]
    pub(super) fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr, payload_len: u16) -> ipv4::Repr {
        ipv4::Repr {
            source,
            destination,
            protocol: udp::PROTOCOL,
            ttl: self.hops,
            tos: self.traffic_class,
            identification: 0,
            dont_fragment: true,
            payload_len,
        }
    }
}

/// Writes a complete frame of `flow` that carries `payload`. Returns its headers; its length is
/// [`Headers::frame_end`]. To send many, keep a [`Template`](super::Template).
///
/// # Errors
/// [`Unfit`] if the payload does not fit `frame` or a datagram; then nothing was written.
pub fn build(
    frame: &mut [u8],
    flow: &Flow,
    payload: &[u8],
    udp_checksum: UdpChecksum,
) -> Result<Headers, Unfit> {
    let headers = flow.headers().resized(payload.len(), frame.len())?;
    headers.payload_mut(frame).copy_from_slice(payload);
    flow.write(frame, &headers, headers.udp_field(udp_checksum, || Sum::of(payload)));
    Ok(headers)
}
