//! Compares two profiles: before and after a change, or two servers. Costs are per datagram, so that a machine that
//! does more work does not count as slower; per second of the interval if one profile counted no datagrams. If both
//! have a focus, other programs' time is left out; if only one has, it is kept in both, because the other one cannot
//! separate it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Profile;
use crate::classes::Class;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
pub const SCHEMA: &str = "udpath.profile-diff/1";

/// What costs are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Datagrams received and sent.
    Datagram,
    /// Seconds of the interval: one of the two counted no datagrams.
    Second,
}

impl Unit {
    /// For two profiles: datagrams only if both counted some.
    #[must_use]
    pub fn of(a: &Profile, b: &Profile) -> Self {
        let counted = |profile: &Profile| profile.per_datagram(1).is_some();
        if counted(a) && counted(b) { Self::Datagram } else { Self::Second }
    }

    /// The title for display.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Datagram => "per datagram",
            Self::Second => "per second",
        }
    }

    /// Nanoseconds per unit.
    #[must_use]
    pub fn cost(self, profile: &Profile, ns: u64) -> f64 {
        let per_datagram = || profile.per_datagram(ns).unwrap_or(0.0);
        match self {
            Self::Datagram => per_datagram(),
            Self::Second => ns as f64 / profile.seconds.max(1e-9),
        }
    }
}

/// The cost of one item in both profiles.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Pair_of_{T}")]
pub struct Pair<T> {
    /// The item.
    pub of: T,
    /// In the first profile, nanoseconds per unit.
    pub a: f64,
    /// In the second profile, nanoseconds per unit.
    pub b: f64,
}

impl<T> Pair<T> {
    /// Increase in nanoseconds from the first to the second; negative if it fell.
    #[must_use]
    pub fn more(&self) -> f64 {
        self.b - self.a
    }

    /// The second over the first; `None` if the first is zero.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.a > 0.0).then(|| self.b / self.a)
    }
}

/// Two profiles compared.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Difference {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What costs are divided by.
    pub unit: Unit,
    /// Is other programs' time left out? See [`leaves_out`].
    #[serde(default)]
    pub charged: bool,
    /// All busy time.
    pub busy: Pair<()>,
    /// By class, the largest difference first.
    pub classes: Vec<Pair<Class>>,
    /// By lock, the largest difference first.
    pub locks: Vec<Pair<String>>,
}

impl Difference {
    /// Compares `b` with `a`.
    #[must_use]
    pub fn new(a: &Profile, b: &Profile) -> Self {
        let (unit, charged) = (Unit::of(a, b), leaves_out(a, b));
        let classes = |profile: &Profile| {
            let shares = profile.classes.iter();
            shares.map(|share| (share.of, if charged { share.charged() } else { share.ns })).collect()
        };
        let locks = |profile: &Profile| {
            let shares = profile.locks.iter();
            shares.map(|share| (share.of.clone(), if charged { share.charged() } else { share.ns })).collect()
        };
        let cost = |ns: [u64; 2]| (unit.cost(a, ns[0]), unit.cost(b, ns[1]));
        let busy = |profile: &Profile| if charged { profile.charged() } else { profile.busy() };
        let busy = cost([busy(a), busy(b)]);
        Self {
            schema: SCHEMA.into(),
            unit,
            charged,
            busy: Pair { of: (), a: busy.0, b: busy.1 },
            classes: pairs(classes(a), classes(b), cost),
            locks: pairs(locks(a), locks(b), cost),
        }
    }

    /// The change of CPU time, and the class that contributes most, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let time = |ns: f64| match self.unit {
            Unit::Datagram => format!("{} ns", grouped(ns.round() as u64)),
            Unit::Second => format!("{:.3} s", ns / 1e9),
        };
        let whole = self.busy.more();
        let (verb, change) = if whole > 0.0 { ("rose", "increase") } else { ("fell", "saving") };
        // The class that changed most in the direction of the total.
        let class = self.classes.iter().find(|pair| pair.more() * whole > 0.0);
        let biggest = class.map_or_else(String::new, |pair| {
            // The share is above 100 % if other classes changed in the other direction; then it is left out.
            let share = Some(100.0 * pair.more() / whole).filter(|share| *share < 100.5);
            let share = share.map_or_else(String::new, |share| format!(" ({share:.0} %)"));
            format!("; biggest {change}: {}{share}", pair.of.title())
        });
        let ratio = self.busy.ratio().map_or_else(String::new, |ratio| format!(" ({ratio:.2}×)"));
        let (a, b, unit) = (time(self.busy.a), time(self.busy.b), self.unit.title());
        if a == b {
            return format!("CPU time {unit} is unchanged: {a}.");
        }
        format!("CPU time {unit} {verb} from {a} to {b}{ratio}{biggest}.")
    }
}

