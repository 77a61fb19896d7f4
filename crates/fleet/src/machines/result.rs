//! The report: plain and serialisable. Its sentences are made in `udpath-report`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_advise::Finding;

/// Version of the JSON form. Raised when a field changes its meaning or is removed; new fields do not raise it.
pub const FLEET_SCHEMA: &str = "udpath.fleet/1";

/// What the machines of a fleet have in common, and what differs.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct FleetReport {
    /// [`FLEET_SCHEMA`].
    pub schema: String,
    /// The machines, by name.
    pub machines: Vec<MachineSummary>,
    /// How many of them have the norm in everything they report.
    pub alike: usize,
    /// Machines that differ from the norm in the same way, the largest group first.
    pub groups: Vec<Group>,
    /// Facts without a norm: no value is that of more than half of the machines.
    pub mixed: Vec<Mixed>,
    /// Facts in which all machines that report them are alike.
    pub common: Vec<Common>,
    /// What is wrong, first what most machines have.
    pub findings: Vec<FleetFinding>,
    /// Files of machines of which there is a newer one; they do not count.
    pub older: Vec<Older>,
    /// Files that are no captures, or cannot be read.
    pub unread: Vec<Unread>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MachineSummary {
    /// Its name, from the file's.
    pub name: String,
    /// The file, from the folder on.
    pub file: String,
    /// What the file is.
    pub source: Source,
    /// When it was captured, milliseconds since 1970.
    pub taken: u64,
    /// In how many facts it differs from the norm.
    pub differences: usize,
    /// How many kinds of findings it has.
    pub findings: usize,
    /// Interfaces that are compared with one of another name: the machine's own name, and that of most machines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub compared_as: BTreeMap<String, String>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A capture of `udpath support`.
    Capture,
    /// JSON of `udpath show --json`, which has fewer facts.
    Map,
}

/// Machines that differ from the norm in the same way.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Group {
    /// Their names.
    pub machines: Vec<String>,
    /// In what they differ. A machine that differs in more is also in another group.
    pub variations: Vec<Variation>,
}

/// A fact in which some machines differ from the norm.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Variation {
    /// The fact: a setting by its name (`eth0:rps/rx-*`), or a property of the machine (`kernel`) or of an interface
    /// (`eth0:firmware`).
    pub what: String,
    /// Their value.
    pub value: String,
    /// The norm: the value of more than half of the machines.
    pub norm: String,
    /// How many have it.
    pub norm_machines: usize,
    /// How many report the fact.
    pub reported: usize,
}

/// A fact without a norm.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Mixed {
    /// As [`Variation::what`].
    pub what: String,
    /// Its values, the most frequent first.
    pub values: Vec<VariationValue>,
}

/// A value, and who has it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct VariationValue {
    /// The value.
    pub value: String,
    /// The names of its machines.
    pub machines: Vec<String>,
}

/// A fact in which all machines are alike.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Common {
    /// As [`Variation::what`].
    pub what: String,
    /// Its value.
    pub value: String,
    /// How many machines report it.
    pub machines: usize,
}

/// A finding of one or more machines.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct FleetFinding {
    /// The names of the machines that have it.
    pub machines: Vec<String>,
    /// The machine whose finding is shown: the first of those where it matters most.
    pub example: String,
    /// That machine's finding.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A file of a machine of which there is a newer one.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Older {
    /// The machine.
    pub machine: String,
    /// The older file.
    pub file: String,
    /// The one that counts.
    pub newer: String,
}

/// A file that says nothing about a machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Unread {
    /// Its path from the folder on.
    pub file: String,
    /// Why: a sentence without its full stop.
    pub why: String,
}
