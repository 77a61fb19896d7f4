//! Other parsers of the same frames: the views one by one, and smoltcp.

use smoltcp::wire as other;
use udpath_stack::wire::{Addresses, EtherType, Refusal, ethernet, ipv4, ipv6, udp, vlan};

/// Headers, read one by one through the views: the slow path to the same result.
pub(super) fn by_views(frame: &[u8]) -> Result<Headers2, Refusal> {
    let link = ethernet::View::new(frame)?;
    let link_repr = ethernet::Repr::parse(&link)?;
    let (mut ether_type, mut rest, mut tags) = (link_repr.ether_type, link.payload(), 0);
    while ether_type.is_tag() {
        let tag = vlan::View::new(rest)?;
        (ether_type, rest, tags) = (vlan::Repr::parse(&tag).ether_type, tag.payload(), tags + 1);
    }
    let (addresses, datagram) = if ether_type == EtherType::IPV4 {
        let view = ipv4::View::new(rest)?;
        let repr = ipv4::Repr::parse(&view)?;
        assert_eq!(repr.protocol, udp::PROTOCOL);
        (Addresses::V4 { source: repr.source, destination: repr.destination }, view.payload())
    } else {
        let view = ipv6::View::new(rest)?;
        let repr = ipv6::Repr::parse(&view)?;
        assert_eq!(repr.next_header, udp::PROTOCOL);
        (Addresses::V6 { source: repr.source, destination: repr.destination }, view.payload())
    };
    let view = udp::View::new(datagram)?;
    let repr = udp::Repr::parse(&view, &addresses)?;
    Ok((tags, addresses, repr.source_port, repr.destination_port, view.payload().to_vec()))
}

pub(super) type Headers2 = (usize, Addresses, u16, u16, Vec<u8>);

/// smoltcp's result for a frame without tags: fully valid, with these ports and payload.
pub(super) fn by_smoltcp(frame: &[u8]) -> Option<(u16, u16, Vec<u8>)> {
    let link = other::EthernetFrame::new_checked(frame).ok()?;
    let (source, destination, datagram): (other::IpAddress, other::IpAddress, Vec<u8>) =
        match link.ethertype() {
            other::EthernetProtocol::Ipv4 => {
                let ip = other::Ipv4Packet::new_checked(link.payload()).ok()?;
                if !ip.verify_checksum() || ip.next_header() != other::IpProtocol::Udp {
                    return None;
                }
                (ip.src_addr().into(), ip.dst_addr().into(), ip.payload().to_vec())
            }
            other::EthernetProtocol::Ipv6 => {
                let ip = other::Ipv6Packet::new_checked(link.payload()).ok()?;
                if ip.next_header() != other::IpProtocol::Udp {
                    return None;
                }
                (ip.src_addr().into(), ip.dst_addr().into(), ip.payload().to_vec())
            }
            _ => return None,
        };
    let datagram = other::UdpPacket::new_checked(&datagram[..]).ok()?;
    datagram
        .verify_checksum(&source, &destination)
        .then(|| (datagram.src_port(), datagram.dst_port(), datagram.payload().to_vec()))
}
