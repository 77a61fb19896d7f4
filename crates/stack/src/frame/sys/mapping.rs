//! The anonymous mapping that a region's frames are cut from.
#![allow(unsafe_code, reason = "mmap and munmap")]

use std::io;
use std::ptr::{self, NonNull};

#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) size: usize,
}

// SAFETY: the mapping is accessed through frames only, each of which owns a separate chunk.
unsafe impl Send for Mapping {}
// SAFETY: as above; only its address and size are shared.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(bytes: usize, size: usize) -> io::Result<Self> {
        // Populated up front: a page fault on the packet path would cost as much as a hundred packets. A fuzzer
        // creates thousands of regions a second and touches a few pages of each; Miri does not implement the flag.
        let populated = if cfg!(any(fuzzing, miri)) { 0 } else { libc::MAP_POPULATE };
        // SAFETY: a new anonymous mapping at an address chosen by the kernel aliases nothing.
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
        // SAFETY: exactly the range that mmap returned, and no frame of it exists: see `Pool::drop`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
