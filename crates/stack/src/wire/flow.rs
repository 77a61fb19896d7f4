//! The flow of a frame, from its headers only: for captures with truncated frames, and for prediction of a NIC's
//! hash, which covers no more than that. And the payload of a datagram in a capture, whoever it was for.

use std::net::{Ipv4Addr, Ipv6Addr};

use udpath_steer::{Addresses, Flow};

use super::{EtherType, Refusal, be16, ethernet, ipv4, ipv6, udp, vlan};

/// Most extension headers that are looked through: RFC 8200, 4.1 names six, each once but for the destination options.
/// More: a frame made of nothing else would be read to its end.
const MAX_EXTENSIONS: usize = 8;

/// The flow of a UDP frame; bytes after the ports may be missing. Unlike [`Packet::parse`](super::Packet::parse) it
/// accepts any address, and IPv4 options, which do not affect a hash.
///
/// # Errors
/// Why the frame has no flow. Fragments have none: a NIC hashes only their addresses. Nor have datagrams behind an IPv6
/// extension header, where NICs differ, and those whose lengths contradict each other, which no receiver accepts.
pub fn flow_of(frame: &[u8]) -> Result<Flow, Refusal> {
    let Found { addresses, datagram, len } = of_udp(frame, 0)?;
    let ports = datagram.first_chunk::<4>().ok_or(Refusal::UdpTruncated)?;
    if let Some([high, low]) = datagram.get(4..6) {
        udp_len(u16::from_be_bytes([*high, *low]), len)?;
    }
    Ok(Flow {
        addresses,
        source_port: be16(ports, 0),
        destination_port: be16(ports, 2),
        protocol: udp::PROTOCOL,
    })
}

/// The destination port and the payload of a whole unicast datagram, from and to any address, as a capture on the
/// loopback has it, too. IPv6 extension headers that its receiver passes over are looked through. Checksums are not
/// looked at: in a capture of the sender they may be the NIC's to fill in.
///
/// # Errors
/// Why the frame has none.
pub fn payload_of(frame: &[u8]) -> Result<(u16, &[u8]), Refusal> {
    let Found { addresses, datagram, len } = of_udp(frame, MAX_EXTENSIONS)?;
    let group = match addresses {
        Addresses::V4 { destination, .. } if destination.is_broadcast() => {
            Some(Refusal::DestinationBroadcast)
        }
        Addresses::V4 { destination, .. } => {
            destination.is_multicast().then_some(Refusal::DestinationMulticast)
        }
        Addresses::V6 { destination, .. } => {
            destination.is_multicast().then_some(Refusal::DestinationMulticast)
        }
    };
    if let Some(refusal) = group {
        return Err(refusal);
    }
    // The capture may have cut its end; a receiver drops what the link has cut.
    if datagram.len() < len {
        return Err(Refusal::IpTruncated);
    }
    let header = datagram.first_chunk::<{ udp::LEN }>().ok_or(Refusal::UdpTruncated)?;
    let payload = datagram.get(udp::LEN..udp_len(be16(header, 4), len)?).ok_or(Refusal::UdpTruncated)?;
    Ok((be16(header, 2), payload))
}

/// The length in a UDP header, if it fits `room`, the length of the IP packet from that header on.
fn udp_len(field: u16, room: usize) -> Result<usize, Refusal> {
    match usize::from(field) {
        0 => Err(Refusal::UdpLengthZero),
        1..udp::LEN => Err(Refusal::UdpLengthShort),
        len if len > room => Err(Refusal::UdpLengthLong),
        len => Ok(len),
    }
}

/// Whether a VLAN tag follows: also that of switches from before IEEE 802.1ad.
fn is_tag(ether_type: EtherType) -> bool {
    ether_type.is_tag() || ether_type == EtherType(0x9100)
}

/// A UDP datagram in a frame.
struct Found<'a> {
    addresses: Addresses,
    /// From its header on, without padding behind the packet; the end may be missing.
    datagram: &'a [u8],
    /// How long it is according to the IP header, 8 or more.
    len: usize,
}

