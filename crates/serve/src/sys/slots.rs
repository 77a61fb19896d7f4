//! A fixed array that the kernel and Rust reach through the same raw pointers.
//!
//! The headers of a burst hold pointers into other arrays (names, controls, io vectors). In a `Vec`, each `&mut` to such an
//! array, or a move of the `Vec`, would end the validity of the pointers taken before. Here both sides go through pointers
//! that come from one allocation: a reference lasts for one access, or borrows the whole array, and never outlives a call to
//! the kernel.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// See the module.
pub(super) struct Slots<T: Copy> {
    base: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

impl<T: Copy> Slots<T> {
    /// An array of `len` values, at least one.
    pub(super) fn new(len: usize, mut value: impl FnMut(usize) -> T) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size other than 0: `len` is at least 1, and no `T` of this module's is empty.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base.cast::<T>()) else { handle_alloc_error(layout) };
        for i in 0..len {
            let value = value(i);
            // SAFETY: `i` is within the allocation just made for `len` values.
            unsafe { base.as_ptr().add(i).write(value) };
        }
        Self { base, len, owns: PhantomData }
    }

    /// The layout of `len` values. Panics if there are none, or too many: a defect of the caller, which checks the batch.
    fn layout(len: usize) -> Layout {
        assert!(len > 0 && size_of::<T>() > 0, "an array without contents");
        Layout::array::<T>(len).unwrap_or_else(|_| panic!("an array of {len} does not fit the address space"))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to value `i`, for the kernel and for headers. Valid until the array is dropped, and through it all values
    /// from `i` on can be reached.
    #[inline]
    pub(super) fn pointer(&self, i: usize) -> *mut T {
        assert!(i < self.len, "outside the array");
        // SAFETY: `i` is within the allocation, as just checked.
        unsafe { self.base.as_ptr().add(i) }
    }

    /// Value `i`.
    #[inline]
    pub(super) fn get(&self, i: usize) -> &T {
        // SAFETY: an initialised value of the allocation; the kernel writes only during calls that hold the owner mutably, so
        // not while this borrow lives.
        unsafe { &*self.pointer(i) }
    }

    /// Value `i`, to change.
    #[inline]
    pub(super) fn get_mut(&mut self, i: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.pointer(i) }
    }
}

impl<T: Copy> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; values that are `Copy` need no drop.
        unsafe { dealloc(self.base.as_ptr().cast(), Self::layout(self.len)) };
    }
}

#[cfg(test)]
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
        Slots::new(2, |_| 0_u8).pointer(2);
    }
}
