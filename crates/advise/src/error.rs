//! Errors of a climb.

/// An invalid configuration. Each message is a whole sentence.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The ladder is empty.
    #[error("the ladder has no rungs; at least one is needed")]
    NoRung,
    /// Workers out of range.
    #[error("invalid number of workers {0}: expected 1 to 1024")]
    Workers(usize),
    /// Length of a trial out of range, seconds.
    #[error("invalid trial length {0} s: expected 0.05 to 3600 s")]
    Trial(f64),
    /// The sides of a duet have too few CPUs, or share some.
    #[error(
        "a duet needs {wanted} CPUs on each side, one for each worker and queue, and there are {has}: use fewer \
         --workers and --queues, or --duet never"
    )]
    Duet {
        /// CPUs of a side.
        has: usize,
        /// CPUs it needs.
        wanted: usize,
    },
    /// Too many requests in flight.
    #[error(
        "{flows} flows with {inflight} requests in flight each are too many; the limit is 1048576 requests in all"
    )]
    InFlight {
        /// Number of flows.
        flows: u32,
        /// Requests in flight per flow.
        inflight: u32,
    },
    /// The load's plan is invalid.
    #[error(transparent)]
    Plan(#[from] udpath_load::plan::PlanError),
    /// The lab's description is invalid.
    #[error(transparent)]
    Lab(#[from] udpath_lab::SpecError),
}

/// Why a climb ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The lab could not be made or used.
    #[error(transparent)]
    Lab(#[from] udpath_lab::Error),
    /// The load could not be run.
    #[error("cannot measure {rung}")]
    Load {
        /// The rung being measured.
        rung: String,
        /// The load's reason.
        #[source]
        cause: udpath_load::Error,
    },
    /// The server exited, or never reported that it was ready.
    #[error("the server of {rung} did not start: {reason}")]
    NotReady {
        /// The rung.
        rung: String,
        /// Its output, or what happened instead.
        reason: String,
    },
    /// All traffic of the rung came to one CPU of several: that is the rate of one, not of the rung.
    #[error(
        "{rung} was not measured: the flows drifted to CPU {cpu} of {cpus}; another program may keep the other CPUs busy"
    )]
    Drifted {
        /// The rung.
        rung: String,
        /// The CPU.
        cpu: u32,
        /// CPUs that the flows had started on.
        cpus: usize,
    },
    /// A setting of the rung cannot be changed here.
    #[error("{rung} is not possible here")]
    NotPossible {
        /// The rung.
        rung: String,
        /// The refused operation.
        #[source]
        cause: Box<udpath_lab::Error>,
    },
    /// A calibration's trial of a single operation failed.
    #[error("cannot time single operations on two CPUs")]
    Operation {
        /// The kernel's error, or what keeps the CPUs busy.
        #[source]
        cause: std::io::Error,
    },
    /// A calibration needs a profile, and there is none.
    #[error("cannot sample {rung}: {reason}")]
    NotSampled {
        /// The rung.
        rung: String,
        /// Why.
        reason: String,
    },
    /// A calibration measured no rung.
    #[error("no rung could be measured")]
    NothingSampled,
    /// Stopped by the caller.
    #[error("interrupted; the lab has been removed")]
    Interrupted,
}

impl Error {
    /// True if only the rung of this name cannot be measured, rather than all of them.
    pub(crate) fn blames(&self, name: &str) -> bool {
        match self {
            Self::NotReady { rung, .. } | Self::NotPossible { rung, .. } | Self::Drifted { rung, .. } => {
                rung == name
            }
            _ => false,
        }
    }
}
