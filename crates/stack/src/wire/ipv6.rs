//! IPv6 (RFC 8200).
//!
//! ```text
//! 0                                    4                6             7           8        24            40
//! | 6, traffic class:8, flow label:20 | payload length | next header | hop limit | source | destination | payload
//! ```

use std::borrow::{Borrow, BorrowMut};
use std::net::Ipv6Addr;

use super::view::view;
use super::{Refusal, be16, set16};

/// Length of the header, bytes.
pub const LEN: usize = 40;

/// Kinds of extension headers: options for every router.
pub(super) const HOP_BY_HOP: u8 = 0;
/// Where to pass.
pub(super) const ROUTING: u8 = 43;
/// Which part of a packet it is.
pub(super) const FRAGMENT: u8 = 44;
/// Options for the receiver.
pub(super) const DESTINATION_OPTIONS: u8 = 60;

/// The reserved bits in a fragment header's field of offset and flag.
pub(super) const FRAGMENT_RESERVED: u16 = 6;

view! {
    /// A packet's header and payload, in place. The payload ends where the header says: padding is cut off.
    LEN
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// A view of a packet, which may be followed by padding.
    ///
    /// # Errors
    /// [`Refusal::IpTruncated`], [`Refusal::IpVersion`].
    #[inline]
    pub fn new(packet: &'a [u8]) -> Result<Self, Refusal> {
        let (header, rest) = packet.split_first_chunk().ok_or(Refusal::IpTruncated)?;
        let payload = rest.get(..payload_len(header)?).ok_or(Refusal::IpTruncated)?;
        Ok(Self { header, payload })
    }
}

impl<'a> View<&'a mut [u8; LEN], &'a mut [u8]> {
    /// A mutable view of a packet. Version and payload length must be valid already.
    ///
    /// # Errors
    /// As [`View::new`].
    #[inline]
    pub fn new_mut(packet: &'a mut [u8]) -> Result<Self, Refusal> {
        let (header, rest) = packet.split_first_chunk_mut().ok_or(Refusal::IpTruncated)?;
        let payload = rest.get_mut(..payload_len(header)?).ok_or(Refusal::IpTruncated)?;
        Ok(Self { header, payload })
    }
}

#[inline]
fn payload_len(header: &[u8; LEN]) -> Result<usize, Refusal> {
    if header[0] >> 4 != 6 {
        return Err(Refusal::IpVersion);
    }
    Ok(usize::from(be16(header, 4)))
}

impl<H: Borrow<[u8; LEN]>, S> View<H, S> {
    /// The traffic class: DSCP in the upper 6 bits, ECN in the lower 2.
    #[must_use]
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.header(), 0) >> 4) as u8
    }

    /// The flow label, 20 bits (RFC 6437).
    #[must_use]
    #[inline]
    pub fn flow_label(&self) -> u32 {
        let [_, a, b, c, ..] = *self.header();
        u32::from_be_bytes([0, a & 0xf, b, c])
    }

    /// Length of the payload, bytes.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.header(), 4)
    }

    /// The transport protocol, or the first extension header.
    #[must_use]
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.header()[6]
    }

    /// Remaining hops.
    #[must_use]
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.header()[7]
    }

    /// The source.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        address(self.header(), 8)
    }

    /// The destination.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        address(self.header(), 24)
    }
}

impl<H: BorrowMut<[u8; LEN]>, S> View<H, S> {
    /// Writes the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let header = self.header.borrow_mut();
        header[0] = 0x60 | class >> 4;
        header[1] = class << 4 | header[1] & 0xf;
    }

    /// Writes the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.header.borrow_mut()[7] = hops;
    }

    /// Writes the source. The transport checksum covers it.
    #[inline]
    pub fn set_source(&mut self, source: Ipv6Addr) {
        self.header.borrow_mut()[8..24].copy_from_slice(&source.octets());
    }

    /// Writes the destination. The transport checksum covers it.
    #[inline]
    pub fn set_destination(&mut self, destination: Ipv6Addr) {
        self.header.borrow_mut()[24..].copy_from_slice(&destination.octets());
    }
}

