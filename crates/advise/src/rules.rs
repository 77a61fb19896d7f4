//! The rules: what udpath knows about slow UDP paths, a file per subject.
//!
//! ```text
//! Snapshot, Map ─┐
//!                ├─▸ rules/*.rs ─▸ Finding
//! Profile ───────┘
//! ```
//! To add a rule, add a row to a subject's `RULES`, its function, and a test with a machine that has the cause and one
//! that does not; a new subject is also a line in `SUBJECTS`.

mod addresses;
mod arrivals;
mod bulk;
mod conflicts;
mod counters;
mod dropped;
mod functions;
mod groups;
mod hypervisor;
mod irqs;
mod locks;
mod loss;
mod machine;
mod memory;
mod moderation;
mod neighbours;
mod netfilter;
mod per_packet;
mod programs;
mod queues;
mod readers;
mod rps;
mod rss;
mod sharing;
mod sockets;
mod transmit;
mod validity;

#[cfg(test)]
pub(crate) mod testing;

use udpath_host::{Map, Snapshot};
use udpath_profile::Profile;

use crate::finding::Finding;
use crate::rule::{Observed, Rule};

pub(crate) use addresses::{is_open, named as name_unheard};
pub(crate) use per_packet::TRACING_ID;
pub(crate) use programs::{OTHERS, OWN_WORK};
pub(crate) use readers::{SLEPT, held_back, looks};
pub(crate) use validity::GENERATOR;

/// Most sockets that get a finding of a rule: more would be a list, not a hint.
const SOCKETS: usize = 5;

/// The rules by subject, in the order of a datagram's path. Findings of one severity keep that order.
const SUBJECTS: &[&[Rule]] = &[
    validity::RULES,
    loss::RULES,
    counters::RULES,
    arrivals::RULES,
    addresses::RULES,
    dropped::RULES,
    neighbours::RULES,
    memory::RULES,
    sharing::RULES,
    readers::RULES,
    rss::RULES,
    irqs::RULES,
    rps::RULES,
    moderation::RULES,
    per_packet::RULES,
    functions::RULES,
    bulk::RULES,
    netfilter::RULES,
    sockets::RULES,
    groups::RULES,
    locks::RULES,
    transmit::RULES,
    programs::RULES,
    hypervisor::RULES,
    machine::RULES,
    conflicts::RULES,
];

fn rules() -> impl Iterator<Item = &'static Rule> {
    SUBJECTS.iter().copied().flatten()
}

/// What the rules find in a machine, the most severe first. `map` is made of `snapshot`.
#[must_use]
pub fn of_map(snapshot: &Snapshot, map: &Map) -> Vec<Finding> {
    let observed = Observed { snapshot, map };
    let mut findings: Vec<Finding> = rules().flat_map(|rule| rule.of_map(observed)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// What the rules find in a profile, the largest first. Nothing where nothing ran.
#[must_use]
pub fn of_profile(profile: &Profile) -> Vec<Finding> {
    if profile.busy() == 0 {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = rules().flat_map(|rule| rule.of_profile(profile)).collect();
    findings.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use udpath_profile::classes::Class;
    use udpath_profile::context::Context;

    use super::*;
    use crate::rule::Look;

    /// The same shares: of ten samples, and of a thousand.
    #[test]
    fn a_share_of_a_few_samples_is_no_finding() {
        let found = |times: u64| {
            let profile = testing::of(&[
                (Context::Syscall, Class::Security, None, Some("x"), "security_socket_sendmsg", 3 * times),
                (Context::User, Class::User, None, Some("x"), "main@", 7 * times),
            ]);
            of_profile(&profile).into_iter().filter(|finding| finding.evidence.contains("security")).count()
        };
        assert_eq!((found(1), found(100)), (0, 1));
    }

    /// Every id has a place in the order of a diagnosis, and every place an id.
    #[test]
    fn every_id_has_a_rank() {
        let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
        let ranks: BTreeSet<&str> = crate::diagnosis::RANKS.iter().copied().collect();
        assert_eq!(ranks.len(), crate::diagnosis::RANKS.len(), "an id has two places");
        assert_eq!(ids, ranks);
    }

    /// The page of findings describes every id, and no others.
    #[test]
    fn every_id_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings.md");
        let text = std::fs::read_to_string(page).unwrap();
        let described: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
        assert_eq!(described.iter().copied().collect::<BTreeSet<_>>(), ids);
        assert_eq!(described.len(), ids.len(), "an id is described twice");
    }

    #[test]
    fn ids_are_kebab_case_and_unique_per_evidence() {
        let mut seen = BTreeSet::new();
        for rule in rules() {
            let kebab = rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            assert!(kebab && !rule.id.starts_with('-') && !rule.id.ends_with('-'), "{}", rule.id);
            assert!(seen.insert((rule.id, matches!(rule.look, Look::Map(_)))), "{} twice", rule.id);
        }
    }
}