impl<'a> Found<'a> {
    /// The datagram of `len` bytes at the start of `bytes`.
    fn new(addresses: Addresses, bytes: &'a [u8], len: usize) -> Result<Self, Refusal> {
        if len < udp::LEN {
            return Err(Refusal::UdpTruncated);
        }
        Ok(Self { addresses, datagram: bytes.get(..len).unwrap_or(bytes), len })
    }
}

/// The UDP datagram of a frame, behind at most so many IPv6 extension headers.
fn of_udp(frame: &[u8], extensions: usize) -> Result<Found<'_>, Refusal> {
    let (link, mut rest) = frame.split_first_chunk::<{ ethernet::LEN }>().ok_or(Refusal::FrameShort)?;
    let mut ether_type = EtherType(be16(link, 12));
    for _ in 0..vlan::MAX {
        if is_tag(ether_type) {
            let (tag, behind) = rest.split_first_chunk::<{ vlan::LEN }>().ok_or(Refusal::FrameShort)?;
            ether_type = EtherType(be16(tag, 2));
            rest = behind;
        }
    }
    match ether_type {
        EtherType::IPV4 => of_ipv4(rest),
        EtherType::IPV6 => of_ipv6(rest, extensions),
        ether_type if is_tag(ether_type) => Err(Refusal::VlanDepth),
        _ => Err(Refusal::NotIp),
    }
}

fn of_ipv4(bytes: &[u8]) -> Result<Found<'_>, Refusal> {
    let header = bytes.first_chunk::<{ ipv4::LEN }>().ok_or(Refusal::IpTruncated)?;
    let len = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 {
        return Err(Refusal::IpVersion);
    }
    if len < ipv4::LEN {
        return Err(Refusal::Ipv4Length);
    }
    let of_datagram = usize::from(be16(header, 2)).checked_sub(len).ok_or(Refusal::Ipv4Length)?;
    if be16(header, 6) & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
        return Err(Refusal::Fragment);
    }
    if header[9] != udp::PROTOCOL {
        return Err(Refusal::NotUdp);
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    let rest = bytes.get(len..).ok_or(Refusal::IpTruncated)?;
    Found::new(Addresses::V4 { source, destination }, rest, of_datagram)
}

fn of_ipv6(bytes: &[u8], extensions: usize) -> Result<Found<'_>, Refusal> {
    let (header, mut rest) = bytes.split_first_chunk::<{ ipv6::LEN }>().ok_or(Refusal::IpTruncated)?;
    if header[0] >> 4 != 6 {
        return Err(Refusal::IpVersion);
    }
    let (mut next, mut len) = (header[6], usize::from(be16(header, 4)));
    for number in 0..=extensions {
        if next == udp::PROTOCOL {
            break;
        }
        let refusal = ipv6::extension(next, be16(header, 4)).ok_or(Refusal::NotUdp)?;
        if number == extensions || refusal == Refusal::Ipv6Jumbogram {
            return Err(refusal);
        }
        let found = extension(next, number == 0, rest)?;
        (next, rest) = (found.next, found.rest);
        len = len.checked_sub(found.len).ok_or(Refusal::IpTruncated)?;
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(bytes)
    };
    Found::new(Addresses::V6 { source: address(8), destination: address(24) }, rest, len)
}

/// An IPv6 extension header (RFC 8200, 4).
struct Extension<'a> {
    /// What follows it.
    next: u8,
    rest: &'a [u8],
    len: usize,
}

