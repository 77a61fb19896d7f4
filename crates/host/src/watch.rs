//! One machine looked at again and again.

use crate::{Snapshot, Source};

/// The last two looks at a machine.
#[derive(Debug, Default)]
pub struct Watch {
    earlier: Option<Snapshot>,
    now: Option<Snapshot>,
}

impl Watch {
    /// Looks, and gives what it saw.
    pub fn look(&mut self, source: &dyn Source) -> &Snapshot {
        self.earlier = self.now.take();
        self.now.insert(Snapshot::read(source))
    }

    /// What the last look saw.
    #[must_use]
    pub const fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    /// What the look before saw.
    #[must_use]
    pub const fn earlier(&self) -> Option<&Snapshot> {
        self.earlier.as_ref()
    }
}
