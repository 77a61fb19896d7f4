//! UDP (RFC 768).
//!
//! ```text
//! 0             2                  4        6          8
//! | source port | destination port | length | checksum | payload
//! ```
//! The checksum covers a pseudo header too: both addresses, the protocol and the length. 0 means that there is none,
//! which IPv4 allows and IPv6 does not (RFC 8200, 8.1).

use std::borrow::{Borrow, BorrowMut};

use super::addresses::Addresses;
use super::checksum::Sum;
use super::view::view;
use super::{Refusal, be16, set16};

/// Length of the header, bytes.
pub const LEN: usize = 8;

/// UDP's IP protocol number.
pub const PROTOCOL: u8 = 17;

/// UDP-Lite's IP protocol number (RFC 3828).
pub const LITE_PROTOCOL: u8 = 136;

impl Addresses {
    /// The sum of UDP's pseudo header (RFC 768, and RFC 8200, 8.1): addresses, protocol, and `len`, the length in the
    /// UDP header. The same number for both families, since the longer fields of IPv6's are zero above.
    #[must_use]
    #[inline]
    pub fn pseudo_header(&self, len: u16) -> Sum {
        self.sum().plus(Sum::of_u16(u16::from(PROTOCOL))).plus(Sum::of_u16(len))
    }
}

view! {
    /// A datagram's header and payload, in place. The payload ends where the header says: trailing bytes of the IP
    /// packet are cut off.
    LEN
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// The view of an IP packet's payload.
    ///
    /// # Errors
    /// [`Refusal::UdpTruncated`], [`Refusal::UdpLengthZero`], [`Refusal::UdpLengthShort`],
    /// [`Refusal::UdpLengthLong`].
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Result<Self, Refusal> {
        let (header, rest) = datagram.split_first_chunk().ok_or(Refusal::UdpTruncated)?;
        let payload = rest.get(..payload_len(header)?).ok_or(Refusal::UdpLengthLong)?;
        Ok(Self { header, payload })
    }

    /// Verifies the checksum.
    ///
    /// # Errors
    /// [`Refusal::UdpChecksum`]; [`Refusal::UdpChecksumMissing`] over IPv6.
    #[inline]
    pub fn verify(&self, addresses: &Addresses) -> Result<(), Refusal> {
        if self.checksum() == 0 {
            return if addresses.is_ipv4() { Ok(()) } else { Err(Refusal::UdpChecksumMissing) };
        }
        let sum = addresses.pseudo_header(self.len()).plus(Sum::of(self.header)).plus(Sum::of(self.payload));
        if sum.is_intact() { Ok(()) } else { Err(Refusal::UdpChecksum) }
    }
}

impl<'a> View<&'a mut [u8; LEN], &'a mut [u8]> {
    /// A mutable view of a datagram. Its length must be valid already.
    ///
    /// # Errors
    /// As [`View::new`].
    #[inline]
    pub fn new_mut(datagram: &'a mut [u8]) -> Result<Self, Refusal> {
        let (header, rest) = datagram.split_first_chunk_mut().ok_or(Refusal::UdpTruncated)?;
        let payload = rest.get_mut(..payload_len(header)?).ok_or(Refusal::UdpLengthLong)?;
        Ok(Self { header, payload })
    }

    /// Computes and writes the checksum.
    #[inline]
    pub fn fill_checksum(&mut self, addresses: &Addresses) {
        set16(self.header, 6, 0);
        let sum = addresses.pseudo_header(self.len()).plus(Sum::of(self.header)).plus(Sum::of(self.payload));
        set16(self.header, 6, sum.udp_checksum());
    }
}

#[inline]
fn payload_len(header: &[u8; LEN]) -> Result<usize, Refusal> {
    match be16(header, 4) {
        0 => Err(Refusal::UdpLengthZero),
        1..=7 => Err(Refusal::UdpLengthShort),
        len => Ok(usize::from(len) - LEN),
    }
}

#[allow(clippy::len_without_is_empty, reason = "the header is part of the length, so it is never 0")]
impl<H: Borrow<[u8; LEN]>, S> View<H, S> {
    /// The source port; 0 if no reply is wanted.
    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.header(), 0)
    }

    /// The destination port.
    #[must_use]
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.header(), 2)
    }

    /// Length of header and payload, bytes; at least 8.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u16 {
        be16(self.header(), 4)
    }

    /// The checksum field; 0 if there is none.
    #[must_use]
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header(), 6)
    }
}

