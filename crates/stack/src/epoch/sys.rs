//! The pointer that readers follow, and the memory behind it after it was replaced.
#![allow(unsafe_code, reason = "the value behind the pointer is freed by epochs, not by ownership")]

use std::marker::PhantomData;

use super::{Domain, Guard};
use crate::primitive::{AtomicPtr, Ordering};

/// A value that readers of one [`Domain`] access through a [`Guard`], and that can be replaced at any time.
pub struct Table<T> {
    domain: Domain,
    /// Never null; from `Box::into_raw`. Taking the pointer out of here takes ownership of its value.
    current: AtomicPtr<T>,
    /// Owns and drops a `T`: a table may cross threads only if `T` may (`new` requires that as well).
    owned: PhantomData<Box<T>>,
}

impl<T: Send + Sync + 'static> Table<T> {
    /// A table that readers of `domain` can load.
    pub fn new(domain: &Domain, value: T) -> Self {
        Self {
            domain: domain.clone(),
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            owned: PhantomData,
        }
    }

    /// The current value. Two loads under one guard may return two different values, each consistent.
    ///
    /// # Panics
    /// If the guard is from a reader of another domain: nothing would keep the value alive.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard<'_>) -> &'g T {
        assert!(guard.is_of(&self.domain), "the guard belongs to another domain than the table");
        // Acquire: the value was written before the pointer to it.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: `current` was alive when it was loaded, because it was in the table. It is freed either when the
        // table is dropped, which the borrow of `self` excludes, or after it was replaced, in which case `Retired`
        // keeps it until this guard's reader announces a later epoch; it cannot while the guard borrows it. There are
        // no writers, and `T: Sync`. The module header covers what the writer may not have seen yet.
        unsafe { &*current }
    }

    /// Replaces the current value, which is retired in `epoch`. The caller holds the writers' lock.
    pub(super) fn replace(&self, value: Box<T>, epoch: u64) -> Retired {
        // Release: the value is written before the pointer to it. Acquire: the old value's writes happen before its
        // drop.
        let old = self.current.swap(Box::into_raw(value), Ordering::AcqRel);
        Retired { epoch, value: old.cast(), free: free::<T> }
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: the pointer is from `Box::into_raw`; references to its value borrow this table, so none exist.
        drop(unsafe { Box::from_raw(current) });
    }
}

/// A replaced value. **Dropping this frees it**, so it is kept until no reader can be using it.
pub(super) struct Retired {
    epoch: u64,
    /// From `Box::into_raw`, of the type that `free` expects. A raw pointer, because a `Box` would assert that there
    /// are no readers.
    value: *mut (),
    /// [`free`] of that type: safe to call once, with `value`.
    free: unsafe fn(*mut ()),
}

// SAFETY: it owns a `T: Send`, see `Table::replace`, and only drops it.
unsafe impl Send for Retired {}

impl Retired {
    /// The epoch in which it was replaced: readers that announced this one or an earlier one may still use it.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: `value` is of the type that `free` expects and owned by this; the parent module drops it only when
        // every reader is idle, has announced a later epoch, or is gone.
        unsafe { (self.free)(self.value) }
    }
}

/// Frees a value of type `T`.
///
/// # Safety
/// `value` is from `Box::<T>::into_raw` and not used afterwards.
unsafe fn free<T>(value: *mut ()) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}
