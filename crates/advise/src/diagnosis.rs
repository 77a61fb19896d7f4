//! A diagnosis: which link of a datagram's way is the first to be saturated, what is wrong, and whether the rate is
//! what this machine should carry.
//!
//! ```text
//! two snapshots ─▸ Map ─┬─▸ links.rs    how busy each link of the way is ─▸ headline.rs  the first saturated one
//!                       ├─▸ rules/      findings ─▸ order.rs   by weight; symptoms below their causes
//! Profile ──────────────┴─▸ capacity.rs what a transaction costs ─▸ the rate that the CPUs allow
//! sockets' own counts ───────▸ served.rs   what the server itself received and sent, of all in its namespace
//!                           change.rs   two diagnoses in turn ─▸ what appeared, grew, went
//! server's knobs, instances ─▸ levers.rs  commands before the advice of findings about readers
//! ```
//! It reads data and measures nothing.

mod capacity;
mod change;
mod confidence;
mod headline;
mod levers;
mod links;
mod order;
mod own;
mod served;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection, SelectionError};
use udpath_host::sockets::looks::Looks;
use udpath_profile::Profile;

use crate::finding::{Finding, Location, Remedy, Severity};
use crate::rules::{self, GENERATOR, OTHERS, OWN_WORK};

pub use capacity::{Bound, Capacity, Carried, PastSockets};
pub use change::{Change, changes};
pub use confidence::{Confidence, Level};
pub use levers::{Lever, Reads, Want};
pub(crate) use links::busy_of;
pub use links::{Link, Stage};
#[cfg(test)]
pub(crate) use order::RANKS;
pub use served::{Counted, only_own};

/// Version of [`Diagnosis`]'s JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const DIAGNOSIS_SCHEMA: &str = "udpath.diagnosis/1";

/// Share of the interval that a reader waits for a CPU from which on other programs take it away. Shorter waits are
/// those for whatever ran when a datagram came.
const WAITED: f64 = 0.25;

/// What limits a machine's UDP, and why.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_SCHEMA`].
    pub schema: String,
    /// When the interval ended, milliseconds since 1970.
    pub taken: u64,
    /// Its length, seconds. `None`: a capture with one snapshot, so all counts are since boot.
    pub seconds: Option<f64>,
    /// The kernel's release.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: usize,
    /// The first saturated link, or that none is: one sentence.
    pub headline: String,
    /// Share of the CPU time used, 0 to 1. `None`: unknown.
    pub used: Option<f64>,
    /// The links of a datagram's way, outermost first.
    pub links: Vec<Link>,
    /// What it carries and what it should carry.
    pub capacity: Option<Capacity>,
    /// Why that is unknown: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_capacity: Option<String>,
    /// What was found, by weight.
    pub findings: Vec<Diagnosed>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

/// A finding, with what a diagnosis adds to it.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Diagnosed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// How sure it is.
    pub confidence: Confidence,
    /// The commands that carry out the remedies, the best first; none for advice alone.
    pub commands: Vec<String>,
    /// The finding that explains this one, by its id: with the cause gone, the symptom goes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_by: Option<String>,
}

impl Diagnosis {
    /// The diagnosis of the interval between two snapshots of one boot. `profile`: of the same interval, else why there
    /// is none.
    ///
    /// # Errors
    /// What was selected is not there.
    pub fn new(
        now: &Snapshot,
        earlier: Option<&Snapshot>,
        selection: &Selection,
        profile: Result<&Profile, &str>,
    ) -> Result<Self, SelectionError> {
        Self::watched(now, earlier, &Looks::default(), selection, profile)
    }

    /// The same, with looks at the sockets' queues in between.
    ///
    /// # Errors
    /// As [`Diagnosis::new`].
    pub fn watched(
        now: &Snapshot,
        earlier: Option<&Snapshot>,
        looks: &Looks,
        selection: &Selection,
        profile: Result<&Profile, &str>,
    ) -> Result<Self, SelectionError> {
        let mut map = Map::new(now, earlier, selection)?;
        map.add_looks(looks, &now.sockets);
        let mut found = rules::of_map(now, &map);
        if let Ok(profile) = profile {
            rules::name_unheard(&mut found, now, &map, profile);
        }
        Ok(Self::of(&map, found, profile))
    }

