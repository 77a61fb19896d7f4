//! Where a socket's reader is, for flows that follow it.

use std::fmt;
use std::sync::Arc;

use udpath_steer::rfs::SockFlowTable;

/// Which worker is nearest to the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderLocation {
    /// This one, wherever the reader runs.
    Worker(u16),
    /// By the CPU on which the reader is when it reads, found out once per burst. CPUs beyond the list have none: nothing
    /// is written down there, and the flow stays where it is.
    ByCpu(Box<[u16]>),
}

/// How a socket says where its flows are read (`sock_rps_record_flow` of the kernel).
#[derive(Clone)]
pub struct FlowRecorder {
    /// The table that the workers' [steering](crate::steering::Steering::following) reads.
    pub wanted: Arc<SockFlowTable>,
    /// Where the reader is.
    pub location: ReaderLocation,
}

impl FlowRecorder {
    /// The worker nearest to the calling thread.
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