/// Digits in groups of three: `3,763`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Is other programs' time left out of a comparison? Only if both profiles have a focus.
#[must_use]
pub fn leaves_out(a: &Profile, b: &Profile) -> bool {
    [a, b].iter().all(|profile| !profile.facts.focus.pids.is_empty())
}

fn pairs<T: Ord>(
    a: BTreeMap<T, u64>,
    b: BTreeMap<T, u64>,
    cost: impl Fn([u64; 2]) -> (f64, f64),
) -> Vec<Pair<T>> {
    let mut both: BTreeMap<T, [u64; 2]> = BTreeMap::new();
    for (at, list) in [a, b].into_iter().enumerate() {
        for (of, ns) in list {
            both.entry(of).or_default()[at] += ns;
        }
    }
    let pair = |(of, ns)| {
        let (a, b) = cost(ns);
        Pair { of, a, b }
    };
    // Leave out what only other programs spent.
    let mut pairs: Vec<Pair<T>> = both.into_iter().filter(|(_, ns)| *ns != [0, 0]).map(pair).collect();
    // Ties: by size.
    pairs.sort_by(|x, y| y.more().abs().total_cmp(&x.more().abs()).then(y.b.total_cmp(&x.b)));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built::built;
    use crate::profile::Datagrams;

    #[test]
    fn twice_the_datagrams_at_twice_the_cost_is_not_a_difference() {
        let a = built();
        let mut b = built();
        b.datagrams = Some(Datagrams { received: 2_000_000, sent: 2_000_000, dropped: 0 });
        for share in &mut b.classes {
            share.ns *= 2;
        }
        let difference = Difference::new(&a, &b);
        assert_eq!(difference.unit, Unit::Datagram);
        assert!(difference.classes.iter().all(|pair| pair.more().abs() < 1e-9 && pair.ratio() == Some(1.0)));
    }

    #[test]
    fn a_lock_that_went_away_comes_first() {
        let a = built();
        let mut b = built();
        b.classes.retain(|share| share.of != Class::Lock);
        b.locks.clear();
        b.contexts.insert(crate::context::Context::Softirq, 2_900_000_000);
        let difference = Difference::new(&a, &b);
        let first = &difference.classes[0];
        assert_eq!((first.of, first.a, first.b, first.ratio()), (Class::Lock, 1550.0, 0.0, Some(0.0)));
        assert_eq!(
            difference.sentence(),
            "CPU time per datagram fell from 4,600 ns to 3,050 ns (0.66×); biggest saving: locks (100 %)."
        );
        assert_eq!(difference.locks[0].of, "socket-receive-queue");
        assert_eq!(
            Difference::new(&b, &a).sentence(),
            "CPU time per datagram rose from 3,050 ns to 4,600 ns (1.51×); biggest increase: locks (100 %)."
        );
        assert_eq!(Difference::new(&a, &a).sentence(), "CPU time per datagram is unchanged: 4,600 ns.");
    }

    #[test]
    fn others_are_left_out_if_both_profiles_have_a_focus() {
        let mut a = built();
        a.facts.focus.pids = vec![812];
        let mut b = a.clone();
        b.classes[0].others = 1_000_000_000;
        let difference = Difference::new(&a, &b);
        assert_eq!((difference.busy.a, difference.busy.b), (4600.0, 4100.0));
        assert_eq!((difference.classes[0].of, difference.classes[0].more()), (b.classes[0].of, -500.0));
        a.facts.focus.pids.clear();
        assert_eq!(Difference::new(&a, &b).busy.more(), 0.0);
    }

    #[test]
    fn without_datagrams_it_is_per_second() {
        let (a, mut b) = (built(), built());
        b.datagrams = None;
        let difference = Difference::new(&a, &b);
        assert_eq!(difference.unit, Unit::Second);
        assert_eq!(difference.busy.a, 9.2e9 / 5.0);
        assert_eq!(difference.busy.more(), 0.0);
    }
}
