//! Memory monitored by the model.
#![allow(unsafe_code, reason = "reads and writes that loom is to see collide")]

use loom::cell::UnsafeCell;

/// A number that may be read and written from any thread: loom fails the model if two accesses, at least one of them a
/// write, are not ordered.
pub(crate) struct Memory(UnsafeCell<u32>);

// SAFETY: shared on purpose; loom checks each access and stops the model at a race.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn read(&self) -> u32 {
        // SAFETY: loom has checked that no write collides with this read.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn write(&self, new: u32) {
        // SAFETY: loom has checked that no access collides with this write.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}