    /// The same of a map and its findings.
    #[must_use]
    pub fn of(map: &Map, of_map: Vec<Finding>, profile: Result<&Profile, &str>) -> Self {
        let links = links::all(map);
        let used = links::used(map);
        let own = profile.ok().map(own::own);
        let of_profile =
            profile.ok().zip(own.as_ref()).map(|(all, own)| of_profile(all, own)).unwrap_or_default();
        let short = links.iter().any(Link::is_short);
        let waited =
            map.processes.iter().flat_map(|process| &process.busiest).any(|thread| thread.waited >= WAITED);
        let interface = only_interface(map);
        let findings: Vec<Diagnosed> = join(of_map, of_profile)
            .filter(|(finding, _)| finding.id != OWN_WORK || is_of(map, finding))
            // A server at its limit is what limits, however busy the sender is.
            .filter(|(finding, _)| finding.id != GENERATOR || links.iter().all(|link| !link.saturated))
            .map(|(mut finding, sampled)| {
                if !short || (finding.id == OTHERS && !waited) {
                    spare(&mut finding, &links);
                }
                finding.fill(interface);
                let confidence = Confidence::of(&finding, map, own.as_ref().filter(|_| sampled));
                Diagnosed {
                    confidence,
                    commands: finding.remedies.iter().filter_map(Remedy::command).collect(),
                    explained_by: None,
                    finding,
                }
            })
            .collect();
        let mut unseen: Vec<String> = rules::held_back(map).into_iter().chain(map.missing.clone()).collect();
        unseen.extend(profile.err().map(|why| format!("where CPU time goes: {why}")));
        if map.seconds.is_none() {
            unseen.push(
                "rates: there is one snapshot, so counts are since boot; `udpath support --interval 10s` takes two".into(),
            );
        }
        let selected = profile.is_ok_and(|profile| !profile.facts.focus.pids.is_empty());
        let capacity = match findings.iter().find_map(|found| waits(&found.finding, selected)) {
            Some(why) => Err(why),
            None => capacity::of(map, profile),
        };
        Self {
            schema: DIAGNOSIS_SCHEMA.into(),
            taken: map.taken,
            seconds: map.seconds,
            kernel: map.kernel.clone(),
            cpus: map.cpus_online,
            headline: headline::of(&links, used, map.seconds),
            used,
            no_capacity: capacity.as_ref().err().cloned(),
            capacity: capacity.ok(),
            links,
            findings: order::ordered(findings, arriving(map)),
            unseen,
        }
    }

    /// Is anything lost or limited? Notes do not count.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        self.findings.iter().any(|found| found.finding.severity < Severity::Note)
    }
}

/// Why CPU time does not say how much the readers of a finding could take, if it does not. `selected`: all is about
/// those readers.
fn waits(finding: &Finding, selected: bool) -> Option<String> {
    // Readers that wait: with more load they would not use more CPU time.
    const WAIT: [&str; 4] =
        ["neighbours-unresolved", "reader-blocked", "reader-waits-for-dns", "socket-not-read"];
    let waits = if finding.id == "reader-slow" {
        finding.cause.starts_with(rules::SLEPT)
    } else {
        selected && WAIT.contains(&finding.id.as_str())
    };
    waits.then(|| {
        format!(
            "The rate that this path should carry is unknown: its readers waited for something else while datagrams waited for them \
             ({}), so CPU time does not limit it.",
            finding.id
        )
    })
}

/// The only interface besides the loopback one that received something, if there is one.
fn only_interface(map: &Map) -> Option<&str> {
    let used = |interface: &&udpath_host::map::InterfaceMap| {
        interface.name != "lo" && interface.packets.is_some_and(|packets| packets > 0)
    };
    let mut interfaces = map.interfaces.iter().filter(used);
    interfaces.next().filter(|_| interfaces.next().is_none()).map(|interface| &*interface.name)
}

/// Packets per second of the interface that receives most; none without an interval.
fn arriving(map: &Map) -> Option<f64> {
    let seconds = map.seconds.filter(|seconds| *seconds > 0.0)?;
    let packets = map.interfaces.iter().filter_map(|interface| interface.packets).max()?;
    Some(packets as f64 / seconds)
}

/// What the rules find in the service's own time, and in all of it what others do.
fn of_profile(all: &Profile, own: &Profile) -> Vec<Finding> {
    let of_others = |finding: &Finding| [OTHERS, GENERATOR].contains(&finding.id.as_str());
    let mut found = rules::of_profile(own);
    found.retain(|finding| !of_others(finding));
    found.extend(rules::of_profile(all).into_iter().filter(of_others));
    found
}

/// The findings of map and profile, each with whether samples back it. What both found is taken from the profile, which
/// has its size.
fn join(of_map: Vec<Finding>, of_profile: Vec<Finding>) -> impl Iterator<Item = (Finding, bool)> {
    let sampled: std::collections::BTreeSet<String> =
        of_profile.iter().map(|finding| finding.id.clone()).collect();
    let seen = of_map.into_iter().filter(move |finding| !sampled.contains(&finding.id));
    seen.map(|finding| (finding, false)).chain(of_profile.into_iter().map(|finding| (finding, true)))
}

/// Is it about a process of the map?
fn is_of(map: &Map, finding: &Finding) -> bool {
    let known =
        |location: &Location| map.processes.iter().any(|process| *location == Location::Process(process.pid));
    finding.locations.iter().any(known)
}

/// While capacity is left, what only costs time does not limit. What happens at a rate does, and so does what
/// falsifies.
fn spare(finding: &mut Finding, links: &[Link]) {
    if finding.severity != Severity::Limit || finding.rate.is_some() || order::falsifies(&finding.id) {
        return;
    }
    finding.severity = Severity::Note;
    if let Some(busiest) = links.iter().max_by(|a, b| a.busy.total_cmp(&b.busy)) {
        finding.cause +=
            &format!("; no limit while the busiest link is at {}", crate::rule::percent(busiest.busy));
    }
}
