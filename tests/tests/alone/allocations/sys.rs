//! The allocator of this program: the system's, which counts while it is asked to.
#![allow(unsafe_code, reason = "an allocator has no safe form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts the calls that get memory, of a server's workers. The harness prints meanwhile, and the monitor of xdp
/// asks for the machine's addresses ten times a second.
struct Counting;

thread_local! {
    /// Whether this thread counts, once it is known.
    static COUNTED: Cell<Option<bool>> = const { Cell::new(None) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The calls while `run` runs.
pub(super) fn counted(run: impl FnOnce()) -> u64 {
    CALLS.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    run();
    COUNTS.store(false, Ordering::SeqCst);
    CALLS.load(Ordering::SeqCst)
}

fn count() {
    if !COUNTS.load(Ordering::Relaxed) {
        return;
    }
    // A thread that ends has none any more.
    let known = COUNTED.try_with(|counted| {
        let known = counted.get().unwrap_or_else(is_worker);
        counted.set(Some(known));
        known
    });
    CALLS.fetch_add(known.unwrap_or(false).into(), Ordering::Relaxed);
}

/// Whether this thread has a worker's name.
fn is_worker() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes, which is the length of `name`.
    let read = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    read == 0 && is_workers(name.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Whether a thread's name is that of a worker: `KIND-NUMBER`.
pub(super) fn is_workers(name: &[u8]) -> bool {
    let number = name.iter().rposition(|byte| *byte == b'-').map(|dash| &name[dash + 1..]);
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

// SAFETY: every call is the system allocator's, with the caller's own arguments; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise: `memory` came from this allocator, so from the system's, with `layout`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: `memory` came from this allocator, so from the system's, with `layout`.
        unsafe { System.dealloc(memory, layout) }
    }
}
