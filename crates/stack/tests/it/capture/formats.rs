//! Writes captures in every format, byte order and resolution.

use super::Frame;

/// Byte order of the numbers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn put<const N: usize>(self, into: &mut Vec<u8>, numbers: [u32; N]) {
        for number in numbers {
            into.extend(if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() });
        }
    }

    pub(super) fn put_short<const N: usize>(self, into: &mut Vec<u8>, numbers: [u16; N]) {
        for number in numbers {
            into.extend(if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() });
        }
    }

    pub(super) fn block(self, into: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let len = 12 + body.len().next_multiple_of(4) as u32;
        self.put(into, [kind, len]);
        into.extend_from_slice(body);
        into.resize(into.len().next_multiple_of(4), 0);
        self.put(into, [len]);
    }
}

pub(super) fn pcap(order: Order, magic: u32, link_type: u32, frames: &[Frame]) -> Vec<u8> {
    let mut file = Vec::new();
    order.put(&mut file, [magic]);
    order.put_short(&mut file, [2, 4]);
    order.put(&mut file, [0, 0, 65_535, link_type]);
    let unit = if magic == 0xa1b2_3c4d { 1 } else { 1000 };
    for (time, frame) in frames {
        let len = frame.len() as u32;
        let rest = (time % 1_000_000_000 / unit) as u32;
        order.put(&mut file, [(time / 1_000_000_000) as u32, rest, len, len]);
        if magic == 0xa1b2_cd34 {
            // Interface, protocol, kind: the format of a patched libpcap of the 1990s.
            file.extend([0; 8]);
        }
        file.extend_from_slice(frame);
    }
    file
}

/// A section with two interfaces, the second with nanoseconds and an offset, an unknown block, and the frames
/// alternating between the interfaces.
pub(super) fn pcapng(order: Order, link_type: u16, frames: &[Frame]) -> Vec<u8> {
    const OFFSET: u64 = 1000;
    let mut file = Vec::new();
    let mut body = Vec::new();
    order.put(&mut body, [0x1a2b_3c4d]);
    order.put_short(&mut body, [1, 0]);
    body.extend([0xff; 8]);
    order.block(&mut file, 0x0a0d_0d0a, &body);
    for second in [false, true] {
        let mut body = Vec::new();
        order.put_short(&mut body, [link_type, 0]);
        order.put(&mut body, [65_535]);
        if second {
            order.put_short(&mut body, [9, 1]);
            body.extend([9, 0, 0, 0]);
            order.put_short(&mut body, [14, 8]);
            body.extend(if order == Order::Big { OFFSET.to_be_bytes() } else { OFFSET.to_le_bytes() });
            order.put_short(&mut body, [0, 0]);
        }
        order.block(&mut file, 1, &body);
    }
    order.block(&mut file, 0x0bad_beef, b"unknown data");
    for (at, (time, frame)) in frames.iter().enumerate() {
        let second = at % 2 == 1;
        let time = if second { time - OFFSET * 1_000_000_000 } else { time / 1000 };
        let mut body = Vec::new();
        let len = frame.len() as u32;
        order.put(&mut body, [second.into(), (time >> 32) as u32, time as u32, len, len]);
        body.extend_from_slice(frame);
        order.block(&mut file, 6, &body);
    }
    file
}
