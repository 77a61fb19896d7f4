//! The page of many machines: how many are alike, how the others differ, what is wrong.

use askama::Template;
use udpath_advise::Severity;
use udpath_fleet::machines::{FleetFinding, FleetReport, Group, MachineSummary, Source, Variation};

use super::{Figure, Head, rendered};
use crate::words::{self, machines};
use crate::{finding, units};

/// Names of machines in a row; the others are in the JSON.
const NAMES: usize = 400;
/// Names of machines of a value without a norm.
const FEW: usize = 12;

#[derive(Template)]
#[template(path = "machines.html")]
struct Page<'a> {
    head: Head<'a>,
    groups: Vec<GroupRows>,
    mixed: Vec<[String; 2]>,
    findings: Vec<FindingRow>,
    machines: Vec<MachineRow>,
    common: Vec<[String; 3]>,
    notes: Vec<String>,
}

struct GroupRows {
    title: String,
    names: String,
    /// What differs, the value, the norm.
    rows: Vec<[String; 3]>,
}

struct FindingRow {
    id: String,
    severity: &'static str,
    bad: bool,
    count: String,
    names: String,
    example: String,
    fix: String,
}

struct MachineRow {
    name: String,
    file: String,
    source: &'static str,
    taken: String,
    differences: String,
    findings: String,
    differs: bool,
}

pub(crate) fn page(report: &FleetReport) -> String {
    let times = || report.machines.iter().map(|machine| machine.taken / 1000);
    let span = match (times().min(), times().max()) {
        (Some(first), Some(last)) if first == last => units::date(first),
        (Some(first), Some(last)) => format!("{} to {}", units::date(first), units::date(last)),
        _ => units::NONE.to_owned(),
    };
    rendered(&Page {
        head: Head {
            version: env!("CARGO_PKG_VERSION"),
            title: format!("udpath fleet report: {}", machines::machines(report.machines.len())),
            kind: format!("udpath fleet report · captured {span}"),
            headline: words::capital(&machines::headline(report)),
            lead: words::capital(&machines::differing(report)),
            figures: figures(report),
            flames: false,
        },
        groups: groups(report),
        mixed: report
            .mixed
            .iter()
            .filter(|_| report.machines.len() > 1)
            .map(|mixed| [words::one_line(&mixed.what), machines::mixed(mixed, FEW)])
            .collect(),
        findings: findings(report),
        machines: report.machines.iter().map(machine).collect(),
        common: report
            .common
            .iter()
            .map(|common| {
                [
                    words::one_line(&common.what),
                    words::one_line(&common.value),
                    machines::count(common.machines),
                ]
            })
            .collect(),
        notes: notes(report),
    })
}

fn figures(report: &FleetReport) -> Vec<Figure> {
    let figure = |what, number: usize, note: &str| Figure {
        what,
        value: machines::count(number),
        note: note.to_owned(),
    };
    let differ = report.machines.len() - report.alike.min(report.machines.len());
    vec![
        figure("machines", report.machines.len(), "the newest capture of each"),
        figure("alike", report.alike, "with the value that most have, in everything"),
        figure("differ", differ, "in at least one value"),
        figure("kinds of findings", report.findings.len(), "on at least one machine"),
    ]
}

fn groups(report: &FleetReport) -> Vec<GroupRows> {
    let rows = |group: &Group| {
        let row =
            |one: &Variation| [words::one_line(&one.what), machines::value(&one.value), machines::norm(one)];
        group.variations.iter().map(row).collect()
    };
    let group = |group: &Group| GroupRows {
        title: machines::machines(group.machines.len()),
        names: machines::names(&group.machines, NAMES),
        rows: rows(group),
    };
    report.groups.iter().map(group).collect()
}

fn findings(report: &FleetReport) -> Vec<FindingRow> {
    let row = |found: &FleetFinding| FindingRow {
        id: words::one_line(&found.finding.id),
        severity: found.finding.severity.name(),
        bad: found.finding.severity == Severity::Loss,
        count: machines::count(found.machines.len()),
        names: machines::names(&found.machines, NAMES),
        example: format!("{}: {}", found.example, finding::text(&found.finding)),
        fix: finding::fixes(&found.finding).unwrap_or_default(),
    };
    report.findings.iter().map(row).collect()
}

fn machine(machine: &MachineSummary) -> MachineRow {
    MachineRow {
        name: words::one_line(&machine.name),
        file: words::one_line(&machine.file),
        source: match machine.source {
            Source::Capture => "capture",
            Source::Map => "show --json",
        },
        taken: units::date(machine.taken / 1000),
        differences: machines::count(machine.differences),
        findings: machines::count(machine.findings),
        differs: machine.differences > 0,
    }
}

/// What a reader must know before trusting the figures.
fn notes(report: &FleetReport) -> Vec<String> {
    let unread = report.unread.iter().map(|unread| format!("not read: {}: {}", unread.file, unread.why));
    let older = report
        .older
        .iter()
        .map(|older| format!("{} is older than {}, and does not count", older.file, older.newer));
    let renamed = report.machines.iter().flat_map(|machine| {
        let line = move |(own, usual): (&String, &String)| {
            format!("{own} of {} is compared with {usual} of the others", machine.name)
        };
        machine.compared_as.iter().map(line)
    });
    unread.chain(older).chain(renamed).map(|line| words::one_line(&line)).collect()
}
