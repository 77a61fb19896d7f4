//! A request field by field, and its bytes on the wire, in one frame or two fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Random;

pub(super) const UDP: u8 = 17;

/// Fields of a request to build. Checksums and lengths are right unless overridden.
pub(super) struct Request {
    pub(super) link: ([u8; 6], [u8; 6]),
    pub(super) tags: Vec<u8>,
    pub(super) ether_type: Option<u16>,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: (u16, u16),
    pub(super) payload: Vec<u8>,
    pub(super) hops: u8,
    pub(super) traffic_class: u8,
    /// IPv4: flags and fragment offset.
    pub(super) fragment: u16,
    /// IPv4 options, or IPv6 extension headers with the number of the first.
    pub(super) options: Vec<u8>,
    pub(super) next_header: u8,
    pub(super) version_and_length: Option<u8>,
    pub(super) ip_length: i32,
    pub(super) udp_length: i32,
    pub(super) udp_length_is: Option<u16>,
    pub(super) udp_checksum: Checksum,
    /// XORed into the IPv4 header's checksum.
    pub(super) ip_checksum_change: u16,
    /// IPv6.
    pub(super) flow_label: u32,
    /// Bytes after the packet, or cut from its end.
    pub(super) behind: i32,
}

/// Contents of the UDP checksum field.
#[derive(Clone, Copy)]
pub(super) enum Checksum {
    Right,
    /// 0: none.
    Missing,
    /// Right, with these bits flipped.
    Changed(u16),
    /// The sum of the pseudo header, which a local sender leaves for a device to complete.
    Partial,
}

impl Request {
    pub(super) fn frame(&self) -> Vec<u8> {
        let datagram = self.datagram();
        let (ether_type, mut packet) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (0x0800, self.ipv4(source, destination, &datagram))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (0x86dd, self.ipv6(source, destination, &datagram))
            }
            _ => panic!("a packet has addresses of one family"),
        };
        if let Some(first) = self.version_and_length {
            packet[0] = first;
        }
        let (to, from) = self.link;
        let ether_type: u16 = self.ether_type.unwrap_or(ether_type);
        let mut frame = [&to[..], &from, &self.tags, &ether_type.to_be_bytes(), &packet].concat();
        let len = frame.len() as i32 + self.behind;
        frame.resize(len.max(14) as usize, 0xbb);
        frame
    }

    fn datagram(&self) -> Vec<u8> {
        let right = 8 + self.payload.len() as i32;
        let len = self.udp_length_is.unwrap_or((right + self.udp_length).clamp(0, 65_535) as u16);
        let (source, destination) = self.ports;
        let mut datagram: Vec<u8> =
            [source, destination, len, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        datagram.extend_from_slice(&self.payload);
        // Covers the bytes that a receiver treats as the datagram, where possible.
        let taken = match usize::from(len) {
            0 => datagram.len(),
            len => len.min(datagram.len()),
        };
        let mut pseudo = taken as u32 + u32::from(UDP);
        pseudo += match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => sum(&from.octets()) + sum(&to.octets()),
            (IpAddr::V6(from), IpAddr::V6(to)) => sum(&from.octets()) + sum(&to.octets()),
            _ => panic!("a packet has addresses of one family"),
        };
        let right = match folded(sum(&datagram[..taken]) + pseudo) {
            0 => 0xffff,
            right => right,
        };
        let checksum = match self.udp_checksum {
            Checksum::Right => right,
            Checksum::Missing => 0,
            Checksum::Changed(bits) => right ^ bits,
            Checksum::Partial => !folded(pseudo),
        };
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        datagram
    }

    fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr, datagram: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let len = ((header + datagram.len()) as i32 + self.ip_length).clamp(0, 65_535) as u16;
        let first = self.version_and_length.unwrap_or(0x40 | (header / 4) as u8);
        let mut packet = vec![first, self.traffic_class];
        packet.extend(len.to_be_bytes());
        packet.extend([0x12, 0x34]);
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.hops, self.next_header, 0, 0]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        packet.extend_from_slice(&self.options);
        let checksum = folded(sum(&packet)) ^ self.ip_checksum_change;
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend_from_slice(datagram);
        packet
    }

    fn ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr, datagram: &[u8]) -> Vec<u8> {
        let len = ((self.options.len() + datagram.len()) as i32).saturating_add(self.ip_length);
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        let mut packet = first.to_be_bytes().to_vec();
        packet.extend((len.clamp(0, 65_535) as u16).to_be_bytes());
        packet.extend([self.next_header, self.hops]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        packet.extend_from_slice(&self.options);
        packet.extend_from_slice(datagram);
        packet
    }
}

/// A datagram in two fragments, in random order.
pub(super) fn fragments(request: &Request, random: &mut Random) -> Vec<Vec<u8>> {
    let blocks = (8 + request.payload.len()).div_ceil(8);
    let mut frames = two_fragments(request, 8 * (1 + random.below(blocks)));
    if random.below(2) == 0 {
        frames.reverse();
    }
    frames
}

/// A datagram in two fragments, the first of `cut` bytes, a multiple of 8.
pub(super) fn two_fragments(request: &Request, cut: usize) -> Vec<Vec<u8>> {
    let whole = request.frame();
    let number = request.ports.0;
    let headers = if request.source.is_ipv4() { 34 } else { 54 };
    let (header, body) = whole.split_at(headers);
    let (first, second) = body.split_at(cut.min(body.len()));
    let one = |part: &[u8], offset: usize, more: bool| {
        let mut frame = header.to_vec();
        let field = (offset / 8) as u16;
        if request.source.is_ipv4() {
            frame[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            frame[18..20].copy_from_slice(&number.to_be_bytes());
            frame[20..22].copy_from_slice(&(field | u16::from(more) << 13).to_be_bytes());
            frame[24..26].fill(0);
            let checksum = folded(sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        } else {
            frame[18..20].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
            frame[20] = 44;
            frame.extend([UDP, 0]);
            frame.extend((field << 3 | u16::from(more)).to_be_bytes());
            frame.extend([0, 0]);
            frame.extend(number.to_be_bytes());
        }
        frame.extend_from_slice(part);
        frame
    };
    vec![one(first, 0, true), one(second, cut, false)]
}

/// The sum of big-endian words, not folded yet.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low))).sum()
}

/// Folds a sum into the checksum that makes it valid.
pub(crate) fn folded(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + (sum & 0xffff)) as u16
}
