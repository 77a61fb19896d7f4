//! A large private mapping whose pages use no memory until they are touched.
//!
//! A burst holds `batch` datagrams of up to 64 KiB, but nearly all are small. The mapping is zero-filled on demand, and
//! huge pages are disabled for it (one touched byte would make 2 MiB resident), so that only memory that traffic used
//! is resident. Under Miri, which has no such mappings, it is an allocation.

use std::io;
use std::ptr::NonNull;

#[cfg(not(miri))]
use rustix::mm;

/// An anonymous private mapping, unmapped on drop.
pub(super) struct Arena {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is private to its owner and reached only through it, so it may move to another thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `len` bytes of zeros.
    #[cfg(miri)]
    pub(super) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a layout of bytes, not empty: `len` is that of at least one buffer.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Ok(Self { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    #[cfg(miri)]
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::array::<u8>(len)
            .unwrap_or_else(|_| panic!("{len} bytes do not fit the address space"))
    }

    /// Maps `len` bytes of zeros.
    #[cfg(not(miri))]
    pub(super) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address the kernel chooses aliases nothing.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE,
            )
        }?;
        let arena = Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len };
        // Kernels without huge pages reject the advice, and do not need it.
        // SAFETY: the range is exactly the mapping made above; the advice does not change its contents.
        let _ = unsafe { mm::madvise(base, len, mm::Advice::LinuxNoHugepage) };
        Ok(arena)
    }

    /// A pointer to the byte at `offset`, for the kernel. Checks that `len` bytes from there are inside.
    #[inline]
    pub(super) fn pointer(&self, offset: usize, len: usize) -> *mut libc::c_void {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside the arena");
        // SAFETY: `offset` is within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    /// All bytes, to read.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `len` initialised bytes (zeros or what the kernel wrote) and lives as long as
        // `self`; the kernel writes to it only during calls that hold the owner mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// All bytes, to write.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Arena {
    #[cfg(miri)]
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len)) };
    }

    #[cfg(not(miri))]
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length; nothing borrows it any more.
        // A failure would mean that the range is not mapped: there is nothing left to do.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_as_zeros_and_keeps_what_is_written() {
        let mut arena = Arena::new(1 << 20).unwrap();
        assert!(arena.bytes().iter().all(|byte| *byte == 0));
        arena.bytes_mut()[77] = 7;
        assert_eq!(arena.bytes()[77], 7);
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn pointers_stay_inside() {
        Arena::new(4096).unwrap().pointer(4000, 97);
    }
}
