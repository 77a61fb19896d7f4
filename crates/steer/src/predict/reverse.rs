//! The reverse: source ports whose datagrams reach a wanted place.
//!
//! The hash could be solved as a system of linear equations, but there are only 65,536 ports: all are tried, in a few
//! milliseconds.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use super::{Path, Predictor, Why};
use crate::flow::Flow;

/// Where datagrams should go. At least one field is set; all that are set must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Wanted {
    /// The receive queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// The CPU that processes them, after RPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The socket, in order of binding from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
}

/// The source ports found.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SourcePorts {
    /// Ascending, and spread evenly over all that match.
    pub ports: Vec<u16>,
    /// Number of ports that match.
    pub matching: usize,
    /// Number of ports tried.
    pub tried: usize,
}

/// Why no ports can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReverseError {
    /// A wanted step is not known for any port.
    #[error("the {step} of a flow cannot be predicted: {why}")]
    Unknown {
        /// Its name.
        step: &'static str,
        /// What is missing.
        why: Why,
    },
    /// A queue that does not exist.
    #[error("no queue {queue}; there are {queues}, 0 to {}", queues.saturating_sub(1))]
    NoSuchQueue {
        /// The wanted queue.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
}

impl Predictor {
    /// Source ports in `ports` with which the flow reaches what is wanted: at most `count` of them. The flow's own
    /// source port is ignored.
    ///
    /// # Errors
    /// What is wanted cannot be predicted for any of the ports, or does not exist.
    pub fn source_ports(
        &self,
        flow: &Flow,
        wanted: &Wanted,
        ports: RangeInclusive<u16>,
        count: usize,
    ) -> Result<SourcePorts, ReverseError> {
        if let (Some(queue), Some(queues)) = (wanted.queue, self.queues())
            && queue >= queues
        {
            return Err(ReverseError::NoSuchQueue { queue, queues });
        }
        let (mut matching, mut tried) = (Vec::new(), 0);
        // The first wanted step that was unknown for a port.
        let mut unknown = None;
        let mut predicted = false;
        for port in ports {
            tried += 1;
            let path = self.decide(&flow.with_source_port(port));
            match wanted.missing(&path) {
                Some(missing) => unknown = unknown.or(Some(missing)),
                None => {
                    predicted = true;
                    if wanted.holds(&path) {
                        matching.push(port);
                    }
                }
            }
        }
        match unknown {
            Some((step, why)) if !predicted => Err(ReverseError::Unknown { step, why }),
            _ => Ok(SourcePorts { ports: spread(&matching, count), matching: matching.len(), tried }),
        }
    }
}

impl Wanted {
    fn steps(&self, path: &Path) -> [(&'static str, Option<u32>, super::Step); 3] {
        [("queue", self.queue, path.queue), ("CPU", self.cpu, path.rps), ("socket", self.socket, path.socket)]
    }

    /// The first wanted step that is not known.
    fn missing(&self, path: &Path) -> Option<(&'static str, Why)> {
        let steps = self.steps(path);
        let missing = steps.iter().find(|(_, wanted, step)| wanted.is_some() && step.value.is_none());
        missing.map(|(name, _, step)| (*name, step.why))
    }

    fn holds(&self, path: &Path) -> bool {
        self.steps(path).iter().all(|(_, wanted, step)| wanted.is_none() || *wanted == step.value)
    }
}

/// At most `count` of them, evenly spaced from the first on.
fn spread(ports: &[u16], count: usize) -> Vec<u16> {
    let count = count.min(ports.len());
    (0..count).map(|turn| ports[turn * ports.len() / count]).collect()
}
