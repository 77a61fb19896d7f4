//! One frame: the only handle to its chunk's bytes.
#![allow(unsafe_code, reason = "a frame's bytes are reached through a pointer into the mapping")]

use std::ptr::NonNull;

use super::super::Offloads;

/// Headroom before the first byte of a fresh frame, for headers to be prepended. The same as the kernel's
/// `XDP_PACKET_HEADROOM`, which AF_XDP reserves too.
pub(super) const HEADROOM: usize = 256;

/// A chunk of packet memory and the packet within it. See the header of [`frame`](crate::frame).
#[derive(Debug)]
#[must_use = "a dropped frame is leaked from its pool"]
pub struct Frame {
    pub(super) base: NonNull<u8>,
    pub(super) hash: u32,
    pub(super) size: u16,
    pub(super) start: u16,
    pub(super) len: u16,
    pub(super) owner: u16,
    pub(super) flags: u8,
}

const HASHED: u8 = 1;
const CHECKSUMMED: u8 = 2;
const TO_SEND: u8 = 4;

// SAFETY: a frame is the only handle to its chunk, and the chunk stays mapped while the frame exists (see
// `Pool::drop`), so whichever thread owns the value may use it.
unsafe impl Send for Frame {}

impl Frame {
    /// The packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len <= size` always; the chunk is mapped while the frame exists, fully initialised (zeroed
        // or written), and reachable through this frame only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.start.into()), self.len.into()) }
    }

    /// The packet, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.start.into()), self.len.into()) }
    }

    /// The longest packet that fits from this packet's start to the end of the chunk.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(self.size - self.start)
    }

    /// Sets the packet's length; newly included bytes have an arbitrary, but initialised, value. Returns false and
    /// changes nothing if `len` exceeds [`Frame::room`].
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.room();
        if fits {
            self.len = len as u16;
        }
        fits
    }

    /// What the port reported about the packet.
    #[inline]
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        Offloads {
            hash: (self.flags & HASHED != 0).then_some(self.hash),
            checksums: self.flags & CHECKSUMMED != 0,
        }
    }

    /// Sets the packet's metadata.
    #[inline]
    pub fn set_offloads(&mut self, offloads: Offloads) {
        self.hash = offloads.hash.unwrap_or(0);
        self.flags = if offloads.hash.is_some() { HASHED } else { 0 }
            | if offloads.checksums { CHECKSUMMED } else { 0 };
    }
}

impl Frame {
    /// Prefetches the headers.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch hint has no effect on memory and accepts any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().wrapping_add(self.start.into()).cast());
        }
    }

    /// Prefetches the bytes before the packet.
    #[inline]
    pub(crate) fn prefetch_before(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it reads nothing, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(
                self.base.as_ptr().wrapping_add(self.start.into()).wrapping_sub(1).cast(),
            );
        }
    }

    /// The `N` bytes before the packet, as the frame's previous owner left them. `None` if the headroom is shorter.
    #[inline]
    pub(crate) fn before<const N: usize>(&self) -> Option<[u8; N]> {
        let at = usize::from(self.start).checked_sub(N)?;
        // SAFETY: `at + N <= start <= size`, and as in `bytes`; an array of bytes needs no alignment.
        Some(unsafe { self.base.as_ptr().add(at).cast::<[u8; N]>().read() })
    }

    /// Bytes of its chunk: the memory that is unavailable while this frame exists.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size.into()
    }

    /// Records the worker that the frame must be returned to: the owner of its port.
    #[inline]
    pub(crate) fn set_owner(&mut self, owner: u16) {
        self.owner = owner;
    }

    /// The worker whose port the frame is from.
    #[inline]
    pub(crate) fn owner(&self) -> u16 {
        self.owner
    }

    /// Sets whether its owner should transmit it or only recycle it.
    #[inline]
    pub(crate) fn set_to_send(&mut self, to_send: bool) {
        self.flags = if to_send { self.flags | TO_SEND } else { self.flags & !TO_SEND };
    }

    /// Whether the frame is to be transmitted.
    #[inline]
    pub(crate) fn to_send(&self) -> bool {
        self.flags & TO_SEND != 0
    }
}
