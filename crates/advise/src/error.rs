//! Why a climb could not be made.

/// A configuration that makes no sense. Each is a whole sentence.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No rung to climb.
    #[error("the ladder has no rung: at least a first one is needed")]
    NoRung,
    /// Workers out of range.
    #[error("{0} workers are not possible: use 1 to 1024")]
    Workers(usize),
    /// A trial too short to measure or too long to wait for.
    #[error("trials of {0} s are not possible: use 0.05 to 3600")]
    Trial(f64),
    /// More requests in flight than anybody can mean.
    #[error(
        "{flows} flows with {inflight} requests in flight each are too many: use at most 1048576 together"
    )]
    InFlight {
        /// Flows asked for.
        flows: u32,
        /// In flight per flow.
        inflight: u32,
    },
    /// The load's own objection.
    #[error(transparent)]
    Plan(#[from] udpath_load::plan::PlanError),
    /// The lab's own objection.
    #[error(transparent)]
    Lab(#[from] udpath_lab::SpecError),
}

/// Why a climb ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The lab could not be made or used.
    #[error(transparent)]
    Lab(#[from] udpath_lab::Error),
    /// The load could not be run.
    #[error("cannot measure {competitor}: {cause}")]
    Load {
        /// The rung that was measured.
        competitor: String,
        /// The load's reason.
        cause: udpath_load::Error,
    },
    /// The server ended, or never said that it was ready.
    #[error("the server of {competitor} did not come up: {reason}")]
    NotReady {
        /// The rung.
        competitor: String,
        /// What it said, or that it said nothing.
        reason: String,
    },
    /// A setting of the rung cannot be made here.
    #[error("{competitor} is not possible here: {cause}")]
    NotPossible {
        /// The rung.
        competitor: String,
        /// What was refused.
        cause: Box<udpath_lab::Error>,
    },
    /// Somebody asked to stop.
    #[error("interrupted; everything the climb had made is removed")]
    Interrupted,
}

impl Error {
    /// Is it the rung of this name that cannot be measured, rather than all of them?
    pub(crate) fn blames(&self, rung: &str) -> bool {
        match self {
            Self::NotReady { competitor, .. } | Self::NotPossible { competitor, .. } => competitor == rung,
            _ => false,
        }
    }
}
