//! IPv4 (RFC 791).
//!
//! ```text
//! 0       1    2        4      6           8     9          10         12       16            20
//! | 4 IHL | TOS | length | id | flags, offset | TTL | protocol | checksum | source | destination | options | payload
//! ```

use std::borrow::{Borrow, BorrowMut};
use std::net::Ipv4Addr;

use super::checksum::Sum;
use super::{Refusal, be16, set16};

/// Length of the header without options, bytes.
pub const LEN: usize = 20;

/// "Don't fragment" in the field of flags and offset.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments follow" in the same field.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment's offset in the same field, in units of 8 bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// A packet's header, options and payload, in place. The payload ends where the header says: padding is cut off.
#[derive(Debug, Clone, Copy)]
pub struct View<H, S> {
    header: H,
    options: S,
    payload: S,
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// A view of a packet, which may be followed by padding.
    ///
    /// # Errors
    /// [`Refusal::IpTruncated`], [`Refusal::IpVersion`], [`Refusal::Ipv4Length`].
    #[inline]
    pub fn new(packet: &'a [u8]) -> Result<Self, Refusal> {
        let (header, rest) = packet.split_first_chunk().ok_or(Refusal::IpTruncated)?;
        let (options, payload) = lengths(header)?;
        let (options, rest) = rest.split_at_checked(options).ok_or(Refusal::IpTruncated)?;
        let payload = rest.get(..payload).ok_or(Refusal::IpTruncated)?;
        Ok(Self { header, options, payload })
    }

    /// The payload, without padding.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The options, 0 to 40 bytes.
    #[must_use]
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Whether the header checksum is correct, options included.
    #[must_use]
    #[inline]
    pub fn is_intact(&self) -> bool {
        Sum::of(self.header).plus(Sum::of(self.options)).is_intact()
    }
}

impl<'a> View<&'a mut [u8; LEN], &'a mut [u8]> {
    /// A mutable view of a packet. Version, header length and total length must be valid already.
    ///
    /// # Errors
    /// As [`View::new`].
    #[inline]
    pub fn new_mut(packet: &'a mut [u8]) -> Result<Self, Refusal> {
        let (header, rest) = packet.split_first_chunk_mut().ok_or(Refusal::IpTruncated)?;
        let (options, payload) = lengths(header)?;
        let (options, rest) = rest.split_at_mut_checked(options).ok_or(Refusal::IpTruncated)?;
        let payload = rest.get_mut(..payload).ok_or(Refusal::IpTruncated)?;
        Ok(Self { header, options, payload })
    }

    /// The payload.
    #[must_use]
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }

    /// Computes and writes the header checksum, options included.
    #[inline]
    pub fn fill_checksum(&mut self) {
        set16(self.header, 10, 0);
        let sum = Sum::of(self.header).plus(Sum::of(self.options));
        set16(self.header, 10, sum.checksum());
    }
}

/// Length of options and of payload according to the header, bytes.
#[inline]
fn lengths(header: &[u8; LEN]) -> Result<(usize, usize), Refusal> {
    if header[0] >> 4 != 4 {
        return Err(Refusal::IpVersion);
    }
    let header_len = usize::from(header[0] & 0xf) * 4;
    let options = header_len.checked_sub(LEN).ok_or(Refusal::Ipv4Length)?;
    let payload = usize::from(be16(header, 2)).checked_sub(header_len).ok_or(Refusal::Ipv4Length)?;
    Ok((options, payload))
}

impl<H: Borrow<[u8; LEN]>, S> View<H, S> {
    #[inline]
    fn header(&self) -> &[u8; LEN] {
        self.header.borrow()
    }

    /// The type of service: DSCP in the upper 6 bits, ECN in the lower 2.
    #[must_use]
    #[inline]
    pub fn tos(&self) -> u8 {
        self.header()[1]
    }

    /// Length of the whole packet, bytes.
    #[must_use]
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.header(), 2)
    }

    /// The identification: the same in all fragments of a datagram.
    #[must_use]
    #[inline]
    pub fn identification(&self) -> u16 {
        be16(self.header(), 4)
    }

    /// Whether routers may not fragment the packet.
    #[must_use]
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.header(), 6) & DONT_FRAGMENT != 0
    }

    /// Whether this is a fragment.
    #[must_use]
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.header(), 6) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Remaining hops.
    #[must_use]
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header()[8]
    }

    /// The transport protocol.
    #[must_use]
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.header()[9]
    }

    /// The checksum field.
    #[must_use]
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header(), 10)
    }

    /// The source.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.header();
        Ipv4Addr::new(a, b, c, d)
    }

    /// The destination.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.header();
        Ipv4Addr::new(a, b, c, d)
    }
}

/// Setters of fixed-size fields. The checksum is not updated: see [`View::fill_checksum`] and
/// [`super::checksum::update`].
impl<H: BorrowMut<[u8; LEN]>, S> View<H, S> {
    /// Writes the type of service.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.header.borrow_mut()[1] = tos;
    }

    /// Writes the TTL.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.header.borrow_mut()[8] = ttl;
    }

    /// Writes the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        set16(self.header.borrow_mut(), 10, checksum);
    }

    /// Writes the source.
    #[inline]
    pub fn set_source(&mut self, source: Ipv4Addr) {
        self.header.borrow_mut()[12..16].copy_from_slice(&source.octets());
    }

    /// Writes the destination.
    #[inline]
    pub fn set_destination(&mut self, destination: Ipv4Addr) {
        self.header.borrow_mut()[16..].copy_from_slice(&destination.octets());
    }
}

