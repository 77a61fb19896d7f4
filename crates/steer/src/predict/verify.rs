//! Predictions against what packets really did.
//!
//! ```text
//! way of real packets: hash, queue, CPU ─┐
//! path foretold for their flow ──────────┴▸ Verification: right, wrong, not foretold, not told
//! ```
//! A step counts only where both sides say something: a prediction that says "not known" is not wrong, and a driver that
//! does not tell its queue proves nothing.

use std::collections::HashSet;

use serde::Serialize;

use super::{Amount, Path, Predictor, Spread, Step, Why};
use crate::flow::Flow;

/// Which way some packets of one flow took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// The flow.
    pub flow: Flow,
    /// How many packets.
    pub packets: u64,
    /// Their hash, if they had one.
    pub hash: Option<u32>,
    /// The receive queue, if the driver records it.
    pub queue: Option<u32>,
    /// The CPU that took them up the stack, after RPS.
    pub cpu: u32,
}

/// What packets really did, beside what was foretold.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verification {
    /// Packets compared.
    pub packets: u64,
    /// Their flows.
    pub flows: u64,
    /// The hash, where the driver passes on the card's.
    pub hash: Judged,
    /// The receive queue.
    pub queue: Judged,
    /// The CPU, after RPS.
    pub cpu: Judged,
    /// The queues the packets came by.
    pub came_by: Spread,
    /// The CPUs that took them.
    pub taken_by: Spread,
    #[serde(skip)]
    seen: HashSet<Flow>,
    #[serde(skip)]
    by_queue: HashSet<(Flow, Option<u32>)>,
    #[serde(skip)]
    by_cpu: HashSet<(Flow, u32)>,
}

/// How one step's predictions did, in packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// As foretold.
    pub right: u64,
    /// Otherwise.
    pub wrong: u64,
    /// Nothing was foretold, and why for the last of them.
    pub not_foretold: u64,
    /// See there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Foretold, but the machine did not tell what happened.
    pub not_told: u64,
    /// Of the wrong ones the flow with the most packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<Differs>,
}

/// A prediction that did not come true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Differs {
    /// The flow.
    pub flow: Flow,
    /// What was foretold.
    pub foretold: u32,
    /// What came.
    pub came: u32,
    /// Packets of it.
    pub packets: u64,
}

impl Verification {
    /// Compares packets with the way that `predictor` foretells for them.
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
        self.hash.judge(seen, observed.hash, observed);
        self.queue.judge(path.queue, observed.queue, observed);
        self.cpu.judge(path.rps, Some(observed.cpu), observed);
        let amount = |new: bool| Amount { flows: new.into(), packets: observed.packets };
        let came = Step { value: observed.queue, why: Why::NotRecorded };
        self.came_by.count(came, amount(self.by_queue.insert((observed.flow, observed.queue))));
        let taken = Step::known(observed.cpu, Why::IrqCpu);
        self.taken_by.count(taken, amount(self.by_cpu.insert((observed.flow, observed.cpu))));
    }

    /// The steps with their names, in the order of the way.
    #[must_use]
    pub const fn steps(&self) -> [(&'static str, &Judged); 3] {
        [("hash", &self.hash), ("queue", &self.queue), ("CPU", &self.cpu)]
    }

    /// The first step that was wrong for some packets.
    #[must_use]
    pub fn wrong(&self) -> Option<(&'static str, &Judged)> {
        self.steps().into_iter().find(|(_, judged)| judged.wrong > 0)
    }

    /// Was any step of any packet compared?
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.steps().iter().any(|(_, judged)| judged.compared() > 0)
    }
}

impl Judged {
    /// Packets of which both sides said something.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.right + self.wrong
    }

    fn judge(&mut self, foretold: Step, came: Option<u32>, observed: &Observed) {
        let packets = observed.packets;
        match (foretold.value, came) {
            (None, _) => {
                self.not_foretold += packets;
                self.why = Some(foretold.why);
            }
            (Some(_), None) => self.not_told += packets,
            (Some(foretold), Some(came)) if foretold == came => self.right += packets,
            (Some(foretold), Some(came)) => {
                self.wrong += packets;
                if self.differs.is_none_or(|known| known.packets < packets) {
                    self.differs = Some(Differs { flow: observed.flow, foretold, came, packets });
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
    fn what_came_as_foretold_is_right_and_the_rest_is_named() {
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
        assert_eq!((step, differs.foretold, differs.came, differs.packets), ("queue", 3, 6, 2));
        assert_eq!(all.came_by.places()[0].0, 3);
        assert_eq!(all.taken_by.places(), [(5, Amount { flows: 1, packets: 100 })]);
    }

    #[test]
    fn what_one_side_does_not_say_is_not_judged() {
        let mut all = Verification::default();
        all.add(&predictor(KNOWN), &Observed { hash: None, ..observed(2, None, 5) });
        assert_eq!((all.hash.not_told, all.queue.not_told, all.cpu.right), (2, 2, 2));
        let nothing = Predictor::new(&Tables::default()).unwrap();
        let mut all = Verification::default();
        all.add(&nothing, &observed(2, Some(1), 0));
        assert!(!all.is_compared());
        assert_eq!((all.queue.not_foretold, all.queue.why), (2, Some(Why::NoTable)));
        // Whether the driver passes its hash on is not known, so a hash of another origin would not be wrong.
        let mut all = Verification::default();
        all.add(&predictor(r#""key": "microsoft", "udp4": "sdfn""#), &observed(2, Some(1), 0));
        assert_eq!((all.hash.not_foretold, all.hash.why), (2, Some(Why::IfPassedOn)));
    }
}
