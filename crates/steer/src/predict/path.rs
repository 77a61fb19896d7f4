//! The path of a datagram, step by step.

use schemars::JsonSchema;
use serde::Serialize;

use super::Why;

/// One step: its value, if known, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Step {
    /// The value; `None` if it is not known.
    pub value: Option<u32>,
    /// The rule that determined it, or what is missing. In JSON a sentence.
    pub why: Why,
}

impl Step {
    pub(super) const fn known(value: u32, why: Why) -> Self {
        Self { value: Some(value), why }
    }

    pub(super) const fn unknown(why: Why) -> Self {
        Self { value: None, why }
    }
}

/// All steps of a flow's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Path {
    /// The hash that the network card computes.
    pub hash: Step,
    /// The receive queue.
    pub queue: Step,
    /// The queue's interrupt.
    pub irq: Step,
    /// The CPU that handles the interrupt.
    pub cpu: Step,
    /// The CPU that processes the datagram, after RPS.
    pub rps: Step,
    /// The socket of the reuseport group, in order of binding from 0.
    pub socket: Step,
}