impl<H: BorrowMut<[u8; LEN]>, S> View<H, S> {
    /// Writes the source port.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        set16(self.header.borrow_mut(), 0, port);
    }

    /// Writes the destination port.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        set16(self.header.borrow_mut(), 2, port);
    }

    /// Writes the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        set16(self.header.borrow_mut(), 6, checksum);
    }
}

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// Length of the payload, bytes; at most 65,527.
    pub payload_len: u16,
}

impl Repr {
    /// Parses and verifies a datagram, including its checksum.
    ///
    /// # Errors
    /// As [`View::verify`].
    pub fn parse(view: &View<&[u8; LEN], &[u8]>, addresses: &Addresses) -> Result<Self, Refusal> {
        view.verify(addresses)?;
        Ok(Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_len: view.len() - LEN as u16,
        })
    }

    /// Writes the whole header with its checksum over a payload whose sum is `payload`. A length beyond 65,527 is
    /// clamped.
    #[inline]
    pub fn emit(&self, header: &mut [u8; LEN], addresses: &Addresses, payload: Sum) {
        let len = self.payload_len.saturating_add(LEN as u16);
        set16(header, 0, self.source_port);
        set16(header, 2, self.destination_port);
        set16(header, 4, len);
        let ports = Sum::of_u16(self.source_port).plus(Sum::of_u16(self.destination_port));
        let sum = addresses.pseudo_header(len).plus(ports).plus(Sum::of_u16(len)).plus(payload);
        set16(header, 6, sum.udp_checksum());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const V4: Addresses =
        Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
    const V6: Addresses = Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::UNSPECIFIED };
    const REPR: Repr = Repr { source_port: 4000, destination_port: 53, payload_len: 3 };

    fn datagram(addresses: &Addresses) -> [u8; 13] {
        let mut datagram = *b"........abcXX";
        let sum = Sum::of(b"abc");
        REPR.emit(datagram.first_chunk_mut().unwrap(), addresses, sum);
        datagram
    }

    #[test]
    fn bytes_beyond_the_udp_length_are_not_payload() {
        for addresses in [V4, V6] {
            let datagram = datagram(&addresses);
            let view = View::new(&datagram).unwrap();
            assert_eq!(view.payload(), b"abc");
            assert_eq!(Repr::parse(&view, &addresses), Ok(REPR));
        }
    }

    #[test]
    fn no_checksum_is_good_over_ipv4_alone() {
        let mut datagram = datagram(&V4);
        View::new_mut(&mut datagram).unwrap().set_checksum(0);
        let view = View::new(&datagram).unwrap();
        assert_eq!(view.verify(&V4), Ok(()));
        assert_eq!(view.verify(&V6), Err(Refusal::UdpChecksumMissing));
    }

    #[test]
    fn a_datagram_changed_in_place_is_filled_again() {
        let mut datagram = datagram(&V6);
        let mut view = View::new_mut(&mut datagram).unwrap();
        view.set_source_port(1);
        view.payload_mut()[0] = b'z';
        assert_eq!(View::new(&datagram).unwrap().verify(&V6), Err(Refusal::UdpChecksum));
        View::new_mut(&mut datagram).unwrap().fill_checksum(&V6);
        assert_eq!(View::new(&datagram).unwrap().verify(&V6), Ok(()));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_each_by_its_name() {
        let refusal = |len: u16| {
            let mut datagram = datagram(&V4);
            set16(datagram.first_chunk_mut::<LEN>().unwrap(), 4, len);
            View::new(&datagram).map(|view| view.payload().len())
        };
        assert_eq!(refusal(0), Err(Refusal::UdpLengthZero));
        assert_eq!(refusal(7), Err(Refusal::UdpLengthShort));
        assert_eq!(refusal(8), Ok(0));
        assert_eq!(refusal(13), Ok(5));
        assert_eq!(refusal(14), Err(Refusal::UdpLengthLong));
        assert_eq!(View::new(&[0; 7]).unwrap_err(), Refusal::UdpTruncated);
    }
}