/// The contents of the header of an unfragmented packet without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// The source.
    pub source: Ipv4Addr,
    /// The destination.
    pub destination: Ipv4Addr,
    /// The transport protocol.
    pub protocol: u8,
    /// Remaining hops.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Meaningful only if the packet may be fragmented (RFC 6864, 4.1).
    pub identification: u16,
    /// Whether routers may not fragment the packet.
    pub dont_fragment: bool,
    /// Length of the payload, bytes; at most [`MAX_PAYLOAD`].
    pub payload_len: u16,
}

/// Maximum payload after a header of [`LEN`], bytes.
pub const MAX_PAYLOAD: u16 = u16::MAX - LEN as u16;

impl Repr {
    /// Parses and verifies a header, including its checksum.
    ///
    /// # Errors
    /// [`Refusal::Ipv4Options`], [`Refusal::Fragment`], [`Refusal::Ipv4Checksum`].
    pub fn parse(view: &View<&[u8; LEN], &[u8]>) -> Result<Self, Refusal> {
        if !view.options.is_empty() {
            return Err(Refusal::Ipv4Options);
        }
        if view.is_fragment() {
            return Err(Refusal::Fragment);
        }
        if !view.is_intact() {
            return Err(Refusal::Ipv4Checksum);
        }
        Ok(Self {
            source: view.source(),
            destination: view.destination(),
            protocol: view.protocol(),
            ttl: view.ttl(),
            tos: view.tos(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            payload_len: view.total_len() - LEN as u16,
        })
    }

    /// Writes the whole header with its checksum. A payload beyond [`MAX_PAYLOAD`] is clamped.
    #[inline]
    pub fn emit(&self, header: &mut [u8; LEN]) {
        header[0] = 0x45;
        header[1] = self.tos;
        set16(header, 2, self.total_len());
        set16(header, 4, self.identification);
        set16(header, 6, self.flags());
        header[8] = self.ttl;
        header[9] = self.protocol;
        set16(header, 10, self.sum().checksum());
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..].copy_from_slice(&self.destination.octets());
    }

    /// The sum of the header without its checksum, from the values: reading back what was just written would stall
    /// the CPU.
    #[inline]
    pub(super) fn sum(&self) -> Sum {
        let numbers = [
            0x4500 | u16::from(self.tos),
            self.total_len(),
            self.identification,
            self.flags(),
            u16::from(self.ttl) << 8 | u16::from(self.protocol),
        ];
        let addresses = Sum::of(&self.source.octets()).plus(Sum::of(&self.destination.octets()));
        numbers.iter().fold(addresses, |sum, number| sum.plus(Sum::of_u16(*number)))
    }

    #[inline]
    fn total_len(&self) -> u16 {
        self.payload_len.min(MAX_PAYLOAD) + LEN as u16
    }

    #[inline]
    fn flags(&self) -> u16 {
        if self.dont_fragment { DONT_FRAGMENT } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        protocol: 17,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        payload_len: 8,
    };

    fn packet() -> [u8; 34] {
        let mut packet = [0; 34];
        REPR.emit(packet.first_chunk_mut().unwrap());
        packet
    }

    #[test]
    fn padding_is_not_payload() {
        let packet = packet();
        let view = View::new(&packet).unwrap();
        assert_eq!((view.payload().len(), view.total_len(), view.options().len()), (8, 28, 0));
        assert_eq!(Repr::parse(&view), Ok(REPR));
    }

    #[test]
    fn a_header_changed_in_place_is_filled_again() {
        let mut packet = packet();
        let mut view = View::new_mut(&mut packet).unwrap();
        let old = view.checksum();
        view.set_ttl(3);
        view.set_source(Ipv4Addr::new(192, 0, 2, 1));
        view.fill_checksum();
        let full = view.checksum();
        assert_eq!(
            super::super::checksum::update_bytes(
                super::super::checksum::update(old, 64 << 8 | 17, 3 << 8 | 17),
                &[10, 0, 0, 1],
                &[192, 0, 2, 1]
            ),
            full
        );
        let view = View::new(&packet).unwrap();
        assert!(view.is_intact());
        assert_eq!((view.ttl(), view.source()), (3, Ipv4Addr::new(192, 0, 2, 1)));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refusal = |change: fn(&mut [u8; 34])| {
            let mut packet = packet();
            change(&mut packet);
            View::new(&packet).and_then(|view| Repr::parse(&view)).unwrap_err()
        };
        assert_eq!(refusal(|p| p[0] = 0x65), Refusal::IpVersion);
        assert_eq!(refusal(|p| p[0] = 0x44), Refusal::Ipv4Length);
        assert_eq!(refusal(|p| p[3] = 19), Refusal::Ipv4Length);
        assert_eq!(refusal(|p| p[3] = 35), Refusal::IpTruncated);
        assert_eq!(refusal(|p| p[0] = 0x46), Refusal::Ipv4Options);
        assert_eq!(refusal(|p| p[6] = 0x20), Refusal::Fragment);
        assert_eq!(refusal(|p| p[7] = 1), Refusal::Fragment);
        assert_eq!(refusal(|p| p[10] ^= 1), Refusal::Ipv4Checksum);
        assert_eq!(View::new(&packet()[..19]).unwrap_err(), Refusal::IpTruncated);
    }
}
