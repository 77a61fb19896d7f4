//! Two results of one kind compared: is the second one better?
//!
//! ```text
//! A, B ─▸ unlike   what differs in their loads: if anything does, the comparison is not fair
//!      ─▸ figures  each with its ratio, its interval where the measurement shows one, and its verdict
//!      ─▸ differs  what else differs: machine, kernel, settings
//!      ─▸ verdict  worse if a decisive figure is; better if one is and none is worse; otherwise not shown
//! ```
//! The two were not measured in turn, so a verdict needs a larger difference than within a climb: see [`unpaired`].

mod boost;
mod latency;
mod load;
mod profile;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_load::origin::Origin;
use udpath_load::result::Counts;

use crate::result::{Ratio, Verdict};
use crate::statistics::unpaired::{self, Allowance, Unpaired, of_cost};

pub use boost::boosts;
pub use load::loads;
pub use profile::profiles;

/// Version of the JSON form of [`CompareResult`].
pub const SCHEMA: &str = "udpath.compare/1";

/// Allowance of rates between runs that were not interleaved: hash placement of flows, memory layout, neighbours of a
/// virtual machine. Lower: two runs of one program get a verdict. Higher: a loss of that size passes.
const RATE: Allowance = Allowance(0.03);
/// Allowance of medians of latency and of CPU time: they follow the batching of the moment. Lower and higher: as for
/// rates.
const MEDIAN: Allowance = Allowance(0.1);
/// Allowance of the 99th percentile: a few pauses of the machine move it. Equal runs on a machine that other programs
/// kept busy differed by up to 1.4 times. Lower and higher: as for rates.
const TAIL: Allowance = Allowance(0.5);
/// Largest standard error of a run's rate at which it was steady. Beyond, the machine was disturbed, and not equally in
/// A and B: latency is no evidence then, as a histogram does not show when its values were measured. Lower: short runs
/// get few verdicts. Higher: disturbed runs get wrong ones.
const STEADY: f64 = 0.02;
/// Allowance of rates if either run was not steady: two equal climbs on a machine that other programs kept busy
/// differed by 2.1 times. Lower: disturbed runs get wrong verdicts. Higher: a service that became erratic gets none.
const DISTURBED: Allowance = Allowance(1.0);
/// Allowance of CPU time per datagram. Lower and higher: as for rates.
const COST: Allowance = Allowance(0.05);
/// Largest difference of loss that two equal runs may have, as a share of the requests. Lower: one burst that hits a
/// full buffer is a verdict. Higher: losses that clients notice pass.
const LOSS: f64 = 0.001;
/// Standard errors by which two losses must differ, for the error of a verdict: the normal quantile of its 0.4 %.
const LOSS_ERRORS: f64 = 2.88;
/// Largest difference of durations that still are alike, as a share: loads are ended by clocks and signals.
const DURATION: f64 = 0.1;

/// The kind of both results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Climbs.
    Boost,
    /// Runs of a load.
    Load,
    /// Profiles.
    Profile,
}

impl Kind {
    /// The verb that writes them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boost => "boost",
            Self::Load => "load",
            Self::Profile => "profile",
        }
    }
}

/// Two results compared.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CompareResult {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The kind of both.
    pub kind: Kind,
    /// Whether B is better; [`Verdict::NotShown`] if their loads are unlike, whatever the figures are.
    pub verdict: Verdict,
    /// What differs in their loads; empty if the comparison is fair.
    pub unlike: Vec<Pair>,
    /// Every figure of both.
    pub figures: Vec<Figure>,
    /// What else differs.
    pub differs: Vec<Pair>,
    /// Caveats.
    pub notes: Vec<String>,
}

/// Something that is not the same in A and B.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Pair {
    /// What it is.
    pub what: String,
    /// In A; empty if A has none.
    pub a: String,
    /// In B; empty if B has none.
    pub b: String,
}

/// What a figure is a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Per second.
    Rate,
    /// Nanoseconds.
    Nanoseconds,
    /// A share, 0 to 1.
    Share,
}

/// One figure of both.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Figure {
    /// What it belongs to: `rate`, `latency, sent to answered`, ...
    pub group: String,
    /// Its name within that.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// In A; none if A has none.
    pub a: Option<f64>,
    /// In B; none if B has none.
    pub b: Option<f64>,
    /// B over A; none if A is 0 or either has none.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio, where the measurements show their own scatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Ratio>,
    /// None if nothing is known of the figure's scatter, or if neither direction is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether it counts for the verdict on the whole.
    pub decisive: bool,
}

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

