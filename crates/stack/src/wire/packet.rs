//! A frame with a unicast UDP datagram, in one pass: what the fast path needs to know of it, or why it is not one.
//!
//! Each check is one branch that is hardly ever taken; what decides between rare reasons is out of line. The checksums
//! are not part of the pass: a port may have checked them already ([`Headers::verify`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use super::checksum::Sum;
use super::ethernet::{self, EtherType, Mac};
use super::{Addresses, Refusal, UdpChecksum, Unfit, be16, ipv4, ipv6, udp, vlan};

/// What the headers of one UDP datagram say, and where they lie in its frame.
///
/// A value describes the frame it was parsed from (or that was [built](super::build) or [turned](super::reply) with it).
/// Used with another, nothing panics: what would lie outside is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    pub(super) addresses: Addresses,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) payload_len: u16,
    pub(super) l3: u8,
    pub(super) l4: u8,
}

/// The whole datagram at once: [`Packet::parse`].
#[derive(Debug)]
pub enum Packet {}

impl Packet {
    /// Reads the headers of `frame`, which begins with the Ethernet header and has no frame check sequence.
    ///
    /// The payload's length is UDP's: padding of short frames, and what IP carries beyond UDP's length, are left out.
    ///
    /// # Errors
    /// Why it is no unicast UDP datagram that may be answered. The first reason in the order of [`Refusal::ALL`], of
    /// those that depend on bytes that are there.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Headers, Refusal> {
        let Some((link, mut rest)) = frame.split_first_chunk::<{ ethernet::LEN }>() else {
            return Err(Refusal::FrameShort);
        };
        if (link[0] | link[6]) & 1 != 0 {
            return Err(group(link));
        }
        let mut ether_type = EtherType(be16(link, 12));
        let mut tags = 0;
        while ether_type.is_tag() {
            if tags == vlan::MAX {
                return Err(Refusal::VlanDepth);
            }
            let Some((tag, behind)) = rest.split_first_chunk::<{ vlan::LEN }>() else {
                return Err(Refusal::FrameShort);
            };
            ether_type = EtherType(be16(tag, 2));
            rest = behind;
            tags += 1;
        }
        let l3 = (ethernet::LEN + tags * vlan::LEN) as u8;
        let (addresses, datagram, l4) = match ether_type {
            EtherType::IPV4 => {
                let (addresses, datagram) = parse_ipv4(rest)?;
                (addresses, datagram, l3 + ipv4::LEN as u8)
            }
            EtherType::IPV6 => {
                let (addresses, datagram) = parse_ipv6(rest)?;
                (addresses, datagram, l3 + ipv6::LEN as u8)
            }
            _ => return Err(Refusal::NotIp),
        };
        let Some(header) = datagram.first_chunk::<{ udp::LEN }>() else {
            return Err(Refusal::UdpTruncated);
        };
        let len = be16(header, 4);
        if usize::from(len) < udp::LEN || usize::from(len) > datagram.len() {
            return Err(udp_length(len));
        }
        let (source_port, destination_port) = (be16(header, 0), be16(header, 2));
        if source_port == 0 || destination_port == 0 {
            return Err(Refusal::PortZero);
        }
        let payload_len = len - udp::LEN as u16;
        Ok(Headers { addresses, source_port, destination_port, payload_len, l3, l4 })
    }
}

/// Addresses and payload of an IPv4 packet with padding behind it.
#[inline]
fn parse_ipv4(bytes: &[u8]) -> Result<(Addresses, &[u8]), Refusal> {
    let Some(header) = bytes.first_chunk::<{ ipv4::LEN }>() else {
        return Err(Refusal::IpTruncated);
    };
    if header[0] != 0x45 {
        return Err(ipv4_header(header[0]));
    }
    let total_len = usize::from(be16(header, 2));
    if total_len < ipv4::LEN {
        return Err(Refusal::Ipv4Length);
    }
    let Some(datagram) = bytes.get(ipv4::LEN..total_len) else {
        return Err(Refusal::IpTruncated);
    };
    if be16(header, 6) & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
        return Err(Refusal::Fragment);
    }
    if header[9] != udp::PROTOCOL {
        return Err(transport(header[9]));
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    if !(is_plain_v4(source) && is_plain_v4(destination)) || source == destination {
        judge_v4(source, destination)?;
    }
    Ok((Addresses::V4 { source, destination }, datagram))
}

