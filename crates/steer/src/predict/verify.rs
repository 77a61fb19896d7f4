//! Predictions compared with what packets actually did.
//!
//! ```text
//! path of real packets: hash, queue, CPU ─┐
//! path predicted for their flow ──────────┴▸ Verification: right, wrong, not predicted, not observed
//! ```
//! A step counts only where both sides have a value: a prediction of "not known" is not wrong, and a driver that does
//! not record the queue proves nothing.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Amount, Path, Predictor, Spread, Step, Why};
use crate::flow::Flow;

/// The path that some packets of one flow took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// The flow.
    pub flow: Flow,
    /// Number of packets.
    pub packets: u64,
    /// Their hash, if they had one.
    pub hash: Option<u32>,
    /// The receive queue, if the driver records it.
    pub queue: Option<u32>,
    /// The CPU that processed them, after RPS.
    pub cpu: u32,
}

/// Observed packets compared with their predictions.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize)]
pub struct Verification {
    /// Packets compared.
    pub packets: u64,
    /// Flows of those packets.
    pub flows: u64,
    /// The hash, where the driver passes the card's hash on.
    pub hash: StepAccuracy,
    /// The receive queue.
    pub queue: StepAccuracy,
    /// The CPU, after RPS.
    pub cpu: StepAccuracy,
    /// Packets by the queue that received them.
    pub came_by: Spread,
    /// Packets by the CPU that processed them.
    pub taken_by: Spread,
    #[serde(skip)]
    seen: HashSet<Flow>,
    #[serde(skip)]
    by_queue: HashSet<(Flow, Option<u32>)>,
    #[serde(skip)]
    by_cpu: HashSet<(Flow, u32)>,
}

/// How accurate the predictions of one step were, in packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct StepAccuracy {
    /// Predicted correctly.
    pub right: u64,
    /// Predicted incorrectly.
    pub wrong: u64,
    /// No prediction; `why` has the reason for the last of them.
    pub not_predicted: u64,
    /// Why there was no prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Predicted, but not observable on this machine.
    pub not_observed: u64,
    /// The wrong prediction with the most packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<Mismatch>,
}

/// A wrong prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Mismatch {
    /// The flow.
    pub flow: Flow,
    /// The predicted value.
    pub predicted: u32,
    /// The observed value.
    pub observed: u32,
    /// Packets of the flow.
    pub packets: u64,
}

impl Verification {
    /// Compares packets with the path that `predictor` predicts for their flow.
    pub fn add(&mut self, predictor: &Predictor, observed: &Observed) {
        let path: Path = predictor.decide(&observed.flow);
        self.packets += observed.packets;
        if self.seen.insert(observed.flow) {
            self.flows += 1;
        }
        let seen = match predictor.seen(&observed.flow) {
            Step { why: why @ Why::IfPassedOn, .. } => Step::unknown(why),
            step => step,
        };
        self.hash.compare(seen, observed.hash, observed);
        self.queue.compare(path.queue, observed.queue, observed);
        self.cpu.compare(path.rps, Some(observed.cpu), observed);
        let amount = |new: bool| Amount { flows: new.into(), packets: observed.packets };
        let queue = Step { value: observed.queue, why: Why::NotRecorded };
        self.came_by.count(queue, amount(self.by_queue.insert((observed.flow, observed.queue))));
        let cpu = Step::known(observed.cpu, Why::IrqCpu);
        self.taken_by.count(cpu, amount(self.by_cpu.insert((observed.flow, observed.cpu))));
    }

    /// The steps with their names, in path order.
    #[must_use]
    pub const fn steps(&self) -> [(&'static str, &StepAccuracy); 3] {
        [("hash", &self.hash), ("queue", &self.queue), ("CPU", &self.cpu)]
    }

    /// The first step that was predicted wrongly for some packets.
    #[must_use]
    pub fn wrong(&self) -> Option<(&'static str, &StepAccuracy)> {
        self.steps().into_iter().find(|(_, accuracy)| accuracy.wrong > 0)
    }

    /// Whether any step of any packet was compared.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.steps().iter().any(|(_, accuracy)| accuracy.compared() > 0)
    }
}

