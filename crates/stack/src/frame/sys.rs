//! Packet memory: the only place where an address becomes a frame.
#![allow(unsafe_code, reason = "packet memory is shared with the kernel and handed between threads by value")]

mod frame;
mod mapping;

use std::ptr::NonNull;
use std::sync::Arc;

pub use frame::Frame;

use super::{Error, Offloads};
use frame::HEADROOM;
use mapping::Mapping;

/// One mapping, divided into chunks of equal size: a power of two that divides a page or equals it.
#[derive(Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
    /// The first chunk that is not in a pool yet.
    next: usize,
}

/// A port's share of a region. It stays on one thread; its frames may go to any.
#[derive(Debug)]
pub struct Pool {
    mapping: Option<Arc<Mapping>>,
    /// The first chunk of this pool, and the number of chunks.
    first: usize,
    chunks: usize,
    free: Vec<Frame>,
    /// Chunks owned by the kernel.
    kernel: usize,
}

impl Region {
    /// Maps `chunks` frames of `size` bytes, 2048 or 4096: the sizes AF_XDP accepts on a machine with 4 KiB pages.
    ///
    /// # Errors
    /// Another size, no frames or too many of them, out of memory.
    pub fn new(size: usize, chunks: usize) -> Result<Self, Error> {
        let shape = Error::Shape { size, chunks };
        if !matches!(size, 2048 | 4096) || chunks == 0 {
            return Err(shape);
        }
        let Some(bytes) = size.checked_mul(chunks).filter(|bytes| isize::try_from(*bytes).is_ok()) else {
            return Err(shape);
        };
        let mapping = Mapping::new(bytes, size).map_err(|cause| Error::Map { bytes, cause })?;
        Ok(Self { mapping: Arc::new(mapping), next: 0 })
    }

    /// A pool with `chunks` of the frames that are not in a pool yet.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn pool(&mut self, chunks: usize) -> Result<Pool, Error> {
        let mapping = Arc::clone(&self.mapping);
        let left = mapping.bytes / mapping.size - self.next;
        if chunks > left {
            return Err(Error::Left { wanted: chunks, left });
        }
        let first = self.next;
        self.next += chunks;
        let mut pool =
            Pool { mapping: Some(mapping), first, chunks, free: Vec::with_capacity(chunks), kernel: 0 };
        for chunk in (first..first + chunks).rev() {
            // SAFETY: `next` has moved past these chunks, so each becomes a frame once.
            let frame = unsafe { pool.frame(chunk * pool.size()) };
            pool.free.push(frame);
        }
        Ok(pool)
    }

    /// Address and length of the mapping, to register with the kernel.
    #[must_use]
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base, self.mapping.bytes)
    }

    /// Bytes per frame.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.mapping.size
    }
}

