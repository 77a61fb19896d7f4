//! Parsing a unicast UDP frame in one pass: what the fast path needs of it, or why it is not one.
//!
//! Each check is one rarely taken branch; distinguishing rare reasons is out of line. Checksums are not part of the
//! pass: a port may have verified them already ([`Headers::verify`]).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ethernet::{self, EtherType, Mac};
use super::headers::Headers;
use super::words::{Words, to_v6, words_v4};
use super::{Refusal, be16, ipv4, ipv6, udp, vlan};

/// The parser of whole datagrams: [`Packet::parse`].
#[derive(Debug)]
pub enum Packet {}

impl Packet {
    /// Parses the headers of `frame`, which starts with the Ethernet header and has no frame check sequence.
    ///
    /// The payload's length is UDP's: padding of short frames, and bytes in the IP packet beyond UDP's length, are
    /// excluded.
    ///
    /// # Errors
    /// Why it is not a unicast UDP datagram that may be answered: the first reason, in the order of [`Refusal::ALL`],
    /// that can be determined from the bytes present.
    // Always: as a call, its result would pass through memory, written field by field and read back in wide words,
    // which costs as much as the checks.
    #[inline(always)]
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
        let (source_ip, destination_ip, datagram, l4) = match ether_type {
            EtherType::IPV4 => {
                let (source, destination, datagram) = parse_ipv4(rest)?;
                (source, destination, datagram, l3 + ipv4::LEN as u8)
            }
            EtherType::IPV6 => {
                let (source, destination, datagram) = parse_ipv6(rest)?;
                (source, destination, datagram, l3 + ipv6::LEN as u8)
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
        Ok(Headers { source_ip, destination_ip, source_port, destination_port, payload_len, l3, l4 })
    }
}

/// Addresses and payload of an IPv4 packet, possibly followed by padding.
#[inline(always)]
fn parse_ipv4(bytes: &[u8]) -> Result<(Words, Words, &[u8]), Refusal> {
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
    let (source, destination) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    if !(is_plain_v4(source) && is_plain_v4(destination)) || source == destination {
        check_v4(Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination))?;
    }
    Ok((words_v4(source), words_v4(destination), datagram))
}

/// Addresses and payload of an IPv6 packet, possibly followed by padding.
#[inline(always)]
fn parse_ipv6(bytes: &[u8]) -> Result<(Words, Words, &[u8]), Refusal> {
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
    let (addresses, _) = addresses.as_chunks::<8>();
    let &[a, b, c, d] = addresses else { return Err(Refusal::IpTruncated) };
    let source = [u64::from_ne_bytes(a), u64::from_ne_bytes(b)];
    let destination = [u64::from_ne_bytes(c), u64::from_ne_bytes(d)];
    if !(is_plain_v6(source) && is_plain_v6(destination)) || source == destination {
        check_v6(to_v6(source), to_v6(destination))?;
    }
    Ok((source, destination, datagram))
}

/// Certainly unicast, and not loopback: 1.0.0.0 to 223.255.255.255 except 127.0.0.0/8.
#[inline(always)]
const fn is_plain_v4(bits: u32) -> bool {
    bits.wrapping_sub(0x0100_0000) < 0xdf00_0000 && bits >> 24 != 127
}

/// Certainly unicast, and not loopback: neither multicast nor in ::/64, which contains all special addresses.
#[inline(always)]
const fn is_plain_v6(words: Words) -> bool {
    words[0] != 0 && u64::from_be(words[0]) < 0xff << 56
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

/// 240.0.0.0/4 is reserved, but the kernel accepts it and some networks use it, so it is accepted.
#[cold]
fn check_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Result<(), Refusal> {
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

/// The kernel drops IPv4-mapped addresses on the wire as well (`ip6_rcv_core`): they would be mistaken for IPv4
/// peers.
#[cold]
fn check_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Result<(), Refusal> {
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