impl StepAccuracy {
    /// Packets for which both a prediction and an observation exist.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.right + self.wrong
    }

    fn compare(&mut self, predicted: Step, value: Option<u32>, observed: &Observed) {
        let packets = observed.packets;
        match (predicted.value, value) {
            (None, _) => {
                self.not_predicted += packets;
                self.why = Some(predicted.why);
            }
            (Some(_), None) => self.not_observed += packets,
            (Some(predicted), Some(value)) if predicted == value => self.right += packets,
            (Some(predicted), Some(value)) => {
                self.wrong += packets;
                if self.differs.is_none_or(|known| known.packets < packets) {
                    self.differs =
                        Some(Mismatch { flow: observed.flow, predicted, observed: value, packets });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Tables;

    fn predictor(json: &str) -> Predictor {
        let tables: Tables =
            serde_json::from_str(&format!(r#"{{"schema": "udpath.tables/1", {json}}}"#)).unwrap();
        Predictor::new(&tables).unwrap()
    }

    fn observed(packets: u64, queue: Option<u32>, cpu: u32) -> Observed {
        // Its hash by Microsoft's key is 0x51ccc178: entry 0 of 8.
        let flow = Flow::udp("66.9.149.187:2794".parse().unwrap(), "161.142.100.80:1766".parse().unwrap());
        Observed { flow: flow.unwrap(), packets, hash: Some(0x51cc_c178), queue, cpu }
    }

    const KNOWN: &str = r#""key": "microsoft", "udp4": "sdfn", "passed_on": true, "queues": 8,
        "table": [3, 1, 2, 3, 4, 5, 6, 7], "receive": [{"queue": 3, "irq_cpus": "5"}]"#;

    #[test]
    fn correct_predictions_are_counted_and_wrong_ones_named() {
        let predictor = predictor(KNOWN);
        let mut all = Verification::default();
        all.add(&predictor, &observed(97, Some(3), 5));
        assert_eq!((all.wrong(), all.is_compared()), (None, true));
        all.add(&predictor, &observed(1, Some(4), 5));
        all.add(&predictor, &observed(2, Some(6), 5));
        assert_eq!((all.packets, all.flows), (100, 1));
        assert_eq!((all.hash.right, all.cpu.right), (100, 100));
        assert_eq!((all.queue.right, all.queue.wrong), (97, 3));
        let (step, judged) = all.wrong().unwrap();
        let differs = judged.differs.unwrap();
        assert_eq!((step, differs.predicted, differs.observed, differs.packets), ("queue", 3, 6, 2));
        assert_eq!(all.came_by.places()[0].0, 3);
        assert_eq!(all.taken_by.places(), [(5, Amount { flows: 1, packets: 100 })]);
    }

    #[test]
    fn steps_known_to_one_side_only_are_not_compared() {
        let mut all = Verification::default();
        all.add(&predictor(KNOWN), &Observed { hash: None, ..observed(2, None, 5) });
        assert_eq!((all.hash.not_observed, all.queue.not_observed, all.cpu.right), (2, 2, 2));
        let nothing = Predictor::new(&Tables::default()).unwrap();
        let mut all = Verification::default();
        all.add(&nothing, &observed(2, Some(1), 0));
        assert!(!all.is_compared());
        assert_eq!((all.queue.not_predicted, all.queue.why), (2, Some(Why::NoTable)));
        // Whether the driver passes its hash on is not known, so a hash of another origin would not be wrong.
        let mut all = Verification::default();
        all.add(&predictor(r#""key": "microsoft", "udp4": "sdfn""#), &observed(2, Some(1), 0));
        assert_eq!((all.hash.not_predicted, all.hash.why), (2, Some(Why::IfPassedOn)));
    }
}
