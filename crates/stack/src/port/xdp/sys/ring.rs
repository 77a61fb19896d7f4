//! A ring shared with the kernel, mapped.
#![allow(unsafe_code, reason = "the ring is memory that the kernel writes too")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
// Not this crate's `primitive`: the other side is the kernel, which no model checker runs.
use std::sync::atomic::AtomicU32;

use rustix::net::xdp::{XdpDesc, XdpRingOffset};

/// A ring entry: plain integers, for which every bit pattern is valid.
pub(in super::super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for XdpDesc {}

/// A mapped kernel ring: two indices, flags and a power of two of entries.
#[derive(Debug)]
pub(in super::super) struct Ring<T> {
    mapping: NonNull<libc::c_void>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
    _entry: PhantomData<T>,
}

// SAFETY: a mapping belongs to the process, not to a thread; the indices are atomics, and entries are accessed
// through the owner of this value only.
unsafe impl<T: Entry> Send for Ring<T> {}
// SAFETY: a shared reference allows only atomic loads of the indices and copies of entries; writing entries requires
// exclusive access.
unsafe impl<T: Entry> Sync for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps the ring at offset `place` of the socket's file; `size` is its number of entries, a power of two.
    pub(in super::super) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let wrong = || io::Error::other("the kernel reported an invalid ring layout");
        let offset = |at: u64| usize::try_from(at).map_err(|_| wrong());
        let bytes = offset(offsets.desc)? + size as usize * size_of::<T>();
        let index_fits = |at: u64| at.is_multiple_of(4) && at < offsets.desc;
        let fits = index_fits(offsets.producer)
            && index_fits(offsets.consumer)
            && offsets.flags.is_none_or(index_fits)
            && offsets.desc.is_multiple_of(8);
        if !fits || !size.is_power_of_two() {
            return Err(wrong());
        }
        let place = libc::off_t::try_from(place).map_err(|_| wrong())?;
        // SAFETY: a new mapping at an address chosen by the kernel; the kernel checks its length against the ring.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                place,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        // SAFETY: within the mapping, as checked above, for this and the next three.
        let at = |offset: usize| unsafe { mapping.byte_add(offset) };
        Ok(Self {
            mapping,
            bytes,
            producer: at(offset(offsets.producer)?).cast(),
            consumer: at(offset(offsets.consumer)?).cast(),
            flags: offsets.flags.map(|flags| at(flags as usize).cast()),
            entries: at(offset(offsets.desc)?).cast(),
            mask: size - 1,
            _entry: PhantomData,
        })
    }

    /// Number of entries.
    #[inline]
    pub(in super::super) fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    pub(in super::super) fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping, which lives as long as `self`; the kernel writes it as a whole.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    pub(in super::super) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    pub(in super::super) fn flags(&self) -> Option<&AtomicU32> {
        // SAFETY: as above.
        self.flags.map(|flags| unsafe { flags.as_ref() })
    }

    /// The entry at `index`, which wraps around.
    #[inline]
    pub(in super::super) fn read(&self, index: u32) -> T {
        // SAFETY: masked, so within the mapping; every bit pattern is a valid `T`. Volatile, because the kernel
        // writes it.
        unsafe { self.entries.add((index & self.mask) as usize).read_volatile() }
    }

    /// Writes the entry at `index`, which wraps around.
    #[inline]
    pub(in super::super) fn write(&mut self, index: u32, entry: T) {
        // SAFETY: as above. The kernel validates entries.
        unsafe { self.entries.add((index & self.mask) as usize).write_volatile(entry) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned, and no reference into it exists.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.bytes) };
    }
}