/// Addresses and payload of an IPv6 packet with padding behind it.
#[inline]
fn parse_ipv6(bytes: &[u8]) -> Result<(Addresses, &[u8]), Refusal> {
    let Some((header, rest)) = bytes.split_first_chunk::<{ ipv6::LEN }>() else {
        return Err(Refusal::IpTruncated);
    };
    if header[0] >> 4 != 6 {
        return Err(Refusal::IpVersion);
    }
    let len = be16(header, 4);
    let Some(datagram) = rest.get(..usize::from(len)) else {
        return Err(Refusal::IpTruncated);
    };
    if header[6] != udp::PROTOCOL {
        return Err(ipv6::extension(header[6], len).unwrap_or_else(|| transport(header[6])));
    }
    let [_, _, _, _, _, _, _, _, addresses @ ..] = header;
    let (source, destination) = addresses.split_at(16);
    let (source, destination) = (address_v6(source), address_v6(destination));
    if !(is_plain_v6(source) && is_plain_v6(destination)) || source == destination {
        judge_v6(source, destination)?;
    }
    Ok((Addresses::V6 { source, destination }, datagram))
}

#[inline(always)]
fn address_v6(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    Ipv6Addr::from(octets)
}

/// Certainly unicast, and not loopback: 1.0.0.0 to 223.255.255.255 without 127.0.0.0/8.
#[inline]
const fn is_plain_v4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first.wrapping_sub(1) < 223 && first != 127
}

/// Certainly unicast, and not loopback: neither multicast nor in ::/64, where all special addresses are.
#[inline]
const fn is_plain_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    (bits >> 64) as u64 != 0 && (bits >> 120) as u8 != 0xff
}

#[cold]
fn group(link: &[u8; ethernet::LEN]) -> Refusal {
    let [a, b, c, d, e, f, ..] = *link;
    let destination = Mac([a, b, c, d, e, f]);
    if destination.is_broadcast() {
        Refusal::LinkBroadcast
    } else if destination.is_group() {
        Refusal::LinkMulticast
    } else {
        Refusal::LinkSource
    }
}

#[cold]
fn ipv4_header(first: u8) -> Refusal {
    match (first >> 4, first & 0xf) {
        (4, 0..5) => Refusal::Ipv4Length,
        (4, _) => Refusal::Ipv4Options,
        _ => Refusal::IpVersion,
    }
}

#[cold]
fn transport(protocol: u8) -> Refusal {
    if protocol == udp::LITE_PROTOCOL { Refusal::UdpLite } else { Refusal::NotUdp }
}

#[cold]
fn udp_length(len: u16) -> Refusal {
    match len {
        0 => Refusal::UdpLengthZero,
        1..8 => Refusal::UdpLengthShort,
        _ => Refusal::UdpLengthLong,
    }
}

/// 240.0.0.0/4 is reserved, but the kernel takes it and some networks use it: plain enough.
#[cold]
fn judge_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Result<(), Refusal> {
    let special = |address: Ipv4Addr| address.octets()[0] == 0 || address.is_loopback();
    if special(source) || source.is_multicast() || source.is_broadcast() {
        Err(Refusal::SourceNotUnicast)
    } else if destination.is_broadcast() {
        Err(Refusal::DestinationBroadcast)
    } else if destination.is_multicast() {
        Err(Refusal::DestinationMulticast)
    } else if special(destination) {
        Err(Refusal::DestinationNotUnicast)
    } else if source == destination {
        Err(Refusal::SameAddress)
    } else {
        Ok(())
    }
}

/// The kernel drops IPv4-mapped addresses on the wire as well (`ip6_rcv_core`): they would pass for IPv4 peers.
#[cold]
fn judge_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Result<(), Refusal> {
    let special = |address: Ipv6Addr| {
        address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some()
    };
    if special(source) || source.is_multicast() {
        Err(Refusal::SourceNotUnicast)
    } else if destination.is_multicast() {
        Err(Refusal::DestinationMulticast)
    } else if special(destination) {
        Err(Refusal::DestinationNotUnicast)
    } else if source == destination {
        Err(Refusal::SameAddress)
    } else {
        Ok(())
    }
}