impl Figure {
    fn new(group: &str, name: &str, unit: Unit, a: Option<f64>, b: Option<f64>) -> Self {
        let ratio = a.zip(b).filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a);
        let (group, name) = (group.to_owned(), name.to_owned());
        Self { group, name, unit, a, b, ratio, interval: None, verdict: None, decisive: false }
    }

    /// With the interval and the verdict of two figures whose errors are known; without them if either is none.
    fn judged(
        mut self,
        a: Option<unpaired::Figure>,
        b: Option<unpaired::Figure>,
        allowance: Allowance,
        better: Better,
    ) -> Self {
        let Some((a, b)) = a.zip(b) else { return self };
        let compared = Unpaired::new(a, b);
        let verdict = compared.verdict(allowance);
        self.interval = Some(compared.interval());
        self.verdict = Some(if better == Better::Lower { of_cost(verdict) } else { verdict });
        self
    }

    fn decisive(self) -> Self {
        Self { decisive: true, ..self }
    }

    /// Requests without a valid reply in time, as a share: two binomial shares, by their difference. None was sent: no
    /// verdict.
    fn loss(group: &str, a: &Counts, b: &Counts) -> Self {
        let known = |counts: &Counts| (counts.sent > 0).then(|| counts.loss());
        let mut figure = Self::new(group, "lost, late, refused", Unit::Share, known(a), known(b));
        if let (Some(loss_a), Some(loss_b)) = (figure.a, figure.b) {
            let variance = |loss: f64, sent: u64| loss * (1.0 - loss) / sent.max(1) as f64;
            let error = (variance(loss_a, a.sent) + variance(loss_b, b.sent)).sqrt();
            let beyond = |more: f64| more - LOSS_ERRORS * error > LOSS;
            figure.verdict = Some(match loss_b - loss_a {
                more if beyond(more) => Verdict::Worse,
                more if beyond(-more) => Verdict::Better,
                _ => Verdict::NotShown,
            });
        }
        figure
    }
}

impl CompareResult {
    fn new(
        kind: Kind,
        unlike: Vec<Pair>,
        figures: Vec<Figure>,
        differs: Vec<Pair>,
        notes: Vec<String>,
    ) -> Self {
        let any = |wanted| figures.iter().any(|f| f.decisive && f.verdict == Some(wanted));
        let verdict = match (any(Verdict::Worse), any(Verdict::Better)) {
            _ if !unlike.is_empty() => Verdict::NotShown,
            (true, _) => Verdict::Worse,
            (false, true) => Verdict::Better,
            (false, false) => Verdict::NotShown,
        };
        Self { schema: SCHEMA.into(), kind, verdict, unlike, figures, differs, notes }
    }
}

/// Collects what differs.
#[derive(Debug, Default)]
struct Pairs(Vec<Pair>);

impl Pairs {
    fn add(&mut self, what: &str, a: impl ToString, b: impl ToString) {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            self.0.push(Pair { what: what.to_owned(), a, b });
        }
    }

    /// Lengths in seconds that differ by more than [`DURATION`].
    fn add_duration(&mut self, what: &str, a: f64, b: f64) {
        let apart = (a - b).abs() > DURATION * a.max(b);
        // Not finite: not alike either.
        if apart || !(a - b).is_finite() {
            self.add(what, format!("{a:.1} s"), format!("{b:.1} s"));
        }
    }

    fn add_maps(&mut self, a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) {
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for name in names {
            let of = |map: &BTreeMap<String, String>| map.get(name).cloned().unwrap_or_default();
            self.add(name, of(a), of(b));
        }
    }
}

/// What differs in machine, kernel, version and settings.
#[must_use]
pub fn origins(a: &Origin, b: &Origin) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    pairs.add("machine", &a.machine, &b.machine);
    pairs.add("CPU model", &a.cpu_model, &b.cpu_model);
    pairs.add("CPUs", a.cpus, b.cpus);
    pairs.add("kernel", &a.kernel, &b.kernel);
    pairs.add("version of udpath", &a.version, &b.version);
    pairs.add_maps(&a.settings, &b.settings);
    pairs.0
}

/// What differs where both origins are known, or a note which is not.
fn origins_or_note(a: Option<&Origin>, b: Option<&Origin>, notes: &mut Vec<String>) -> Vec<Pair> {
    let missing = match (a, b) {
        (Some(a), Some(b)) => return origins(a, b),
        (None, Some(_)) => "A does not say",
        (Some(_), None) => "B does not say",
        (None, None) => "neither A nor B says",
    };
    notes.push(format!("{missing} on which machine, kernel and settings it was measured: they may differ"));
    Vec::new()
}

/// Whether both rates are known, and steady enough for latency to be evidence.
fn are_steady(rates: [Option<unpaired::Figure>; 2]) -> bool {
    rates.iter().all(|rate| rate.is_some_and(|rate| rate.error() <= STEADY))
}

/// The allowance of two rates; says if it is that of disturbed runs.
fn allowance(rates: [Option<unpaired::Figure>; 2], notes: &mut Vec<String>) -> Allowance {
    if rates.iter().all(Option::is_some) && !are_steady(rates) {
        let note = "the rate varied so much that only a factor of two would be a verdict, and latency is no evidence: measure \
                    longer, or on a machine that does nothing else";
        notes.push(note.to_owned());
        return DISTURBED;
    }
    RATE
}

/// The caveats of counts that do not add up, as `A: ...`.
fn check(side: &str, counts: &Counts, notes: &mut Vec<String>) {
    if let Err(mismatch) = counts.check() {
        notes.push(format!("{side}: its counts do not add up: {mismatch}"));
    }
}

#[cfg(test)]
pub(crate) mod tests;
