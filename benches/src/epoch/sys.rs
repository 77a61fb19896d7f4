//! A table under crossbeam-epoch, used as its documentation recommends.
#![allow(unsafe_code, reason = "crossbeam-epoch's pointers are followed by unsafe functions")]

use std::sync::atomic::Ordering;

use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Owned};

/// A value that readers access through crossbeam-epoch.
pub(super) struct Crossbeam<T> {
    collector: Collector,
    current: Atomic<T>,
}

impl<T: Send + Sync + 'static> Crossbeam<T> {
    pub(super) fn new(value: T) -> Self {
        Self { collector: Collector::new(), current: Atomic::new(value) }
    }

    /// A handle of its own, which avoids the access to thread-local storage; can be created in any thread.
    pub(super) fn reader(&self) -> Reader<'_, T> {
        Reader { table: self, handle: self.collector.register() }
    }

    pub(super) fn publish(&self, value: T) {
        let handle = self.collector.register();
        let guard = handle.pin();
        let old = self.current.swap(Owned::new(value), Ordering::AcqRel, &guard);
        // SAFETY: `old` has been removed from the table, and is retired once.
        unsafe { guard.defer_destroy(old) };
        guard.flush();
    }
}

impl<T> Drop for Crossbeam<T> {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to this table any more, and `current` is never null.
        drop(unsafe { std::mem::take(&mut self.current).into_owned() });
    }
}

pub(super) struct Reader<'t, T> {
    table: &'t Crossbeam<T>,
    handle: LocalHandle,
}

// SAFETY: the handle is created in one thread and then used only in one other; it is not tied to a thread, because it
// belongs to a collector of this type and not to the thread-local one.
unsafe impl<T: Send + Sync> Send for Reader<'_, T> {}

impl<T> Reader<'_, T> {
    #[inline]
    pub(super) fn pin(&self) -> Pinned<'_, T> {
        Pinned { table: self.table, guard: self.handle.pin() }
    }
}

pub(super) struct Pinned<'r, T> {
    table: &'r Crossbeam<T>,
    guard: Guard,
}

impl<T> Pinned<'_, T> {
    #[inline]
    pub(super) fn load(&self) -> &T {
        // SAFETY: never null, and kept alive by the guard, which this borrows.
        unsafe { self.table.current.load(Ordering::Acquire, &self.guard).deref() }
    }
}