impl Headers {
    /// The IP addresses.
    #[must_use]
    #[inline]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Who sent the datagram.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> SocketAddr {
        socket_address(self.addresses.source(), self.source_port)
    }

    /// Whom it is for.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> SocketAddr {
        socket_address(self.addresses.destination(), self.destination_port)
    }

    /// The sender's port, never 0 in what was parsed.
    #[must_use]
    #[inline]
    pub const fn source_port(&self) -> u16 {
        self.source_port
    }

    /// The receiver's port, never 0 in what was parsed.
    #[must_use]
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        self.destination_port
    }

    /// Whether IP is version 4; 6 otherwise.
    #[must_use]
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        self.addresses.is_ipv4()
    }

    /// VLAN tags, 0 to 2.
    #[must_use]
    #[inline]
    pub const fn tags(&self) -> usize {
        (self.l3 as usize - ethernet::LEN) / vlan::LEN
    }

    /// Where the IP header begins, in bytes from the frame's begin.
    #[must_use]
    #[inline]
    pub const fn l3(&self) -> usize {
        self.l3 as usize
    }

    /// Where the UDP header begins.
    #[must_use]
    #[inline]
    pub const fn l4(&self) -> usize {
        self.l4 as usize
    }

    /// Where the payload begins.
    #[must_use]
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        self.l4 as usize + udp::LEN
    }

    /// Bytes of payload.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.payload_len as usize
    }

    /// Where the payload ends, and with it the frame but for padding.
    #[must_use]
    #[inline]
    pub const fn frame_end(&self) -> usize {
        self.payload_offset() + self.payload_len()
    }

    /// Where in the frame the payload lies.
    #[must_use]
    #[inline]
    pub const fn payload_range(&self) -> Range<usize> {
        self.payload_offset()..self.frame_end()
    }

    /// The payload; nothing if `frame` is too short to be the one described.
    #[must_use]
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload_range()).unwrap_or_default()
    }

    /// The payload, to be written; nothing if `frame` is too short to be the one described.
    #[must_use]
    #[inline]
    pub fn payload_mut<'a>(&self, frame: &'a mut [u8]) -> &'a mut [u8] {
        frame.get_mut(self.payload_range()).unwrap_or_default()
    }

    /// Checks the checksums of IPv4 and UDP.
    ///
    /// # Errors
    /// As [`verify_ip`](Self::verify_ip) and [`verify_udp`](Self::verify_udp).
    #[inline]
    pub fn verify(&self, frame: &[u8]) -> Result<(), Refusal> {
        self.verify_ip(frame)?;
        self.verify_udp(frame)
    }

    /// Checks the IPv4 header's checksum; IPv6 has none.
    ///
    /// # Errors
    /// [`Refusal::Ipv4Checksum`]; [`Refusal::FrameShort`] if `frame` cannot be the one described.
    #[inline]
    pub fn verify_ip(&self, frame: &[u8]) -> Result<(), Refusal> {
        if !self.is_ipv4() {
            return Ok(());
        }
        let Some(header) = frame.get(self.l3()..).and_then(<[u8]>::first_chunk::<{ ipv4::LEN }>) else {
            return Err(Refusal::FrameShort);
        };
        if Sum::of(header).is_intact() { Ok(()) } else { Err(Refusal::Ipv4Checksum) }
    }

    /// Checks the UDP checksum over pseudo header, header and payload. IPv4 may go without (the field is 0).
    ///
    /// # Errors
    /// [`Refusal::UdpChecksum`]; [`Refusal::UdpChecksumMissing`] over IPv6; [`Refusal::FrameShort`] if `frame` cannot
    /// be the one described.
    #[inline]
    pub fn verify_udp(&self, frame: &[u8]) -> Result<(), Refusal> {
        // The addresses lie right before the UDP header in both versions, so one run sums them with it.
        let addresses_len = if self.is_ipv4() { 8 } else { 32 };
        let Some((addresses, datagram)) = frame
            .get(self.l4() - addresses_len..self.frame_end())
            .and_then(|covered| covered.split_at_checked(addresses_len))
        else {
            return Err(Refusal::FrameShort);
        };
        let Some(header) = datagram.first_chunk::<{ udp::LEN }>() else {
            return Err(Refusal::FrameShort);
        };
        if be16(header, 6) == 0 {
            return if self.is_ipv4() { Ok(()) } else { Err(Refusal::UdpChecksumMissing) };
        }
        let addresses_sum = Sum::of(addresses);
        let pseudo =
            addresses_sum.plus(Sum::of_u16(u16::from(udp::PROTOCOL))).plus(Sum::of_u16(self.udp_len()));
        if pseudo.plus(Sum::of(datagram)).is_intact() { Ok(()) } else { Err(Refusal::UdpChecksum) }
    }

    /// Computes and writes the checksums of IPv4 and UDP, for a frame that was changed by hand.
    ///
    /// # Errors
    /// [`Unfit::NoRoom`] if `frame` cannot be the one described.
    #[inline]
    pub fn fill_checksums(&self, frame: &mut [u8], udp_checksum: UdpChecksum) -> Result<(), Unfit> {
        let no_room = Unfit::NoRoom { frame_len: self.frame_end(), room: frame.len() };
        let packet = frame.get_mut(self.l3()..self.frame_end()).ok_or(no_room)?;
        let datagram = if self.is_ipv4() {
            let (header, datagram) = packet.split_first_chunk_mut::<{ ipv4::LEN }>().ok_or(no_room)?;
            super::set16(header, 10, 0);
            let checksum = Sum::of(header).checksum();
            super::set16(header, 10, checksum);
            datagram
        } else {
            packet.split_first_chunk_mut::<{ ipv6::LEN }>().ok_or(no_room)?.1
        };
        let (header, payload) = datagram.split_first_chunk_mut::<{ udp::LEN }>().ok_or(no_room)?;
        super::set16(header, 6, 0);
        let header_sum = Sum::of(header);
        let checksum = self.udp_field(udp_checksum, || header_sum.plus(Sum::of(payload)));
        super::set16(header, 6, checksum);
        Ok(())
    }

    /// The length in the UDP header.
    #[inline]
    pub(super) const fn udp_len(&self) -> u16 {
        self.payload_len + udp::LEN as u16
    }

    /// The total length in the IPv4 header.
    #[inline]
    pub(super) const fn ipv4_len(&self) -> u16 {
        self.payload_len + (ipv4::LEN + udp::LEN) as u16
    }

    /// The value of the UDP checksum's field; `datagram` sums header and payload with 0 in that field.
    #[inline]
    pub(super) fn udp_field(&self, udp_checksum: UdpChecksum, datagram: impl FnOnce() -> Sum) -> u16 {
        let pseudo = self.addresses.pseudo_header(self.udp_len());
        match udp_checksum {
            UdpChecksum::Computed => pseudo.plus(datagram()).udp_checksum(),
            UdpChecksum::Offloaded => pseudo.fold(),
        }
    }

    /// The same headers before another payload.
    #[inline]
    pub(super) fn resized(self, payload_len: usize, room: usize) -> Result<Self, Unfit> {
        let most = self.max_payload();
        if payload_len > most {
            return Err(Unfit::TooLong { payload_len, most });
        }
        let resized = Self { payload_len: payload_len as u16, ..self };
        if resized.frame_end() > room {
            return Err(Unfit::NoRoom { frame_len: resized.frame_end(), room });
        }
        Ok(resized)
    }

    /// Most bytes a payload can have by the length fields of IP and UDP: 65,507 over IPv4, 65,527 over IPv6. What the
    /// link carries (its MTU) is less, and for the port to know.
    #[must_use]
    #[inline]
    pub const fn max_payload(&self) -> usize {
        let ip = if self.is_ipv4() { ipv4::LEN } else { 0 };
        u16::MAX as usize - ip - udp::LEN
    }
}

#[inline]
const fn socket_address(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}
