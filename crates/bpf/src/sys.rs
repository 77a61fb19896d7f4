//! The memory mapping behind [`crate::shared_array`], network namespaces, and waiting for running programs.
#![allow(unsafe_code, reason = "mmap of a BPF array, the slices over it, unshare, and membarrier")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// A shared, writable mapping of a BPF array; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    bytes: usize,
    used: usize,
}

// SAFETY: the mapping is plain memory, reached only as atomics; it belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; every access goes through `AtomicU64`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of the array behind `fd`, a multiple of eight.
    pub(crate) fn shared(fd: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: sysconf reads a constant of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mapped = bytes.next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice; the kernel checks the length against the array.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, bytes: mapped, used: bytes })
    }

    /// The mapped words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and valid for `bytes >= used` while `self` lives; AtomicU64 may be shared with
        // the kernel's programs, which access these words whole.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.used / size_of::<AtomicU64>()) }
    }
}

/// A mapping that no program writes, and that none reads while the process does anything else than wait for it.
#[derive(Debug)]
pub(crate) struct Quiet(Mapping);

impl Quiet {
    /// The programs of the array must keep to what is said above.
    pub(crate) fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }

    /// The mapped bytes.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` is valid for `bytes >= used` while `self` lives, and this is the only way to the mapping, held
        // exclusively; no program touches it meanwhile, as the type says.
        unsafe { slice::from_raw_parts_mut(self.0.start.as_ptr().cast(), self.0.used) }
    }
}

/// The number of the interface `name` in the calling thread's network namespace.
pub(crate) fn interface_index(name: &CStr) -> Option<u32> {
    // SAFETY: `name` ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Puts the calling thread, and it alone, into a new network namespace.
pub(crate) fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare touches no memory of ours, and a thread's network namespace is its own.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Can [`outwait_programs`] do what it says? Not where CPUs run without a tick (`nohz_full`).
pub(crate) fn can_outwait_programs() -> bool {
    let commands = membarrier(libc::MEMBARRIER_CMD_QUERY);
    commands >= 0 && commands & i64::from(libc::MEMBARRIER_CMD_GLOBAL) != 0
}

/// Returns once every BPF program that is running now has ended: XDP programs run inside RCU read sections, and the
/// global membarrier is a grace period of RCU (`kernel/sched/membarrier.c`).
pub(crate) fn outwait_programs() {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL);
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes a command and flags, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
