//! What many machines have in common, on a screen: how many are alike, how each group of the others differs, what is
//! wrong.

use udpath_advise::Severity;
use udpath_fleet::machines::{FleetReport, Group};

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::words::{self, machines};

/// Most groups, differences of a group, facts without a norm, and files that were not read; `--json` has all.
const GROUPS: usize = 12;
const VARIATIONS: usize = 16;
const MIXED: usize = 12;
const FILES: usize = 12;
/// Most names of machines in a line.
const NAMES: usize = 8;

pub(crate) fn text(report: &FleetReport, style: &Style) -> String {
    let style = *style;
    let alike = report.groups.is_empty() && report.mixed.is_empty();
    let paint = if alike { Paint::Good } else { Paint::Warn };
    let mut out = style.wrapped(paint, &machines::conclusion(report), 0);
    for group in report.groups.iter().take(GROUPS) {
        out += &of_group(group, style);
    }
    out += &more(report.groups.len(), GROUPS, "groups", style);
    // With one machine every fact is its own.
    if !report.mixed.is_empty() && report.machines.len() > 1 {
        out.push('\n');
        let mut table =
            Table::with(vec![Cell::new("no value that most have"), Cell::new("values: machines")]);
        for mixed in report.mixed.iter().take(MIXED) {
            table.row(vec![Cell::new(&mixed.what), Cell::whole(machines::mixed(mixed, 2))]);
        }
        out += &table.text(style);
        out += &more(report.mixed.len(), MIXED, "facts", style);
    }
    out += &findings(report, style);
    if report.machines.iter().any(|machine| !machine.compared_as.is_empty())
        || !report.older.is_empty()
        || !report.unread.is_empty()
    {
        out.push('\n');
    }
    for machine in &report.machines {
        for (own, usual) in &machine.compared_as {
            let line = format!("note: {} of {} is compared with {usual} of the others", own, machine.name);
            out += &style.wrapped(Paint::Dim, &line, 2);
        }
    }
    for older in report.older.iter().take(FILES) {
        let line = format!("note: {} is older than {}, and does not count", older.file, older.newer);
        out += &style.wrapped(Paint::Dim, &line, 2);
    }
    out += &more(report.older.len(), FILES, "older files", style);
    for unread in report.unread.iter().take(FILES) {
        out += &style.wrapped(Paint::Warn, &format!("not read: {}: {}", unread.file, unread.why), 2);
    }
    out + &more(report.unread.len(), FILES, "files not read", style)
}

/// The machines of a group, and how they differ.
fn of_group(group: &Group, style: Style) -> String {
    let who =
        format!("{}: {}", machines::machines(group.machines.len()), machines::names(&group.machines, NAMES));
    let mut out = format!("\n{}", style.wrapped(Paint::Bold, &who, 2));
    let mut table = Table::with(["  differs in", "value", "most have"].map(Cell::new).into());
    for variation in group.variations.iter().take(VARIATIONS) {
        table.row(vec![
            Cell::new(format!("  {}", variation.what)),
            Cell::new(machines::value(&variation.value)),
            Cell::whole(machines::norm(variation)),
        ]);
    }
    out += &table.text(style);
    out + &more(group.variations.len(), VARIATIONS, "differences", style)
}

/// What is wrong, by how many have it, with the evidence of one of them.
fn findings(report: &FleetReport, style: Style) -> String {
    if report.findings.is_empty() {
        return String::new();
    }
    let mut out = "\n".to_owned();
    let all = machines::count(report.machines.len());
    for found in &report.findings {
        let paint = match found.finding.severity {
            Severity::Loss => Paint::Bad,
            Severity::Limit => Paint::Warn,
            Severity::Note => Paint::Dim,
        };
        let with = format!(
            "{} ({}): {} of {all} machines; {}: {}",
            words::one_line(&found.finding.id),
            found.finding.severity.name(),
            machines::count(found.machines.len()),
            found.example,
            found.finding.evidence
        );
        out += &style.wrapped(paint, &with, 2);
    }
    out
}

/// How many are left out.
fn more(all: usize, shown: usize, what: &str, style: Style) -> String {
    if all <= shown {
        return String::new();
    }
    style.wrapped(Paint::Dim, &format!("and {} more {what}; --json has them all", all - shown), 0)
}