#[inline(always)]
fn address(header: &[u8; LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from(octets)
}

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// The source.
    pub source: Ipv6Addr,
    /// The destination.
    pub destination: Ipv6Addr,
    /// The transport protocol; never an extension header.
    pub next_header: u8,
    /// Remaining hops.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The flow label; only the lower 20 bits are used.
    pub flow_label: u32,
    /// Length of the payload, bytes.
    pub payload_len: u16,
}

impl Repr {
    /// Parses and validates a header.
    ///
    /// # Errors
    /// [`Refusal::Ipv6Jumbogram`], [`Refusal::Fragment`], [`Refusal::Ipv6Extension`].
    pub fn parse<H: Borrow<[u8; LEN]>, S>(view: &View<H, S>) -> Result<Self, Refusal> {
        if let Some(refusal) = extension(view.next_header(), view.payload_len()) {
            return Err(refusal);
        }
        Ok(Self {
            source: view.source(),
            destination: view.destination(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
        })
    }

    /// Writes the whole header.
    #[inline]
    pub fn emit(&self, header: &mut [u8; LEN]) {
        let class = u32::from(self.traffic_class) << 20;
        let first = 0x6000_0000 | class | self.flow_label & 0xf_ffff;
        header[..4].copy_from_slice(&first.to_be_bytes());
        set16(header, 4, self.payload_len);
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
    }
}

/// The refusal for a next header that is an extension header (IANA's list), if it is one.
pub(super) const fn extension(next_header: u8, payload_len: u16) -> Option<Refusal> {
    match next_header {
        HOP_BY_HOP if payload_len == 0 => Some(Refusal::Ipv6Jumbogram),
        FRAGMENT => Some(Refusal::Fragment),
        // And ESP, AH, mobility, HIP, shim6, and the two for experiments.
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | 50 | 51 | 135 | 139 | 140 | 253 | 254 => {
            Some(Refusal::Ipv6Extension)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4),
        next_header: 17,
        hop_limit: 255,
        traffic_class: 0xb8,
        flow_label: 0xabcde,
        payload_len: 2,
    };

    fn packet() -> [u8; 46] {
        let mut packet = [0; 46];
        REPR.emit(packet.first_chunk_mut().unwrap());
        packet
    }

    #[test]
    fn padding_is_not_payload() {
        let packet = packet();
        let view = View::new(&packet).unwrap();
        assert_eq!(view.payload().len(), 2);
        assert_eq!(Repr::parse(&view), Ok(REPR));
        assert_eq!(packet[..4], [0x6b, 0x8a, 0xbc, 0xde]);
    }

    #[test]
    fn the_traffic_class_leaves_the_flow_label() {
        let mut packet = packet();
        let mut view = View::new_mut(&mut packet).unwrap();
        view.set_traffic_class(0x5a);
        assert_eq!((view.traffic_class(), view.flow_label()), (0x5a, 0xabcde));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refusal = |change: fn(&mut [u8; 46])| {
            let mut packet = packet();
            change(&mut packet);
            View::new(&packet).and_then(|view| Repr::parse(&view)).unwrap_err()
        };
        assert_eq!(refusal(|p| p[0] = 0x45), Refusal::IpVersion);
        assert_eq!(refusal(|p| p[5] = 7), Refusal::IpTruncated);
        assert_eq!(refusal(|p| p[6] = 0), Refusal::Ipv6Extension);
        assert_eq!(refusal(|p| (p[5], p[6]) = (0, 0)), Refusal::Ipv6Jumbogram);
        assert_eq!(refusal(|p| p[6] = 44), Refusal::Fragment);
        assert_eq!(refusal(|p| p[6] = 51), Refusal::Ipv6Extension);
        assert_eq!(View::new(&packet()[..39]).unwrap_err(), Refusal::IpTruncated);
    }
}
