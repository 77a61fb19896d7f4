//! The flow of a frame, from its headers only: for captures with truncated frames, and for prediction of a NIC's
//! hash, which covers no more than that. And the payload of a datagram in a capture, whoever it was for.

use std::net::{Ipv4Addr, Ipv6Addr};

use udpath_steer::{Addresses, Flow};

use super::{EtherType, Refusal, be16, ethernet, ipv4, ipv6, udp, vlan};

/// The flow of a UDP frame; bytes after the ports may be missing. Unlike [`Packet::parse`](super::Packet::parse) it
/// accepts any address, and IPv4 options, which do not affect a hash.
///
/// # Errors
/// Why the frame has no flow. Fragments have none: a NIC hashes only their addresses.
pub fn flow_of(frame: &[u8]) -> Result<Flow, Refusal> {
    let (addresses, datagram) = of_udp(frame)?;
    let ports = datagram.first_chunk::<4>().ok_or(Refusal::UdpTruncated)?;
    Ok(Flow {
        addresses,
        source_port: be16(ports, 0),
        destination_port: be16(ports, 2),
        protocol: udp::PROTOCOL,
    })
}

/// The destination port and the payload of a whole unicast datagram, from and to any address, as a capture on the loopback has
/// it, too. Checksums are not looked at: in a capture of the sender they may be the NIC's to fill in.
///
/// # Errors
/// Why the frame has none.
pub fn payload_of(frame: &[u8]) -> Result<(u16, &[u8]), Refusal> {
    let (addresses, datagram) = of_udp(frame)?;
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
    let header = datagram.first_chunk::<{ udp::LEN }>().ok_or(Refusal::UdpTruncated)?;
    let len = usize::from(be16(header, 4));
    let payload = datagram.get(udp::LEN..len).ok_or(match len {
        0 => Refusal::UdpLengthZero,
        1..udp::LEN => Refusal::UdpLengthShort,
        // Its end may not have been captured.
        _ => Refusal::UdpTruncated,
    })?;
    Ok((be16(header, 2), payload))
}

/// Whether a VLAN tag follows: also that of switches from before IEEE 802.1ad.
fn is_tag(ether_type: EtherType) -> bool {
    ether_type.is_tag() || ether_type == EtherType(0x9100)
}

/// The addresses of a frame's UDP datagram, and the bytes from its header on.
fn of_udp(frame: &[u8]) -> Result<(Addresses, &[u8]), Refusal> {
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
        EtherType::IPV6 => of_ipv6(rest),
        ether_type if is_tag(ether_type) => Err(Refusal::VlanDepth),
        _ => Err(Refusal::NotIp),
    }
}

fn of_ipv4(bytes: &[u8]) -> Result<(Addresses, &[u8]), Refusal> {
    let header = bytes.first_chunk::<{ ipv4::LEN }>().ok_or(Refusal::IpTruncated)?;
    let len = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 {
        return Err(Refusal::IpVersion);
    }
    if len < ipv4::LEN {
        return Err(Refusal::Ipv4Length);
    }
    if be16(header, 6) & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
        return Err(Refusal::Fragment);
    }
    if header[9] != udp::PROTOCOL {
        return Err(Refusal::NotUdp);
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    let rest = bytes.get(len..).ok_or(Refusal::IpTruncated)?;
    Ok((Addresses::V4 { source, destination }, rest))
}

fn of_ipv6(bytes: &[u8]) -> Result<(Addresses, &[u8]), Refusal> {
    let (header, rest) = bytes.split_first_chunk::<{ ipv6::LEN }>().ok_or(Refusal::IpTruncated)?;
    if header[0] >> 4 != 6 {
        return Err(Refusal::IpVersion);
    }
    if header[6] != udp::PROTOCOL {
        return Err(ipv6::extension(header[6], be16(header, 4)).unwrap_or(Refusal::NotUdp));
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(bytes)
    };
    Ok((Addresses::V6 { source: address(8), destination: address(24) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(options: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + options + 4];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45 + (options / 4) as u8;
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
}
