//! One machine's share of a plan that several machines carry out.
//!
//! ```text
//!   plan:      flow 0   1   2   3   4   5   6   7 ...       transaction 0   1   2   3   4   5 ...
//!   segment 1/2:    0       2       4       6                           0       2       4
//!   segment 2/2:        1       3       5       7                           1       3       5
//! ```
//! Segment `i` of `n` has every `n`-th flow and transaction, beginning with the `i`-th: flow numbers, and with them
//! source ports and the contents of requests, are those of the whole plan, so no two segments share one. Within a
//! segment, flows are counted from 0: its *own* flows.
//!
//! `n` segments of `t` threads together are the plan of one machine with `n` x `t` threads: thread `j` of segment `i`
//! has the part of thread `j n + i - 1`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most segments of a plan. Each has at least one flow.
pub const MAX_SEGMENTS: u32 = 65_536;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Segment {
    index: u32,
    of: u32,
}

/// As in JSON, before it is checked.
#[derive(JsonSchema, Deserialize)]
struct Numbers {
    index: u32,
    of: u32,
}

impl TryFrom<Numbers> for Segment {
    type Error = String;

    fn try_from(Numbers { index, of }: Numbers) -> Result<Self, String> {
        Self::new(index, of).ok_or_else(|| invalid(&format!("{index}/{of}")))
    }
}

impl Segment {
    /// The whole plan, on one machine.
    pub const WHOLE: Self = Self { index: 1, of: 1 };

    /// Segment `index`, from 1, of `of`; none if there is no such segment.
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        ((1..=MAX_SEGMENTS).contains(&of) && (1..=of).contains(&index)).then_some(Self { index, of })
    }

    /// Its number, from 1.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How many segments the plan has.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }

    /// Whether it is the whole plan.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.of == 1
    }

    /// How many of `all` flows are its own.
    #[must_use]
    pub const fn flows(self, all: u32) -> u32 {
        all / self.of + (self.index <= all % self.of) as u32
    }

    /// The number in the plan of its own flow `own`.
    #[must_use]
    pub const fn flow(self, own: u32) -> u32 {
        own * self.of + self.index - 1
    }

    /// The part of the plan that its thread `thread` carries out.
    #[must_use]
    pub const fn part(self, thread: usize) -> usize {
        thread * self.of as usize + self.index as usize - 1
    }
}

impl Default for Segment {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// `I/N` counts from 1, `index:I/N` from 0, as batch systems number their tasks (`$JOB_COMPLETION_INDEX`,
/// `$SLURM_PROCID`).
impl FromStr for Segment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
        let (first, numbers) = text.strip_prefix("index:").map_or((1, text), |numbers| (0, numbers));
        let parsed = numbers.split_once('/').and_then(|(index, of)| {
            let index = number(index)?.checked_add(1 - first)?;
            Self::new(index, number(of)?)
        });
        parsed.ok_or_else(|| invalid(text))
    }
}

fn invalid(text: &str) -> String {
    format!(
        "invalid segment `{text}`: expected I/N with 1 <= I <= N <= {MAX_SEGMENTS}, such as 1/10, or index:I/N with I from 0"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::{Arrivals, Plan, Process, Schedule};
    use super::*;

    #[test]
    fn segments_are_read_as_they_are_written() {
        let segment: Segment = "3/10".parse().unwrap();
        assert_eq!((segment.index(), segment.of(), segment.to_string().as_str()), (3, 10, "3/10"));
        for bad in [
            "",
            "3",
            "0/3",
            "4/3",
            "1/0",
            "1/65537",
            "-1/3",
            "+1/3",
            "1/3/5",
            "1 /3",
            "index:3/3",
            "index:4294967295/3",
            "index:",
        ] {
            assert!(bad.parse::<Segment>().unwrap_err().contains("such as 1/10"), "{bad}");
        }
        assert_eq!("index:0/10".parse::<Segment>().unwrap(), Segment::new(1, 10).unwrap());
        assert_eq!("index:9/10".parse::<Segment>().unwrap(), Segment::new(10, 10).unwrap());
        let json = serde_json::to_string(&segment).unwrap();
        assert_eq!(serde_json::from_str::<Segment>(&json).unwrap(), segment);
        assert!(serde_json::from_str::<Segment>(r#"{"index":4,"of":3}"#).is_err());
    }

    /// All transactions of a machine: when, on which flow of the plan.
    fn transactions(plan: &Plan) -> Vec<(u64, u32)> {
        let own = plan.own_flows();
        let mut all = Vec::new();
        for thread in 0..plan.threads {
            let flows: Vec<u32> = (thread as u32..own).step_by(plan.threads).collect();
            let part = Schedule::new(plan, plan.part(thread), plan.parts(), flows.len() as u32);
            all.extend(part.unwrap().map(|t| (t.at, plan.flow(flows[t.flow as usize]))));
        }
        all.sort_unstable();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_segments_are_the_plan_of_one_machine(
            rate in 1000f64..200_000.0, kind in 0u8..4, of in 1u32..9, threads in 1usize..4, more in 0u32..40, seed: u64
        ) {
            let mut whole = Plan::new("192.0.2.1:7".parse().unwrap());
            whole.arrivals = match kind {
                0 => Arrivals::Open { rate, process: Process::Constant },
                1 => Arrivals::Open { rate, process: Process::Poisson },
                2 => Arrivals::Open { rate, process: Process::Burst { len: 5 } },
                _ => Arrivals::Ramp { from: rate, to: rate / 2.0 },
            };
            whole.duration = Duration::from_millis(100);
            whole.seed = seed;
            whole.flows = of * threads as u32 + more;
            let segments: Vec<Plan> = (1..=of)
                .map(|index| Plan { segment: Segment::new(index, of).unwrap(), threads, ..whole.clone() })
                .collect();
            whole.threads = threads * of as usize;
            let mut together: Vec<_> = segments.iter().flat_map(transactions).collect();
            together.sort_unstable();
            prop_assert_eq!(together, transactions(&whole));
            let flows: Vec<u32> =
                segments.iter().flat_map(|s| (0..s.own_flows()).map(|own| s.flow(own))).collect();
            prop_assert_eq!(flows.len(), whole.flows as usize, "no flow twice");
            prop_assert_eq!(flows.into_iter().collect::<BTreeSet<_>>(), (0..whole.flows).collect());
        }
    }
}
