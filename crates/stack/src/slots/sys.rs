//! The array.
#![allow(unsafe_code, reason = "the kernel reaches the values through raw pointers")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An array of `T`s at one place; see the module `slots`.
#[derive(Debug)]
pub struct Slots<T: Copy> {
    base: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: the allocation is private to its owner and reached only through it and the pointers that its owner keeps.
unsafe impl<T: Copy + Send> Send for Slots<T> {}

impl Slots<u8> {
    /// Bytes, all 0, whose pages use no memory until they are touched.
    ///
    /// # Panics
    /// As [`Slots::new`].
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size other than 0, which `layout` checks.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, len, owns: PhantomData }
    }
}

impl<T: Copy> Slots<T> {
    /// An array of `len` values, at least one.
    ///
    /// # Panics
    /// If `len` is 0, or so many values do not fit the address space.
    pub fn new(len: usize, mut value: impl FnMut(usize) -> T) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size other than 0, which `layout` checks.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base.cast::<T>()) else { handle_alloc_error(layout) };
        for i in 0..len {
            let value = value(i);
            // SAFETY: `i` is within the allocation just made for `len` values.
            unsafe { base.as_ptr().add(i).write(value) };
        }
        Self { base, len, owns: PhantomData }
    }

    /// The layout of `len` values. Panics if there are none, or too many: a defect of the caller, which checks the
    /// batch.
    fn layout(len: usize) -> Layout {
        assert!(len > 0 && size_of::<T>() > 0, "an array without contents");
        Layout::array::<T>(len).unwrap_or_else(|_| panic!("an array of {len} does not fit the address space"))
    }

    /// Number of values; never 0.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A pointer to value `i`, for the kernel and for headers. Valid until the array is dropped, and through it all
    /// values can be reached.
    ///
    /// # Panics
    /// If there is no value `i`.
    #[must_use]
    #[inline]
    pub fn pointer(&self, i: usize) -> *mut T {
        assert!(i < self.len, "outside the array");
        // SAFETY: `i` is within the allocation, as just checked.
        unsafe { self.base.as_ptr().add(i) }
    }

    /// Value `i`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    #[inline]
    pub fn get(&self, i: usize) -> &T {
        // SAFETY: an initialised value of the allocation; a pointer is used to write only while the owner is held
        // mutably, so not while this borrow lives.
        unsafe { &*self.pointer(i) }
    }

    /// Value `i`, to change.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.pointer(i) }
    }

    /// `len` values from `i` on.
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    #[inline]
    pub fn slice(&self, i: usize, len: usize) -> &[T] {
        // SAFETY: within the allocation, as just checked; otherwise as in `get`.
        unsafe { std::slice::from_raw_parts(self.start(i, len), len) }
    }

    /// `len` values from `i` on, to change.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline]
    pub fn slice_mut(&mut self, i: usize, len: usize) -> &mut [T] {
        // SAFETY: as in `slice`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start(i, len), len) }
    }

    /// A pointer to value `i`, or behind the last value, from which on there are `len`.
    #[inline]
    fn start(&self, i: usize, len: usize) -> *mut T {
        assert!(i.checked_add(len).is_some_and(|end| end <= self.len), "outside the array");
        // SAFETY: `i` is within the allocation or one behind it, as just checked.
        unsafe { self.base.as_ptr().add(i) }
    }
}

impl<T: Copy> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; values that are `Copy` need no drop.
        unsafe { dealloc(self.base.as_ptr().cast(), Self::layout(self.len)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_stays_valid_through_references_and_moves() {
        let mut numbers = Slots::new(3, |i| i as u64);
        let kept = numbers.pointer(1);
        *numbers.get_mut(1) += 10;
        let mut moved = numbers;
        // SAFETY: a pointer into an array that is alive; no reference to it is.
        unsafe { *kept += 100 };
        assert_eq!((*moved.get(1), moved.len()), (111, 3));
        moved.get_mut(2);
        // SAFETY: as above.
        assert_eq!(unsafe { kept.add(1).read() }, 2);
    }

    #[test]
    #[should_panic(expected = "outside the array")]
    fn pointers_stay_inside() {
        let _ = Slots::new(2, |_| 0_u8).pointer(2);
    }
}
