//! Where a socket's reader runs, for flows that follow it.

use std::fmt;
use std::sync::Arc;

use udpath_steer::rfs::SockFlowTable;

/// Which worker is closest to the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderLocation {
    /// This one, wherever the reader runs.
    Worker(u16),
    /// By the CPU that the reader runs on when it reads, checked once per burst. CPUs beyond the list have no worker:
    /// nothing is recorded there, and the flow stays where it is.
    ByCpu(Box<[u16]>),
}

/// Records where a socket's flows are read (the kernel's `sock_rps_record_flow`).
#[derive(Clone)]
pub struct FlowRecorder {
    /// The table that the workers' [steering](crate::steering::Steering::following) reads.
    pub wanted: Arc<SockFlowTable>,
    /// Where the reader runs.
    pub location: ReaderLocation,
}

impl FlowRecorder {
    /// The worker closest to the calling thread.
    #[inline]
    pub(super) fn worker(&self) -> Option<u16> {
        match &self.location {
            ReaderLocation::Worker(worker) => Some(*worker),
            ReaderLocation::ByCpu(workers) => workers.get(rustix::thread::sched_getcpu()).copied(),
        }
    }
}

impl fmt::Debug for FlowRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowRecorder").field("location", &self.location).finish_non_exhaustive()
    }
}
