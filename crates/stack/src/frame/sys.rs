//! The memory behind frames, and the one place where a frame is made of an address.
#![allow(unsafe_code, reason = "packet memory is shared with the kernel and handed between threads by value")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{Error, Offloads};

/// Bytes left free before a fresh frame's first byte: room to put headers in front. As the kernel's
/// `XDP_PACKET_HEADROOM`, which AF_XDP keeps free as well.
const HEADROOM: usize = 256;

/// One mapping, cut into chunks of equal size, most of all: a power of two that divides a page.
#[derive(Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
    /// Chunks that no pool has yet start here.
    next: usize,
}

/// A port's share of a region. Lives on one thread; its frames go where they like.
#[derive(Debug)]
pub struct Pool {
    mapping: Option<Arc<Mapping>>,
    /// The chunks of this pool: first and number.
    first: usize,
    chunks: usize,
    free: Vec<Frame>,
    /// Chunks whose addresses the kernel has.
    kernel: usize,
}

/// A piece of packet memory and the part of it that is a packet. See the module's head.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct Frame {
    base: NonNull<u8>,
    hash: u32,
    size: u16,
    start: u16,
    len: u16,
    owner: u16,
    flags: u8,
}

const HASHED: u8 = 1;
const CHECKSUMMED: u8 = 2;
const TO_SEND: u8 = 4;

// SAFETY: a frame is the only way to its chunk, and the chunk's memory stays mapped while the frame exists (see
// `Pool::drop`), so it may be used from whichever thread owns the value.
unsafe impl Send for Frame {}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    size: usize,
}

// SAFETY: the mapping is reached through frames only, each of which has a chunk for itself.
unsafe impl Send for Mapping {}
// SAFETY: as above: shared is only the knowledge where it lies.
unsafe impl Sync for Mapping {}

impl Region {
    /// Maps `chunks` frames of `size` bytes, 2048 or 4096: what AF_XDP takes on a machine with pages of 4 KiB.
    ///
    /// # Errors
    /// Another size, none or too many of them, no memory.
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

    /// A pool with `chunks` of the frames that no pool has yet.
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

    /// Address and length of the mapping, for the kernel.
    #[must_use]
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base, self.mapping.bytes)
    }

    /// Bytes of each frame.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.mapping.size
    }
}

impl Pool {
    /// An empty frame, if one is free. Its room begins after some headroom.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let mut frame = self.free.pop()?;
        frame.start = HEADROOM as u16;
        frame.len = 0;
        frame.flags = 0;
        Some(frame)
    }

    /// Takes a frame back. One of another pool is handed back to the caller.
    #[inline]
    pub fn put(&mut self, frame: Frame) -> Option<Frame> {
        if self.owns(&frame) {
            self.free.push(frame);
            None
        } else {
            Some(frame)
        }
    }

    /// Is it one of this pool's?
    #[inline]
    #[must_use]
    pub fn owns(&self, frame: &Frame) -> bool {
        let offset = self.offset(frame);
        let size = self.size();
        (self.first * size..(self.first + self.chunks) * size).contains(&offset)
    }

    /// Frames that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Frames that are neither free nor with the kernel.
    #[must_use]
    pub fn abroad(&self) -> usize {
        self.chunks - self.free.len() - self.kernel
    }

    /// All frames of the pool.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.chunks
    }

    /// Gives a free chunk to the kernel to write a packet to: its address within the region.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<u64> {
        let frame = self.free.pop()?;
        self.kernel += 1;
        Some((self.offset(&frame)) as u64)
    }

    /// Gives a packet to the kernel to send: its address within the region, and its length.
    #[inline]
    pub(crate) fn lend_packet(&mut self, frame: Frame) -> (u64, u32) {
        self.kernel += 1;
        ((self.offset(&frame) + usize::from(frame.start)) as u64, u32::from(frame.len))
    }

    /// The bytes of a packet that was lent to be sent, in copy mode. `None`: it does not lie in a chunk of this pool.
    ///
    /// # Safety
    /// [`Pool::lend_packet`] gave this address and length out, its chunk was not lent or taken again since, and the kernel
    /// only reads it.
    pub(crate) unsafe fn lent_packet(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (address, len, size) = (usize::try_from(address).ok()?, len as usize, self.size());
        let own = self.first * size..(self.first + self.chunks) * size;
        if !own.contains(&address) || (address & (size - 1)) + len > size {
            return None;
        }
        // SAFETY: within a chunk of this pool, which is mapped and initialised; the caller promises that nobody writes.
        Some(unsafe { std::slice::from_raw_parts(self.mapping().base.as_ptr().add(address), len) })
    }

    /// Takes a packet over from the kernel. `None` if it does not lie in a chunk of this pool; then nothing has changed.
    ///
    /// # Safety
    /// The kernel has just returned this address, for a chunk it had from this pool, and no longer uses it.
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

    /// Takes a chunk back whose packet the kernel has sent. False if it is none of this pool's.
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
        // SAFETY: the chunk is one of this pool's and the kernel, which alone had it, has given it up.
        Some(unsafe { self.frame(offset) })
    }

    /// # Safety
    /// The chunk at `offset` is within the mapping, and no frame of it exists.
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
        // What the kernel has is let go with the socket that had it, which its port drops before the pool.
        if self.abroad() > 0
            && let Some(mapping) = self.mapping.take()
        {
            // Some frames of it still exist: the mapping stays for them.
            std::mem::forget(mapping);
        }
    }
}

