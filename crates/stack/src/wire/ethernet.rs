//! Ethernet II (IEEE 802.3, clause 3): two MAC addresses and the EtherType.
//!
//! ```text
//! 0             6             12      14
//! | destination | source      | type  | VLAN tags, IP packet, padding up to 60 bytes
//! ```

use std::borrow::{Borrow, BorrowMut};
use std::fmt;

use super::view::view;
use super::{Refusal, be16};

/// Length of the header without tags, bytes.
pub const LEN: usize = 14;

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a group address, broadcast included: the lowest bit of the first byte.
    #[must_use]
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it is the broadcast address.
    #[must_use]
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self, Self::BROADCAST)
    }
}

impl fmt::Display for Mac {
    /// As `ip link` shows it: `02:00:00:00:00:0a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The type of what follows an Ethernet header or a VLAN tag. Values below 1536 are lengths of IEEE 802.3 frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// A provider VLAN tag (IEEE 802.1ad), outside the customer's.
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// Whether a VLAN tag follows.
    #[must_use]
    #[inline]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }
}

view! {
    /// A frame's Ethernet header and the bytes after it, in place.
    LEN
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// A view of a frame.
    ///
    /// # Errors
    /// [`Refusal::FrameShort`].
    #[inline]
    pub fn new(frame: &'a [u8]) -> Result<Self, Refusal> {
        let (header, payload) = frame.split_first_chunk().ok_or(Refusal::FrameShort)?;
        Ok(Self { header, payload })
    }
}

impl<'a> View<&'a mut [u8; LEN], &'a mut [u8]> {
    /// A mutable view of a frame.
    ///
    /// # Errors
    /// [`Refusal::FrameShort`].
    #[inline]
    pub fn new_mut(frame: &'a mut [u8]) -> Result<Self, Refusal> {
        let (header, payload) = frame.split_first_chunk_mut().ok_or(Refusal::FrameShort)?;
        Ok(Self { header, payload })
    }
}

impl<H: Borrow<[u8; LEN]>, S> View<H, S> {
    /// The destination.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = *self.header();
        Mac([a, b, c, d, e, f])
    }

    /// The source.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header();
        Mac([a, b, c, d, e, f])
    }

    /// The type of what follows.
    #[must_use]
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(be16(self.header(), 12))
    }
}

impl<H: BorrowMut<[u8; LEN]>, S> View<H, S> {
    /// Writes the destination.
    #[inline]
    pub fn set_destination(&mut self, mac: Mac) {
        self.header.borrow_mut()[..6].copy_from_slice(&mac.0);
    }

    /// Writes the source.
    #[inline]
    pub fn set_source(&mut self, mac: Mac) {
        self.header.borrow_mut()[6..12].copy_from_slice(&mac.0);
    }

    /// Writes the type of what follows.
    #[inline]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        self.header.borrow_mut()[12..].copy_from_slice(&ether_type.0.to_be_bytes());
    }
}

/// The contents of an Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// The destination.
    pub destination: Mac,
    /// The source; never a group address.
    pub source: Mac,
    /// The type of what follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Refusal::LinkSource`] if the source is a group address.
    pub fn parse<H: Borrow<[u8; LEN]>, S>(view: &View<H, S>) -> Result<Self, Refusal> {
        if view.source().is_group() {
            return Err(Refusal::LinkSource);
        }
        Ok(Self { destination: view.destination(), source: view.source(), ether_type: view.ether_type() })
    }

    /// Writes the header.
    pub fn emit<H: BorrowMut<[u8; LEN]>, S>(&self, view: &mut View<H, S>) {
        view.set_destination(self.destination);
        view.set_source(self.source);
        view.set_ether_type(self.ether_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_cannot_send() {
        let mut frame = [0; LEN];
        frame[6] = 1;
        assert_eq!(Repr::parse(&View::new(&frame).unwrap()), Err(Refusal::LinkSource));
        assert_eq!(View::new(&frame[..13]).unwrap_err(), Refusal::FrameShort);
    }

    #[test]
    fn addresses_are_shown_as_ip_link_does() {
        assert_eq!(Mac([2, 0, 0, 0, 0, 10]).to_string(), "02:00:00:00:00:0a");
        assert!(Mac::BROADCAST.is_broadcast() && Mac::BROADCAST.is_group());
        assert!(Mac([0x33, 0x33, 0, 0, 0, 1]).is_group() && !Mac([0x32; 6]).is_group());
    }
}
