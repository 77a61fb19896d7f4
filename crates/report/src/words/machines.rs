//! What many machines have in common, in words.

use udpath_fleet::machines::{FleetReport, Mixed, Variation};

use crate::units;
use crate::words::{one_line, shortened};

/// Groups in the first sentence; the report has all.
const GROUPS: usize = 3;
/// Longest value within a sentence, characters.
const VALUE: usize = 40;

/// How many are alike.
pub(crate) fn headline(report: &FleetReport) -> String {
    let all = report.machines.len();
    match (all, report.alike) {
        (1, _) => "1 machine: nothing to compare it with".to_owned(),
        (all, alike) if alike == all && report.mixed.is_empty() => {
            format!("all {} machines are alike", count(all))
        }
        (all, alike) if alike == all => format!("{} machines; {}", count(all), without_norm(report)),
        (all, alike) => format!("{} of {} machines are alike", count(alike), count(all)),
    }
}

/// How many are alike, and how the largest groups of the others differ.
pub(crate) fn conclusion(report: &FleetReport) -> String {
    let parts = [headline(report), differing(report)];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// How the largest groups differ; empty if none does.
pub(crate) fn differing(report: &FleetReport) -> String {
    let mut parts = Vec::new();
    for group in report.groups.iter().take(GROUPS) {
        let Some(first) = group.variations.first() else { continue };
        let verb = if group.machines.len() == 1 { "has" } else { "have" };
        let who = count(group.machines.len());
        let mut part = format!("{who} {verb} {} {}", one_line(&first.what), value(&first.value));
        part += &match group.variations.len() - 1 {
            0 => format!(" (most: {})", value(&first.norm)),
            more => format!(" (most: {}), and {more} more {}", value(&first.norm), differences(more)),
        };
        parts.push(part);
    }
    if report.groups.len() > GROUPS {
        let more = report.groups.len() - GROUPS;
        parts.push(format!("{more} more {}", if more == 1 { "group differs" } else { "groups differ" }));
    }
    // Without a group the headline says it.
    if !report.mixed.is_empty() && !report.groups.is_empty() {
        parts.push(without_norm(report));
    }
    parts.join("; ")
}

/// How many facts have no norm.
fn without_norm(report: &FleetReport) -> String {
    let facts = report.mixed.len();
    format!("{} {} no value that most have", count(facts), if facts == 1 { "fact has" } else { "facts have" })
}

const fn differences(count: usize) -> &'static str {
    if count == 1 { "difference" } else { "differences" }
}

/// A number of machines.
pub(crate) fn machines(number: usize) -> String {
    format!("{} {}", count(number), if number == 1 { "machine" } else { "machines" })
}

/// A number, with thousands separated.
pub(crate) fn count(number: usize) -> String {
    units::count(number as u64)
}

/// Names of machines, at most `most` of them.
pub(crate) fn names(all: &[String], most: usize) -> String {
    let shown: Vec<String> = all.iter().take(most).map(|name| shortened(&one_line(name), VALUE)).collect();
    let shown = shown.join(", ");
    if all.len() > most { format!("{shown} and {} more", count(all.len() - most)) } else { shown }
}

/// The norm, and how many have it.
pub(crate) fn norm(variation: &Variation) -> String {
    let [with, of] = [variation.norm_machines, variation.reported].map(count);
    format!("{} ({with} of {of})", value(&variation.norm))
}

/// The values of a fact without a norm.
pub(crate) fn mixed(mixed: &Mixed, names_shown: usize) -> String {
    let values = mixed.values.len();
    let with = |at: usize| {
        let of = &mixed.values[at];
        format!("{}: {} ({})", value(&of.value), count(of.machines.len()), names(&of.machines, names_shown))
    };
    match values {
        0..=3 => (0..values).map(with).collect::<Vec<_>>().join("; "),
        _ => format!("{} values; most frequent {}", count(values), with(0)),
    }
}

/// A value as part of a sentence or a table.
pub(crate) fn value(text: &str) -> String {
    shortened(&one_line(text), VALUE)
}