impl Frame {
    /// The packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len <= size` always, the chunk is mapped while the frame exists, all of it is initialised
        // (zeros, or what somebody wrote), and nothing else reaches it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.start.into()), self.len.into()) }
    }

    /// The packet, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.start.into()), self.len.into()) }
    }

    /// The longest packet that can begin where this one does.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(self.size - self.start)
    }

    /// Makes the packet `len` bytes long; what is new in it is undefined, but not unset. False, and no change, if that is
    /// more than the [`Frame::room`].
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.room();
        if fits {
            self.len = len as u16;
        }
        fits
    }

    /// What the port found out about the packet.
    #[inline]
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        Offloads {
            hash: (self.flags & HASHED != 0).then_some(self.hash),
            checksums: self.flags & CHECKSUMMED != 0,
        }
    }

    /// Says what is known about the packet.
    #[inline]
    pub fn set_offloads(&mut self, offloads: Offloads) {
        self.hash = offloads.hash.unwrap_or(0);
        self.flags = if offloads.hash.is_some() { HASHED } else { 0 }
            | if offloads.checksums { CHECKSUMMED } else { 0 };
    }
}

impl Frame {
    /// Asks the CPU to fetch the headers into its cache, without waiting for them.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it reads nothing, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().wrapping_add(self.start.into()).cast());
        }
    }

    /// Asks the CPU to fetch what lies before the packet, without waiting for it.
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

    /// The `N` bytes before the packet, as whoever had the frame last left them. `None`: fewer are in the frame.
    #[inline]
    pub(crate) fn before<const N: usize>(&self) -> Option<[u8; N]> {
        let at = usize::from(self.start).checked_sub(N)?;
        // SAFETY: `at + N <= start <= size`, and as in `bytes`; an array of bytes needs no alignment.
        Some(unsafe { self.base.as_ptr().add(at).cast::<[u8; N]>().read() })
    }

    /// Bytes of its chunk: the memory that nobody else can use meanwhile.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size.into()
    }

    /// Marks it for its way to another worker and back to `owner`, who has its port.
    #[inline]
    pub(crate) fn set_owner(&mut self, owner: u16) {
        self.owner = owner;
    }

    /// The worker whose port it is from.
    #[inline]
    pub(crate) fn owner(&self) -> u16 {
        self.owner
    }

    /// Says whether its owner shall send it or only take it back.
    #[inline]
    pub(crate) fn set_to_send(&mut self, to_send: bool) {
        self.flags = if to_send { self.flags | TO_SEND } else { self.flags & !TO_SEND };
    }

    /// Is it to be sent?
    #[inline]
    pub(crate) fn to_send(&self) -> bool {
        self.flags & TO_SEND != 0
    }
}

impl Mapping {
    fn new(bytes: usize, size: usize) -> io::Result<Self> {
        // Populated now: a page fault on the packet path would cost as much as a hundred packets. A fuzzer makes thousands
        // of regions a second and touches a few pages of each.
        let populated = if cfg!(fuzzing) { 0 } else { libc::MAP_POPULATE };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populated,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { base, bytes, size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, and no frame of it is left: see `Pool::drop`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