impl Pool {
    /// An empty frame, if one is free. Its data starts after some headroom.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let mut frame = self.free.pop()?;
        frame.start = HEADROOM as u16;
        frame.len = 0;
        frame.flags = 0;
        Some(frame)
    }

    /// Takes a frame back. A frame of another pool is returned to the caller.
    #[inline]
    pub fn put(&mut self, frame: Frame) -> Option<Frame> {
        if self.owns(&frame) {
            self.free.push(frame);
            None
        } else {
            Some(frame)
        }
    }

    /// Whether the frame is from this pool.
    #[inline]
    #[must_use]
    pub fn owns(&self, frame: &Frame) -> bool {
        let offset = self.offset(frame);
        let size = self.size();
        (self.first * size..(self.first + self.chunks) * size).contains(&offset)
    }

    /// Free frames.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Frames that are neither free nor with the kernel.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.chunks - self.free.len() - self.kernel
    }

    /// All frames of the pool.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.chunks
    }

    /// Gives a free chunk to the kernel to receive into; returns its offset within the region.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<u64> {
        let frame = self.free.pop()?;
        self.kernel += 1;
        Some((self.offset(&frame)) as u64)
    }

    /// Gives a packet to the kernel to send; returns its offset within the region, and its length.
    #[inline]
    pub(crate) fn lend_packet(&mut self, frame: Frame) -> (u64, u32) {
        self.kernel += 1;
        ((self.offset(&frame) + usize::from(frame.start)) as u64, u32::from(frame.len))
    }

    /// The bytes of a packet that was lent for sending, in copy mode. `None` if the address is not in a chunk of this
    /// pool.
    ///
    /// # Safety
    /// [`Pool::lend_packet`] returned this address and length, the chunk has been neither lent nor taken since, and
    /// the kernel only reads it.
    pub(crate) unsafe fn lent_packet(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (address, len, size) = (usize::try_from(address).ok()?, len as usize, self.size());
        let own = self.first * size..(self.first + self.chunks) * size;
        if !own.contains(&address) || (address & (size - 1)) + len > size {
            return None;
        }
        // SAFETY: within a chunk of this pool, which is mapped and initialised; the caller guarantees that there is
        // no writer.
        Some(unsafe { std::slice::from_raw_parts(self.mapping().base.as_ptr().add(address), len) })
    }

    /// Takes a packet over from the kernel. `None` if it is not within a chunk of this pool; then nothing changes.
    ///
    /// # Safety
    /// The kernel has just returned this address, for a chunk that this pool lent to it, and no longer uses it.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, address: u64, len: u32, offloads: Offloads) -> Option<Frame> {
        // SAFETY: as the caller promises.
        let mut frame = unsafe { self.reclaimed(address) }?;
        let start = address as usize & (self.size() - 1);
        if start + len as usize > self.size() {
            self.free.push(frame);
            return None;
        }
        frame.start = start as u16;
        frame.len = len as u16;
        frame.set_offloads(offloads);
        Some(frame)
    }

    /// Takes back the chunk of a packet that the kernel has sent. False if it is not a chunk of this pool.
    ///
    /// # Safety
    /// As [`Pool::receive`].
    #[inline]
    pub(crate) unsafe fn reclaim(&mut self, address: u64) -> bool {
        // SAFETY: as the caller promises.
        let Some(frame) = (unsafe { self.reclaimed(address) }) else { return false };
        self.free.push(frame);
        true
    }

    /// # Safety
    /// As [`Pool::receive`].
    #[inline]
    unsafe fn reclaimed(&mut self, address: u64) -> Option<Frame> {
        let size = self.size();
        let offset = usize::try_from(address).ok()? & !(size - 1);
        if self.kernel == 0 || !(self.first * size..(self.first + self.chunks) * size).contains(&offset) {
            return None;
        }
        self.kernel -= 1;
        // SAFETY: the chunk is one of this pool's, and the kernel, its only owner, has given it up.
        Some(unsafe { self.frame(offset) })
    }

    /// # Safety
    /// The chunk at `offset` is within the mapping, and no frame for it exists.
    #[inline]
    unsafe fn frame(&self, offset: usize) -> Frame {
        let size = self.size() as u16;
        // SAFETY: within the mapping, as the caller promises.
        let base = unsafe { self.mapping().base.add(offset) };
        Frame { base, hash: 0, size, start: HEADROOM as u16, len: 0, owner: 0, flags: 0 }
    }

    #[inline]
    fn offset(&self, frame: &Frame) -> usize {
        (frame.base.as_ptr() as usize).wrapping_sub(self.mapping().base.as_ptr() as usize)
    }

    #[inline]
    fn size(&self) -> usize {
        self.mapping().size
    }

    #[inline]
    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("taken in drop only")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The kernel releases its chunks when the socket is closed, which the port does before it drops the pool.
        if self.outstanding() > 0
            && let Some(mapping) = self.mapping.take()
        {
            // Some of its frames still exist: leak the mapping for them.
            std::mem::forget(mapping);
        }
    }
}
