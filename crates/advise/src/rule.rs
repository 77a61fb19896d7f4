//! What a rule is: an id, what it looks at and when it fires, the cause, the remedies.

use udpath_host::{Map, Snapshot};
use udpath_profile::Profile;

use crate::finding::{Finding, Location, Remedy, Severity};

/// A machine as a rule sees it: what was read, and the map made of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed<'a> {
    /// What was read.
    pub(crate) snapshot: &'a Snapshot,
    /// The path of a datagram, of the part that was selected.
    pub(crate) map: &'a Map,
}

impl<'a> Observed<'a> {
    /// The interface as it was read.
    pub(crate) fn interface(self, name: &str) -> Option<&'a udpath_host::interfaces::Interface> {
        self.snapshot.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The memory node of a CPU.
    pub(crate) fn node(self, cpu: u32) -> Option<u32> {
        self.snapshot.cpus.cpu(cpu).and_then(|cpu| cpu.node)
    }

    /// Is a loss worth a finding beside that much traffic? Between two snapshots every loss is; since boot those that
    /// are more than history.
    pub(crate) fn matters(self, lost: u64, of: u64) -> bool {
        lost > 0 && (self.map.seconds.is_some() || lost as f64 > OLD_LOSS * of as f64)
    }

    /// `in 1.0 s` or `since boot`.
    pub(crate) fn when(self) -> String {
        self.map.seconds.map_or_else(|| "since boot".into(), |seconds| format!("in {seconds:.1} s"))
    }

    /// Per second, where the counts are of an interval.
    pub(crate) fn rate(self, count: u64) -> Option<f64> {
        self.map.seconds.filter(|seconds| *seconds > 0.0).map(|seconds| count as f64 / seconds)
    }
}

/// Share of the traffic since boot below which losses are history, such as those of a restart. Lower: every machine
/// that was up for a year has findings. Higher: a slow leak goes unnoticed.
const OLD_LOSS: f64 = 1e-4;

/// Samples that a share of CPU time must rest on to be a finding: the 95 % interval of ten is from half to twice.
/// Lower: an idle machine, with a few dozen samples in all, has findings of one or two. Higher: half a second of a busy
/// service is too short to find a tenth of it.
const FEWEST_SAMPLES: f64 = 10.0;

/// What a rule looks at, and the function that fires or does not.
pub(crate) enum Look {
    /// A machine.
    Map(fn(Observed<'_>) -> Vec<Found>),
    /// A profile.
    Profile(fn(&Profile) -> Vec<Found>),
}

/// A rule.
pub(crate) struct Rule {
    /// The id of its findings.
    pub(crate) id: &'static str,
    /// How much they matter.
    pub(crate) severity: Severity,
    /// What it looks at.
    pub(crate) look: Look,
    /// Why it is so, unless a finding has a cause of its own.
    pub(crate) cause: &'static str,
    /// What to do, after a finding's own remedies: imperatives, the best first.
    pub(crate) fix: &'static [&'static str],
}

impl Rule {
    /// What it finds in a machine.
    pub(crate) fn of_map(&self, observed: Observed<'_>) -> Vec<Finding> {
        match self.look {
            Look::Map(find) => find(observed).into_iter().map(|found| self.finding(found)).collect(),
            Look::Profile(_) => Vec::new(),
        }
    }

    /// What it finds in a profile.
    pub(crate) fn of_profile(&self, profile: &Profile) -> Vec<Finding> {
        match self.look {
            Look::Map(_) => Vec::new(),
            Look::Profile(find) => {
                let samples: u64 = profile.stacks.iter().map(|stack| stack.samples).sum();
                // A result without stacks does not tell how many there were.
                let enough = |found: &Found| {
                    let share = found.share.filter(|_| found.of_cpu_time && samples > 0);
                    share.is_none_or(|share| share * samples as f64 >= FEWEST_SAMPLES)
                };
                find(profile).into_iter().filter(enough).map(|found| self.finding(found)).collect()
            }
        }
    }

    fn finding(&self, found: Found) -> Finding {
        let Found { locations, share, of_cpu_time: _, rate, evidence, cause, mut remedies } = found;
        remedies.extend(self.fix.iter().map(|fix| Remedy::Advice((*fix).to_owned())));
        let mut finding = Finding {
            id: self.id.to_owned(),
            severity: self.severity,
            locations,
            share,
            rate,
            evidence,
            cause: cause.unwrap_or_else(|| self.cause.to_owned()),
            remedies,
        };
        finding.fill(None);
        finding
    }
}

/// What a rule found; the rest of the finding is the rule's.
#[derive(Debug, Default)]
pub(crate) struct Found {
    locations: Vec<Location>,
    share: Option<f64>,
    /// The share is one of CPU time, by samples.
    of_cpu_time: bool,
    rate: Option<f64>,
    evidence: String,
    cause: Option<String>,
    remedies: Vec<Remedy>,
}

impl Found {
    /// Something, by its evidence: a sentence without its full stop.
    pub(crate) fn new(evidence: impl Into<String>) -> Self {
        Self { evidence: evidence.into(), ..Self::default() }
    }

    /// A part of the CPU time used: `12 % of CPU time` and what it does.
    pub(crate) fn cpu_time(share: f64, does: &str) -> Self {
        let evidence = format!("{} of CPU time {does}", percent(share));
        Self { of_cpu_time: true, ..Self::new(evidence).share(share) }
    }

    pub(crate) fn at(mut self, location: Location) -> Self {
        self.locations.push(location);
        self
    }

    pub(crate) fn at_all(mut self, locations: impl IntoIterator<Item = Location>) -> Self {
        self.locations.extend(locations);
        self
    }

    /// 0 to 1.
    pub(crate) fn share(mut self, share: f64) -> Self {
        self.share = Some(share);
        self
    }

    /// Per second.
    pub(crate) fn rate(mut self, rate: Option<f64>) -> Self {
        self.rate = rate;
        self
    }

    /// In place of the rule's.
    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Advice of its own.
    pub(crate) fn advice(mut self, what: impl Into<String>) -> Self {
        self.remedies.push(Remedy::Advice(what.into()));
        self
    }

    /// Settings to change; nothing if there are none.
    pub(crate) fn changes(mut self, what: impl Into<String>, settings: Vec<String>) -> Self {
        if !settings.is_empty() {
            self.remedies.push(Remedy::Changes { what: what.into(), settings, netns: None });
        }
        self
    }
}

/// `3 queues`, `1 queue`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", number(n as u64), if n == 1 { "" } else { "s" })
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share as people say it.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// `CPU 3`, `CPUs 0-4`.
pub(crate) fn cpus(set: &udpath_steer::CpuSet) -> String {
    if set.len() == 1 { format!("CPU {set}") } else { format!("CPUs {set}") }
}
