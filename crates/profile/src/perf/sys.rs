//! The system call, and the ring that the kernel writes to.
#![allow(unsafe_code, reason = "perf_event_open, and a ring that is memory shared with the kernel")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
// The other side is the kernel.
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};
use perf_event_open_sys::{ioctls, perf_event_open};

/// Opens an event, as a member of a group if there is one.
pub(super) fn open(
    attributes: &mut perf_event_attr,
    target: Target,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let pid = target.tid.map_or(-1, |tid| i32::try_from(tid).unwrap_or(i32::MAX));
    let cpu = i32::try_from(target.cpu).unwrap_or(i32::MAX);
    let group = group.map_or(-1, |leader| leader.as_raw_fd());
    attributes.size = size_of::<perf_event_attr>() as u32;
    // SAFETY: a whole attribute structure with its size, which the kernel reads, and into which it may write a size.
    let fd = unsafe { perf_event_open(attributes, pid, cpu, group, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What an event watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// On this CPU.
    pub(super) cpu: u32,
    /// A thread; without one, everything on the CPU.
    pub(super) tid: Option<u32>,
}

/// The id of an event in its group's values.
pub(super) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: an event's descriptor, and a number that the kernel writes.
    check(unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Makes an event write to the ring of another event on the same CPU.
pub(super) fn share_ring(event: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two events' descriptors, and no memory.
    check(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) })
}

/// Starts counting.
pub(super) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an event's descriptor, and no memory.
    check(unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) })
}

/// Stops counting.
pub(super) fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an event's descriptor, and no memory.
    check(unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The ring of one event: a page of indices, then the data, a power of two of pages.
///
/// The kernel writes at `data_head`, this side reads from `data_tail`: the bytes between the two belong to this side
/// until it moves the tail.
#[derive(Debug)]
pub(super) struct Ring {
    mapping: NonNull<perf_event_mmap_page>,
    /// Size of the whole mapping.
    bytes: usize,
    /// Where the data begins.
    offset: usize,
    /// Bytes of data, a power of two.
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is reached through this one value only.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two of pages.
    pub(super) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = page + size;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe {
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), bytes, rights, flags, event.as_raw_fd(), 0)
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping =
            NonNull::new(mapping.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { mapping, bytes, offset: page, size })
    }

    /// Capacity in bytes of data.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: an aligned field of the mapped page, which lives as long as this value; both sides use it as a whole.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.mapping.as_ptr()).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as above; the kernel reads this one.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.mapping.as_ptr()).data_tail) }
    }

    /// Appends all bytes of the ring to `out`, and frees their room.
    pub(super) fn drain(&mut self, out: &mut Vec<u8>) {
        // Acquire: the bytes were written before the head was moved.
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        // Never more than the ring, whatever the page contains.
        let count = usize::try_from(head.wrapping_sub(tail)).unwrap_or(self.size).min(self.size);
        let begin = (head.wrapping_sub(count as u64) as usize) & (self.size - 1);
        let first = count.min(self.size - begin);
        for (at, len) in [(begin, first), (0, count - first)] {
            // SAFETY: within the mapping's data, and the kernel does not write there before the tail is moved.
            out.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.mapping.as_ptr().cast::<u8>().add(self.offset + at), len)
            });
        }
        // Release: the bytes are read before the kernel may write there again.
        self.tail().store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, not used afterwards.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.bytes) };
    }
}
