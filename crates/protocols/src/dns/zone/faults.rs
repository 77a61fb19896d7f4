//! What is wrong in zones' files, and what is left out for it: a record where nothing else depends on it, else its
//! zone.
//!
//! ```text
//! data that their type does not allow, a stray owner, a set that cannot be ─▸ the record is left out
//! owners, directives, quotes, parentheses, files, the SOA                  ─▸ the zone is: what follows may mean something else
//! ```

use std::collections::BTreeMap;
use std::fmt;

use crate::misfits::Misfits;

/// Most faults of a zone kept until they are in order: a file may be nothing but faults.
pub(super) const KEPT: usize = 10_000;

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u32,
    /// What is wrong, and what would be right.
    pub(super) reason: String,
    /// What is left out.
    pub(super) costs: Costs,
    /// How many records that are, if it is no zone.
    pub(super) records: usize,
}

/// What is left out for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Costs {
    Record,
    Zone,
}

impl Fault {
    pub(super) fn of_record(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into(), costs: Costs::Record, records: 1 }
    }

    pub(super) fn of_zone(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into(), costs: Costs::Zone, records: 0 }
    }
}

impl Fault {
    /// Counts what another one costs too; what costs more is what is said.
    pub(super) fn and(&mut self, mut other: Self) {
        let records = self.records + other.records;
        if other.costs > self.costs {
            std::mem::swap(self, &mut other);
        }
        self.records = records;
    }
}

/// The faults of all zones, and how much is left out for them.
#[derive(Debug, Default)]
pub(in super::super) struct Faults {
    said: Misfits,
    /// By the numbers of the zones' files, as they were given: what is left out of those that have faults.
    sources: BTreeMap<u16, Lost>,
}

/// What is left out of a file; nothing, if its faults are only said.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lost {
    records: usize,
    zone: bool,
}

impl Faults {
    /// Adds a record that is left out. `text`: where, what is wrong, and what would be right.
    pub(in super::super) fn record(&mut self, source: u16, text: impl fmt::Display) {
        self.records(source, 1, text);
    }

    /// Adds so many records that are left out for one reason.
    pub(in super::super) fn records(&mut self, source: u16, count: usize, text: impl fmt::Display) {
        self.of(source).records += count;
        self.say(source, text);
    }

    /// Adds a zone that is left out, after its faults have been said.
    pub(super) fn zone(&mut self, source: u16) {
        self.of(source).zone = true;
    }

    /// Adds a fault for which nothing is left out by itself.
    pub(in super::super) fn say(&mut self, source: u16, text: impl fmt::Display) {
        self.of(source);
        self.said.add(&text);
    }

    /// More faults of a file than were kept, and how many records are left out for them.
    pub(super) fn and_more(&mut self, source: u16, count: usize, records: usize) {
        if count > 0 || records > 0 {
            self.of(source).records += records;
        }
        self.said.add_unnamed(count);
    }

    fn of(&mut self, source: u16) -> &mut Lost {
        self.sources.entry(source).or_default()
    }

    /// Whether all files are as they should be.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether a file loses more than in `before`: its zone, or more of its records. What is only said costs nothing.
    pub(in super::super) fn cost_more_than(&self, before: &Self) -> bool {
        self.sources.iter().any(|(source, now)| {
            let lost = before.sources.get(source).copied().unwrap_or_default();
            !lost.zone && (now.zone || now.records > lost.records)
        })
    }

    /// The first faults, and how many more there are.
    pub(in super::super) fn lines(&self) -> Vec<String> {
        self.said.lines()
    }

    /// What is left out, such as `2 records and 1 zone`; `None` if nothing is.
    pub(in super::super) fn left_out(&self) -> Option<String> {
        let count = |count: usize, thing: &str| {
            (count > 0).then(|| format!("{count} {thing}{}", if count == 1 { "" } else { "s" }))
        };
        let records = self.sources.values().map(|lost| lost.records).sum();
        let zones = self.sources.values().filter(|lost| lost.zone).count();
        match (count(records, "record"), count(zones, "zone")) {
            (Some(records), Some(zones)) => Some(format!("{records} and {zones}")),
            (records, zones) => records.or(zones),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.fmt(f)
    }
}
