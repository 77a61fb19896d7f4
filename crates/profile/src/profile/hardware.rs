//! Hardware counters by class: what the processor did during the sampled time.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named::Named;
use crate::classes::Class;
use crate::context::Context;
use crate::counts::Counted;
use crate::perf::{Absent, Counter, Counts};

/// Counts of hardware counters, idle left out. [`crate::counts`] explains how accurate the parts of the classes are.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Hardware {
    /// The part of the time that they ran, 0 to 1. Below 1, they shared the processor's counters with others, and the
    /// counts are extrapolated.
    pub running: f64,
    /// The total: all classes, and the counts while samples were lost.
    pub all: HardwareCounts,
    /// By class, most cycles first.
    pub classes: Vec<ClassCounts>,
    /// Counters that this machine does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
}

/// A class's part.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ClassCounts {
    /// The class.
    pub of: Class,
    /// Its counts.
    pub counts: HardwareCounts,
}

/// A value for each counter that the machine has.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HardwareCounts(pub BTreeMap<Counter, u64>);

impl HardwareCounts {
    fn new(counters: &[Counter], counts: Counts) -> Self {
        Self(counters.iter().map(|counter| (*counter, counts.of(*counter))).collect())
    }

    /// The value of one counter; `None` if the machine does not have it.
    #[must_use]
    pub fn of(&self, counter: Counter) -> Option<u64> {
        self.0.get(&counter).copied()
    }

    /// Instructions per cycle.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        self.ratio(Counter::Instructions, Counter::Cycles)
    }

    /// The part of the loads from memory that came from another node, 0 to 1.
    #[must_use]
    pub fn remote(&self) -> Option<f64> {
        // Two counters of one group, read one after the other: the smaller one may be ahead by a few.
        self.ratio(Counter::RemoteLoads, Counter::LoadMisses).map(|part| part.min(1.0))
    }

    fn ratio(&self, of: Counter, by: Counter) -> Option<f64> {
        let (of, by) = (self.of(of)?, self.of(by)?);
        (by > 0).then(|| of as f64 / by as f64)
    }
}

impl Hardware {
    /// By the classes of the places where they were counted.
    pub(super) fn new(counted: &Counted, named: &Named<'_>) -> Self {
        let (mut all, mut classes) = (counted.unplaced(), BTreeMap::<Class, Counts>::new());
        for (context, chain, counts) in counted.places().filter(|(context, ..)| *context != Context::Idle) {
            all.add(counts);
            classes.entry(named.class(context, chain)).or_default().add(counts);
        }
        let counters = counted.counters();
        let of = |counts| HardwareCounts::new(&counters, counts);
        let mut classes: Vec<ClassCounts> = classes
            .into_iter()
            .map(|(class, counts)| ClassCounts { of: class, counts: of(counts) })
            .collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.counts.of(Counter::Cycles)));
        Self { running: counted.running(), all: of(all), classes, absent: counted.absent().to_vec() }
    }

    /// Caveats of the counts.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.absent.is_empty() {
            let absent: Vec<String> =
                self.absent.iter().map(|absent| format!("{} ({})", absent.counter, absent.why)).collect();
            notes.push(format!("missing hardware counters: {}", absent.join(", ")));
        }
        if self.running < SHARED {
            notes.push(format!(
                "the hardware counters ran {:.0} % of the time and shared the processor's with others, such as perf: counts \
                 are extrapolated, and samples are fewer",
                100.0 * self.running
            ));
        }
        notes
    }
}

/// Below this part of the time, counts are marked as extrapolated. Higher: the start of a group's first interval is
/// enough to mark them; lower: figures that are off by some per cent are shown as exact.
const SHARED: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::Rules;
    use crate::counts::tests::{Said, counted, record};
    use crate::perf::{Clock, Layout, Record, records_as};
    use crate::recorder::Recording;
    use crate::samples::Samples;
    use crate::symbols::kernel::Kernel;

    const NAMES: &str = "ffff800000000000 T udp_rcv\nffff800000001000 T udp_sendmsg\n";
    const RECEIVE: u64 = 0x7fff_8000_0000_0010;
    const SEND: u64 = 0x7fff_8000_0000_1010;

    #[test]
    fn counts_go_to_the_class_of_the_chain_and_idle_is_left_out() {
        let (mut samples, mut counted) = (Samples::new(Kernel::parse(NAMES), 0, 1), counted());
        let said = |pid, work, values| Said { cpu: 1, pid, work, enabled: 1, running: 1, values };
        let ring = [
            said(8, RECEIVE, [1000, 500]),
            said(8, SEND, [4000, 3500]),
            said(0, 0, [4100, 3600]),
            said(9, SEND, [5100, 5600]),
        ];
        for (at, said) in (1..).zip(ring) {
            let said = Said { enabled: at, running: at, ..said };
            let malformed = records_as(Layout::Counted, &record(&said), |record| {
                let Record::Sample(sample) = record else { panic!("{record:?}") };
                counted.add(&samples.add(&sample), sample.reading.unwrap());
            });
            assert_eq!(malformed, 0);
        }
        let recording = Recording::new(samples, Clock::Cycles, 1000);
        let hardware = Hardware::new(&counted, &Named::new(&recording, Rules::built_in()));
        let of = |class: &ClassCounts| {
            let counts = &class.counts;
            (class.of, counts.of(Counter::Cycles).unwrap(), counts.of(Counter::Instructions).unwrap())
        };
        let classes: Vec<_> = hardware.classes.iter().map(of).collect();
        assert_eq!(classes, [(Class::UdpSend, 4000, 5000), (Class::UdpReceive, 1000, 500)]);
        assert_eq!(
            (hardware.all.ipc(), hardware.all.of(Counter::CacheMisses)),
            (Some(5500.0 / 5000.0), None)
        );
        assert_eq!((hardware.all.remote(), hardware.notes()), (None, Vec::new()));
    }

    #[test]
    fn missing_and_extrapolated_counters_are_noted() {
        let counts =
            |remote| HardwareCounts([(Counter::LoadMisses, 10), (Counter::RemoteLoads, remote)].into());
        let absent = Absent { counter: Counter::CacheMisses, why: "this processor does not count it".into() };
        let hardware = Hardware { running: 0.5, all: counts(4), classes: Vec::new(), absent: vec![absent] };
        assert_eq!((hardware.all.remote(), counts(12).remote()), (Some(0.4), Some(1.0)));
        let notes = hardware.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("cache-misses (this processor does not count it)"), "{notes:?}");
        assert!(notes[1].contains("ran 50 % of the time"), "{notes:?}");
    }
}
