//! Frames as the input describes them: requests built and damaged.

use std::net::{IpAddr, SocketAddr};

use udpath_stack::wire::{Flow, LinkHeader, Mac, Packet, Tags, UdpChecksum, build, ipv4, udp, vlan};

/// Room of a frame of a link, bytes.
pub(super) const MAX_PAYLOAD: usize = 2048 - 256;

/// The possible addresses of this host, one bit of a byte each: the last byte of both families.
pub(super) const LOCALS: std::ops::Range<u8> = 1..5;

/// Bytes that are consumed.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        some
    }
}

pub(super) fn address(ipv6: bool, last: u8) -> IpAddr {
    if ipv6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into() } else { [192, 0, 2, last].into() }
}

/// A valid request with some damage: source and destination, tags and length, then the number of changed bytes, and
/// each change.
pub(super) fn built(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let [who, whom, shape, len, first, damage] = [(); 6].map(|()| input.byte());
    let (who, whom, shape, len, damage) = (who?, whom?, shape?, len?, damage?);
    let ipv6 = whom & 0x80 != 0;
    let control = |id: u16| vlan::Control(id);
    let tags = match shape % 4 {
        0 => Tags::one(control(7)),
        1 => Tags::two(control(100), control(7)),
        _ => Tags::NONE,
    };
    let link =
        LinkHeader { source: Mac([2, 0, 0, 0, 0, who & 3]), destination: Mac([2, 0, 0, 0, 1, 1]), tags };
    let source = SocketAddr::new(address(ipv6, 100 + who % 4), 5000 + u16::from(who >> 2));
    let port = [7, 53, 9, 7][usize::from(whom & 3)];
    let destination = SocketAddr::new(address(ipv6, LOCALS.start + (whom >> 2) % 5), port);
    let flow = Flow::new(link, source, destination).expect("one family");
    // A few lengths near the longest, many short ones.
    let len = usize::from(len) << (if shape & 0x10 != 0 { 3 } else { 0 }) >> (shape >> 6);
    let len = len.min(MAX_PAYLOAD - flow.payload_offset());
    let mut payload = vec![first?; len];
    payload.iter_mut().skip(1).for_each(|byte| *byte = damage);
    let mut frame = vec![0; flow.payload_offset() + len];
    build(&mut frame, &flow, &payload, UdpChecksum::Computed).expect("it has room");
    for _ in 0..damage % 8 {
        let [at, value] = [input.byte()?, input.byte()?];
        if let Some(byte) = frame.get_mut(usize::from(at)) {
            *byte = value;
        }
    }
    if damage & 0x10 != 0 {
        mend(&mut frame);
    }
    if damage & 0x20 != 0 {
        frame.truncate(usize::from(input.byte()?) * 2);
    } else if damage & 0x40 != 0 {
        let padding = usize::from(input.byte()? % 64).min(MAX_PAYLOAD - frame.len());
        frame.extend(std::iter::repeat_n(0xcc, padding));
    }
    Some(frame)
}

/// Recomputes the checksums, if it is still a datagram.
fn mend(frame: &mut [u8]) {
    let Ok(headers) = Packet::parse(frame) else { return };
    if headers.is_ipv4()
        && let Ok(mut packet) = ipv4::View::new_mut(&mut frame[headers.l3()..])
    {
        packet.fill_checksum();
    }
    let end = headers.frame_end();
    if let Ok(mut datagram) = udp::View::new_mut(&mut frame[headers.l4()..end]) {
        datagram.fill_checksum(&headers.addresses());
    }
}