/// The extension header of kind `kind` that `bytes` begin with, if the receiver of the packet goes on behind it.
fn extension(kind: u8, first: bool, bytes: &[u8]) -> Result<Extension<'_>, Refusal> {
    let header = bytes.first_chunk::<8>().ok_or(Refusal::IpTruncated)?;
    let len = match kind {
        // Hop-by-hop options stand first only (4.3).
        ipv6::HOP_BY_HOP if first => 8 + 8 * usize::from(header[1]),
        ipv6::DESTINATION_OPTIONS => 8 + 8 * usize::from(header[1]),
        // With segments left, the packet is not at its destination.
        ipv6::ROUTING if header[3] == 0 => 8 + 8 * usize::from(header[1]),
        // An atomic fragment is the whole datagram (RFC 6946).
        ipv6::FRAGMENT if be16(header, 2) & !ipv6::FRAGMENT_RESERVED == 0 => 8,
        ipv6::FRAGMENT => return Err(Refusal::Fragment),
        _ => return Err(Refusal::Ipv6Extension),
    };
    let rest = bytes.get(len..).ok_or(Refusal::IpTruncated)?;
    Ok(Extension { next: header[0], rest, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(options: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + options + 4];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45 + (options / 4) as u8;
        frame[17] = 20 + options as u8 + 8;
        frame[23] = 17;
        frame[26..30].copy_from_slice(&[192, 0, 2, 7]);
        frame[30..34].copy_from_slice(&[224, 0, 0, 1]);
        let ports = 34 + options;
        frame[ports..].copy_from_slice(&[0x0f, 0xa0, 0, 53]);
        frame
    }

    #[test]
    fn the_ports_are_all_that_has_to_be_there() {
        for options in [0, 4, 40] {
            let frame = ipv4(options);
            assert_eq!(flow_of(&frame).unwrap().to_string(), "192.0.2.7:4000 -> 224.0.0.1:53");
            for len in 0..frame.len() {
                assert!(flow_of(&frame[..len]).is_err(), "{len}");
            }
        }
        let mut tagged = ipv4(0);
        tagged.splice(12..12, [0x81, 0, 0, 7, 0x81, 0, 0, 9]);
        assert_eq!(flow_of(&tagged), flow_of(&ipv4(0)));
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(flow_of(&tagged), Err(Refusal::VlanDepth));
    }

    #[test]
    fn what_has_no_ports_is_refused_by_name() {
        let changed = |at: usize, value: u8| {
            let mut frame = ipv4(0);
            frame[at] = value;
            flow_of(&frame)
        };
        assert_eq!(changed(20, 0x20), Err(Refusal::Fragment));
        assert_eq!(changed(21, 1), Err(Refusal::Fragment));
        assert_eq!(changed(23, 6), Err(Refusal::NotUdp));
        assert_eq!(changed(14, 0x65), Err(Refusal::IpVersion));
        assert_eq!(changed(14, 0x44), Err(Refusal::Ipv4Length));
        assert_eq!(changed(13, 6), Err(Refusal::NotIp));
    }

    /// The frame of a datagram to port 53 behind these extension headers, each with its kind.
    fn ipv6(extensions: &[(u8, [u8; 8])], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 40];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([17]).collect();
        frame[20] = kinds[0];
        (frame[37], frame[53]) = (1, 2);
        for ((_, header), next) in extensions.iter().zip(&kinds[1..]) {
            frame.push(*next);
            frame.extend(&header[1..]);
        }
        let len = 8 + payload.len() as u8;
        frame.extend([0x9c, 0x40, 0, 53, 0, len, 0xab, 0xcd]);
        frame.extend(payload);
        frame[19] = (frame.len() - 54) as u8;
        frame
    }

    /// Lengths that contradict each other: no receiver accepts the packet, so it has neither a payload nor a flow.
    #[test]
    fn lengths_are_those_of_the_packet_and_not_of_the_frame() {
        let whole = |ip: u16, udp: u16| {
            let mut frame = ipv4(0);
            frame[30] = 192;
            frame.resize(14 + 28 + 12, 7);
            frame[16..18].copy_from_slice(&ip.to_be_bytes());
            frame[38..40].copy_from_slice(&udp.to_be_bytes());
            (payload_of(&frame).map(|(_, payload)| payload.len()), flow_of(&frame).err())
        };
        // Bytes behind the packet are the link's padding, those behind the datagram are nobody's.
        for (ip, udp, len) in [(40, 20, 12), (40, 8, 0), (40, 15, 7), (30, 10, 2), (28, 8, 0)] {
            assert_eq!(whole(ip, udp), (Ok(len), None), "{ip} {udp}");
        }
        for (ip, udp, refusal) in [
            (0, 20, Refusal::Ipv4Length),
            (19, 20, Refusal::Ipv4Length),
            (20, 20, Refusal::UdpTruncated),
            (27, 20, Refusal::UdpTruncated),
            (28, 20, Refusal::UdpLengthLong),
            (39, 20, Refusal::UdpLengthLong),
            (40, 21, Refusal::UdpLengthLong),
            (40, 0, Refusal::UdpLengthZero),
            (40, 7, Refusal::UdpLengthShort),
        ] {
            assert_eq!(whole(ip, udp), (Err(refusal), Some(refusal)), "{ip} {udp}");
        }
        // More than there is: cut on the link or by the capture, which is enough for a flow.
        assert_eq!(whole(41, 20), (Err(Refusal::IpTruncated), None));
        assert_eq!(whole(u16::MAX, 20), (Err(Refusal::IpTruncated), None));
    }

    #[test]
    fn lengths_of_ipv6_are_those_of_the_packet_too() {
        let whole = |ip: u16, udp: u16| {
            let mut frame = ipv6(&[], &[7; 12]);
            frame[18..20].copy_from_slice(&ip.to_be_bytes());
            frame[58..60].copy_from_slice(&udp.to_be_bytes());
            (payload_of(&frame).map(|(_, payload)| payload.len()), flow_of(&frame).err())
        };
        assert_eq!(whole(20, 20), (Ok(12), None));
        assert_eq!(whole(18, 9), (Ok(1), None));
        assert_eq!(whole(21, 20), (Err(Refusal::IpTruncated), None));
        for (ip, udp, refusal) in [
            (0, 20, Refusal::UdpTruncated),
            (7, 20, Refusal::UdpTruncated),
            (19, 20, Refusal::UdpLengthLong),
            (20, 0, Refusal::UdpLengthZero),
            (20, 1, Refusal::UdpLengthShort),
        ] {
            assert_eq!(whole(ip, udp), (Err(refusal), Some(refusal)), "{ip} {udp}");
        }
    }

    #[test]
    fn extension_headers_that_a_receiver_passes_over_are_looked_through() {
        let (options, segments_left) = ([0, 0, 1, 4, 0, 0, 0, 0], [0, 0, 4, 1, 0, 0, 0, 0]);
        let (atomic, more, part) = ([0; 8], [0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]);
        let arrived = [0, 0, 4, 0, 0, 0, 0, 0];
        for extensions in [
            &[(0, options)][..],
            &[(60, options)],
            &[(43, arrived)],
            &[(44, atomic)],
            &[(0, options), (60, options), (43, arrived), (44, atomic), (60, options)],
            &[(60, options); MAX_EXTENSIONS],
        ] {
            let frame = ipv6(extensions, b"hello");
            assert_eq!(payload_of(&frame), Ok((53, &b"hello"[..])), "{extensions:?}");
            // Which of its fields a NIC hashes is the NIC's matter.
            assert!(flow_of(&frame).is_err());
            for len in 0..frame.len() {
                assert!(payload_of(&frame[..len]).is_err(), "{len}");
            }
        }
        for (extensions, refusal) in [
            (&[(43, segments_left)][..], Refusal::Ipv6Extension),
            (&[(60, options), (0, options)], Refusal::Ipv6Extension),
            (&[(51, options)], Refusal::Ipv6Extension),
            (&[(50, options)], Refusal::Ipv6Extension),
            (&[(44, more)], Refusal::Fragment),
            (&[(44, part)], Refusal::Fragment),
            (&[(0, [0, 200, 0, 0, 0, 0, 0, 0])], Refusal::IpTruncated),
            (&[(60, options); MAX_EXTENSIONS + 1], Refusal::Ipv6Extension),
        ] {
            assert_eq!(payload_of(&ipv6(extensions, b"hello")), Err(refusal), "{extensions:?}");
        }
        let mut jumbo = ipv6(&[(0, options)], b"hello");
        jumbo[19] = 0;
        assert_eq!(payload_of(&jumbo), Err(Refusal::Ipv6Jumbogram));
        // The packet ends within the extension header.
        let mut short = ipv6(&[(60, options)], b"hello");
        short[19] = 7;
        assert_eq!(payload_of(&short), Err(Refusal::IpTruncated));
    }
}
