//! VLAN tags (IEEE 802.1Q, clause 9): four bytes between the MAC addresses and the type of what follows.
//!
//! ```text
//! ... source | 0x88a8 or 0x8100 | priority:3 drop eligible:1 vlan:12 | type of what follows ...
//!              the outer type     ^ this module's four bytes
//! ```
//! NICs and the kernel often take the tag out of the frame before anyone sees it; XDP programs and AF_XDP see it where
//! it was sent. A tag for VLAN 0 carries a priority alone.

use std::borrow::{Borrow, BorrowMut};

use super::ethernet::EtherType;
use super::view::view;
use super::{Refusal, be16};

/// Bytes of a tag: its control word and the type of what follows it.
pub const LEN: usize = 4;

/// Tags the fast path bears: a provider's and a customer's.
pub const MAX: usize = 2;

/// A tag's control word, in which every value has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Control(pub u16);

impl Control {
    /// The word for a VLAN and a priority; of `vlan` the lower 12 bits count, of `priority` the lower 3.
    #[must_use]
    pub const fn new(vlan: u16, priority: u8) -> Self {
        Self((priority as u16 & 7) << 13 | vlan & 0xfff)
    }

    /// The VLAN, from 0 (none, only a priority) to 4095 (reserved).
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.0 & 0xfff
    }

    /// The priority (PCP), from 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Whether switches may drop the frame first (DEI).
    #[must_use]
    pub const fn is_drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

view! {
    /// A tag and what is behind it, in place.
    LEN
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// The view of the bytes behind an EtherType that [is a tag's](EtherType::is_tag).
    ///
    /// # Errors
    /// [`Refusal::FrameShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (header, payload) = bytes.split_first_chunk().ok_or(Refusal::FrameShort)?;
        Ok(Self { header, payload })
    }
}

impl<'a> View<&'a mut [u8; LEN], &'a mut [u8]> {
    /// The view of a tag that is written.
    ///
    /// # Errors
    /// [`Refusal::FrameShort`].
    #[inline]
    pub fn new_mut(bytes: &'a mut [u8]) -> Result<Self, Refusal> {
        let (header, payload) = bytes.split_first_chunk_mut().ok_or(Refusal::FrameShort)?;
        Ok(Self { header, payload })
    }
}

impl<H: Borrow<[u8; LEN]>, S> View<H, S> {
    /// The control word.
    #[must_use]
    #[inline]
    pub fn control(&self) -> Control {
        Control(be16(self.header(), 0))
    }

    /// What follows.
    #[must_use]
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(be16(self.header(), 2))
    }
}

impl<H: BorrowMut<[u8; LEN]>, S> View<H, S> {
    /// Writes the control word.
    #[inline]
    pub fn set_control(&mut self, control: Control) {
        self.header.borrow_mut()[..2].copy_from_slice(&control.0.to_be_bytes());
    }

    /// Writes what follows.
    #[inline]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        self.header.borrow_mut()[2..].copy_from_slice(&ether_type.0.to_be_bytes());
    }
}

/// What a tag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// VLAN and priority.
    pub control: Control,
    /// What follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads a tag; there is none that says nothing.
    pub fn parse<H: Borrow<[u8; LEN]>, S>(view: &View<H, S>) -> Self {
        Self { control: view.control(), ether_type: view.ether_type() }
    }

    /// Writes the tag.
    pub fn emit<H: BorrowMut<[u8; LEN]>, S>(&self, view: &mut View<H, S>) {
        view.set_control(self.control);
        view.set_ether_type(self.ether_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_word_has_three_parts() {
        let control = Control::new(100, 5);
        assert_eq!((control.0, control.vlan(), control.priority()), (0xa064, 100, 5));
        assert!(!control.is_drop_eligible() && Control(0x1000).is_drop_eligible());
        assert_eq!(View::new(&[0; 3]).unwrap_err(), Refusal::FrameShort);
    }
}
