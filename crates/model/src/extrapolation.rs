//! What a prediction takes for granted beyond its calibration.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::costs::{Costs, Range};
use crate::description::{Description, Link, Transport};
use crate::kernel::Kernel;

/// A way in which a description goes beyond what was calibrated.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "term")]
pub enum Extrapolation {
    /// More CPUs.
    Cpus {
        /// Of the description.
        described: usize,
        /// Of the calibration.
        calibrated: usize,
    },
    /// More queues.
    Queues {
        /// Of the description.
        described: usize,
        /// Of the calibration.
        calibrated: usize,
    },
    /// Lines between nodes, which the calibrated machine did not have.
    Nodes {
        /// The ratio used.
        nodes: usize,
    },
    /// Threads of one core.
    Siblings {
        /// Threads per core.
        threads: usize,
    },
    /// Another kernel: its steps are known from its source, its costs from the calibrated one.
    Kernel {
        /// Of the description.
        described: String,
        /// Of the calibration.
        calibrated: String,
    },
    /// A card's driver and interrupts, where a virtual link was calibrated.
    Card,
    /// Another speed.
    Speed,
    /// TCP, known from round trips over loopback.
    Tcp,
}

impl Extrapolation {
    /// A prediction with it is refused unless it is asked for. Every card is beyond what a lab calibrates: that widens
    /// the band, and is said.
    #[must_use]
    pub const fn must_be_asked_for(&self) -> bool {
        !matches!(self, Self::Card)
    }
}

impl fmt::Display for Extrapolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { described, calibrated } => {
                write!(f, "{described} CPUs, calibrated with {calibrated}")
            }
            Self::Queues { described, calibrated } => {
                write!(f, "{described} queues, calibrated with {calibrated}")
            }
            Self::Nodes { nodes } => write!(f, "lines between {nodes} nodes, by a published ratio"),
            Self::Siblings { threads } => write!(f, "{threads} threads per core, by a published ratio"),
            Self::Kernel { described, calibrated } => {
                write!(f, "kernel {described}, with costs of {calibrated}")
            }
            Self::Card => write!(f, "a card's driver and interrupts, calibrated on a veth pair"),
            Self::Speed => write!(f, "another speed of cores or interconnect, as a factor of all costs"),
            Self::Tcp => write!(f, "TCP, by round trips over loopback"),
        }
    }
}

/// Everything in which a description goes beyond what costs were calibrated on.
#[must_use]
pub fn beyond(description: &Description, costs: &Costs) -> Vec<Extrapolation> {
    extrapolated(description, &costs.range)
}

/// The same of a range.
pub(crate) fn extrapolated(description: &Description, range: &Range) -> Vec<Extrapolation> {
    let mut beyond = Vec::new();
    let cpus = description.cpus();
    if cpus > range.cpus {
        beyond.push(Extrapolation::Cpus { described: cpus, calibrated: range.cpus });
    }
    if description.queues > range.queues {
        beyond.push(Extrapolation::Queues { described: description.queues, calibrated: range.queues });
    }
    if description.nodes > range.nodes {
        beyond.push(Extrapolation::Nodes { nodes: description.nodes });
    }
    if description.threads_per_core > range.threads_per_core {
        beyond.push(Extrapolation::Siblings { threads: description.threads_per_core });
    }
    let calibrated = range.kernel.parse::<Kernel>().ok();
    if calibrated.is_none_or(|kernel| kernel != description.kernel) {
        let described = description.kernel.to_string();
        beyond.push(Extrapolation::Kernel { described, calibrated: range.kernel.clone() });
    }
    if description.link == Link::Card && range.virtual_link {
        beyond.push(Extrapolation::Card);
    }
    if (description.speed, description.interconnect) != (1.0, 1.0) {
        beyond.push(Extrapolation::Speed);
    }
    if description.transport == Transport::Tcp {
        beyond.push(Extrapolation::Tcp);
    }
    beyond
}
