//! The pointer that readers follow, and the memory behind it after it was replaced.
#![allow(unsafe_code, reason = "what the pointer leads to is freed by epochs, not by ownership")]

use std::marker::PhantomData;

use super::{Domain, Guard};
use crate::primitive::{AtomicPtr, Ordering};

/// A value that readers of one [`Domain`] see through a [`Guard`], and that can be replaced at any time.
pub struct Table<T> {
    domain: Domain,
    /// Never null; made by `Box::into_raw`. Whoever takes a pointer out of here owns what it leads to.
    current: AtomicPtr<T>,
    /// Shares and drops a `T`: a table may cross threads only if `T` may (`new` asks for that as well).
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

    /// The value as it is now. Two loads under one guard may see two different values, each whole.
    ///
    /// # Panics
    /// If the guard is of a reader of another domain: nothing would keep the value alive.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard<'_>) -> &'g T {
        assert!(guard.is_of(&self.domain), "the guard is of another domain than the table");
        // Acquire: the value was written before the pointer to it.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: `current` was alive when it was loaded, for it was in the table. It is freed either by the table's own
        // drop, which the borrow of `self` excludes, or after it was replaced, in which case `Retired` keeps it until
        // this guard's reader announces a later epoch; it cannot while the guard borrows it. Nobody writes to it, and
        // `T: Sync`. The module's header has the argument about what the writer may not yet have seen.
        unsafe { &*current }
    }

    /// Puts `value` in place of the present one, which is retired in `epoch`. Caller holds the writers' lock.
    pub(super) fn replace(&self, value: Box<T>, epoch: u64) -> Retired {
        // Release: the value is written before the pointer to it. Acquire: the old value's writes, before its drop.
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
        // SAFETY: the pointer is from `Box::into_raw`; references to its value borrow this table, so there are none.
        drop(unsafe { Box::from_raw(current) });
    }
}

/// A value that was replaced; **dropping this frees it**, so it is kept until no reader can look at it.
pub(super) struct Retired {
    epoch: u64,
    /// From `Box::into_raw`, of the type `free` is for. A bare pointer, since a `Box` would claim that nobody reads it.
    value: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: it stands for a `T: Send`, see `Table::replace`, that is dropped by whoever drops this.
unsafe impl Send for Retired {}

impl Retired {
    /// The epoch in which it was replaced: readers that announced this one or an earlier one may look at it.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: `value` is of `free`'s type and owned by this; the parent module drops it only when every reader is
        // idle, has announced a later epoch, or is gone.
        unsafe { (self.free)(self.value) }
    }
}

/// # Safety
/// `value` is from `Box::<T>::into_raw` and not used afterwards.
unsafe fn free<T>(value: *mut ()) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}
