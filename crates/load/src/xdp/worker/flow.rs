//! One flow as its thread sees it: what is staged, and what is open.

use udpath_stack::wire::{self, UdpChecksum};

use crate::record::{Pending, Tally};
use crate::template::Template;
use crate::threads::Clock;

/// See the module.
pub(super) struct Flow {
    pub(super) number: u32,
    pub(super) lane: usize,
    pub(super) headers: wire::Template,
    pub(super) pending: Pending,
    /// Requests in the lane, or in live frames, that are not sent yet.
    pub(super) staged: u64,
}

impl Flow {
    /// Writes its next request into `frame`, which is as long as it.
    #[inline]
    pub(super) fn write(&mut self, template: &mut dyn Template, size: usize, frame: &mut [u8]) {
        if let Some(payload) = frame.get_mut(self.headers.payload_offset()..) {
            template.write(self.number, self.pending.next() + self.staged, payload);
        }
        let written = self.headers.emit(frame, size, UdpChecksum::Computed);
        debug_assert!(written.is_ok(), "{written:?}");
        self.staged += 1;
    }

    /// Notes that the first request staged was sent at `at`.
    #[inline]
    pub(super) fn enter(&mut self, tally: &mut Tally, clock: &Clock, intended: u64, at: u64) {
        if intended >= clock.window() {
            self.pending.begin_window();
            tally.sent(intended, at);
        }
        self.pending.insert(intended, at);
        self.staged -= 1;
    }
}
