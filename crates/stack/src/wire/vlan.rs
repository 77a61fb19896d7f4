//! VLAN tags (IEEE 802.1Q, clause 9): four bytes between the MAC addresses and the EtherType.
//!
//! ```text
//! ... source | 0x88a8 or 0x8100 | priority:3 drop eligible:1 vlan:12 | EtherType ...
//!              the outer type     ^ the four bytes of this module
//! ```
//! NICs and the kernel often strip the tag before the packet reaches software; XDP programs and AF_XDP see it in the
//! frame otherwise. A tag for VLAN 0 carries only a priority.

use std::borrow::{Borrow, BorrowMut};

use super::ethernet::EtherType;
use super::view::view;
use super::{Refusal, be16};

/// Length of a tag, bytes: its control word and the type of what follows it.
pub const LEN: usize = 4;

/// The maximum number of tags on the fast path: a provider's and a customer's.
pub const MAX: usize = 2;

/// A tag's control word; every value is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Control(pub u16);

impl Control {
    /// The word for a VLAN and a priority; only the lower 12 bits of `vlan` and the lower 3 of `priority` are used.
    #[must_use]
    pub const fn new(vlan: u16, priority: u8) -> Self {
        Self((priority as u16 & 7) << 13 | vlan & 0xfff)
    }

    /// The VLAN ID, from 0 (none, only a priority) to 4095 (reserved).
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
    /// A tag and the bytes after it, in place.
    LEN
}

impl<'a> View<&'a [u8; LEN], &'a [u8]> {
    /// A view of the bytes after an EtherType that [is a tag's](EtherType::is_tag).
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
    /// A mutable view of a tag.
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

    /// The type of what follows.
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

    /// Writes the type of what follows.
    #[inline]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        self.header.borrow_mut()[2..].copy_from_slice(&ether_type.0.to_be_bytes());
    }
}

/// The contents of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// VLAN and priority.
    pub control: Control,
    /// The type of what follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Parses a tag; every tag is valid.
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
