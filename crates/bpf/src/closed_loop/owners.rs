//! Whose port is whose, of several loops.

use std::sync::atomic::Ordering::Release;

use crate::shared_array::SharedArray;

/// Which loop has which port, as one of the loops writes it.
#[derive(Debug)]
pub(super) struct Owners {
    owners: SharedArray,
    /// The loop, counted from 0.
    index: u64,
}

impl Owners {
    pub(super) const fn new(owners: SharedArray, index: u64) -> Self {
        Self { owners, index }
    }

    /// Replies to `port` belong to this loop.
    pub(super) fn claim(&self, port: u16) {
        self.owners.element(usize::from(port))[0].store(self.index + 1, Release);
    }
}
