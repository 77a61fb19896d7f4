//! The distribution of many flows: how much traffic each queue, CPU or socket receives.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Step, Why};

/// Flows and packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Amount {
    /// Different flows.
    pub flows: u64,
    /// Packets of all of them.
    pub packets: u64,
}

/// The places (queues, CPUs, sockets) that flows go to, and how much goes to each.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(into = "Parts")]
pub struct Spread {
    places: BTreeMap<u32, Amount>,
    unknown: Vec<(Why, Amount)>,
}

impl Spread {
    /// Counts a flow's packets at the place its step leads to.
    pub fn add(&mut self, step: Step, packets: u64) {
        self.count(step, Amount { flows: 1, packets });
    }

    /// Adds `more` at the place a step leads to.
    pub(super) fn count(&mut self, step: Step, more: Amount) {
        let known = match step.value {
            Some(place) => self.places.entry(place).or_default(),
            None => match self.unknown.iter().position(|(why, _)| *why == step.why) {
                Some(at) => &mut self.unknown[at].1,
                None => {
                    // A few dozen reasons, plus one per flow rule.
                    self.unknown.push((step.why, more));
                    return;
                }
            },
        };
        *known = known.plus(more);
    }

    /// The places that receive packets, the busiest first.
    #[must_use]
    pub fn places(&self) -> Vec<(u32, Amount)> {
        let mut places: Vec<_> = self.places.iter().map(|(place, amount)| (*place, *amount)).collect();
        // Stable: equal ones stay in the order of their numbers.
        places.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.packets));
        places
    }

    /// The traffic whose place is unknown, by reason, the most packets first.
    #[must_use]
    pub fn unknown(&self) -> Vec<(Why, Amount)> {
        let mut unknown = self.unknown.clone();
        unknown.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.packets));
        unknown
    }

    /// All of it, known and unknown.
    #[must_use]
    pub fn total(&self) -> Amount {
        let all = self.places.values().chain(self.unknown.iter().map(|(_, amount)| amount));
        all.fold(Amount::default(), |sum, amount| sum.plus(*amount))
    }

    /// The smallest number of places that receive at least `share` (of 1) of all packets, and their packets. `None`
    /// if the known places receive less.
    #[must_use]
    pub fn taking(&self, share: f64) -> Option<(usize, u64)> {
        let wanted = self.total().packets as f64 * share;
        let mut taken = 0_u64;
        self.places().iter().enumerate().find_map(|(at, (_, amount))| {
            taken = taken.saturating_add(amount.packets);
            (taken > 0 && taken as f64 >= wanted).then_some((at + 1, taken))
        })
    }
}

impl Amount {
    /// Saturating: a file may claim any number of packets.
    const fn plus(self, more: Self) -> Self {
        Self {
            flows: self.flows.saturating_add(more.flows),
            packets: self.packets.saturating_add(more.packets),
        }
    }
}

#[derive(JsonSchema, Serialize)]
struct Place {
    place: u32,
    #[serde(flatten)]
    amount: Amount,
}

#[derive(JsonSchema, Serialize)]
struct Unknown {
    why: Why,
    #[serde(flatten)]
    amount: Amount,
}

/// A spread as JSON, the most first.
#[derive(JsonSchema, Serialize)]
struct Parts {
    places: Vec<Place>,
    unknown: Vec<Unknown>,
}

/// `{"places": [{"place": 3, "flows": 9, "packets": 90}], "unknown": [{"why": "...", ...}]}`, the most first.
impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let places: Vec<Place> =
            self.places().into_iter().map(|(place, amount)| Place { place, amount }).collect();
        let unknown: Vec<Unknown> =
            self.unknown().into_iter().map(|(why, amount)| Unknown { why, amount }).collect();
        Parts { places, unknown }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_come_first_and_few_take_most() {
        let mut spread = Spread::default();
        for (place, packets) in [(7, 10), (3, 50), (7, 20), (1, 20)] {
            spread.add(Step::known(place, Why::OnlyQueue), packets);
        }
        let places: Vec<_> =
            spread.places().iter().map(|(place, amount)| (*place, amount.flows, amount.packets)).collect();
        assert_eq!(places, [(3, 1, 50), (7, 2, 30), (1, 1, 20)]);
        assert_eq!(spread.total(), Amount { flows: 4, packets: 100 });
        assert_eq!(spread.taking(0.5), Some((1, 50)));
        assert_eq!(spread.taking(0.8), Some((2, 80)));
        assert_eq!(spread.taking(1.0), Some((3, 100)));
        assert_eq!(Spread::default().taking(0.8), None);
    }

    #[test]
    fn what_is_not_known_is_counted_by_its_reason() {
        let mut spread = Spread::default();
        spread.add(Step::known(0, Why::OnlyQueue), 1);
        for (why, packets) in [(Why::NoKey, 1), (Why::NoTable, 5), (Why::NoKey, 2)] {
            spread.add(Step::unknown(why), packets);
        }
        let unknown: Vec<_> = spread.unknown().iter().map(|(why, amount)| (*why, amount.packets)).collect();
        assert_eq!(unknown, [(Why::NoTable, 5), (Why::NoKey, 3)]);
        assert_eq!(spread.taking(0.8), None, "8 in 9 packets are unknown");
        let json = serde_json::to_value(&spread).unwrap();
        assert_eq!(json["places"][0], serde_json::json!({"place": 0, "flows": 1, "packets": 1}));
        assert_eq!(json["unknown"][1]["flows"], 2);
    }
}
