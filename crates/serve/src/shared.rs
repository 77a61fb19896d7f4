//! State that all workers of a server share and only read.

use std::sync::atomic::AtomicBool;

use crate::gate::Gate;
use crate::probe::ProbeState;
use crate::service::WorkerId;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) probe: ProbeState,
    /// Passed by each thread after the probe, before it serves.
    pub(crate) gate: Gate,
    /// Set when the server stops, after its sockets were shut.
    pub(crate) stopping: AtomicBool,
    pub(crate) broadcast: BroadcastPolicy,
}

/// Which workers answer a request to a broadcast or multicast address. The kernel gives each socket of the port a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BroadcastPolicy {
    /// No worker.
    Ignore,
    /// The worker that received it: all read one socket.
    AnyWorker,
    /// The first worker: each has its own socket.
    FirstWorker,
}

impl BroadcastPolicy {
    /// Whether `worker` answers.
    pub(crate) fn answers(self, worker: WorkerId) -> bool {
        match self {
            Self::Ignore => false,
            Self::AnyWorker => true,
            Self::FirstWorker => worker.index() == 0,
        }
    }
}
