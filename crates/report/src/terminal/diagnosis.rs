//! A diagnosis: the first saturated link, what to do about the first finding, and what the machine should carry; then
//! the links, the findings, and what could not be seen.

use schemars::JsonSchema;
use serde::Serialize;
use udpath_advise::diagnosis::{Bound, Capacity, Change, Diagnosed, Diagnosis};
use udpath_advise::{Finding, Severity};

use super::table::{Cell, Table};
use super::{Paint, Style, bar};
use crate::finding::Part;
use crate::{finding, json, units, words};

/// Indentation of a finding's text from its second line on.
const INDENT: usize = 7;
/// Columns of the bar of how busy a link is.
const BAR: usize = 10;
/// Most reasons why something could not be seen; the JSON has all.
const UNSEEN: usize = 4;

/// All of it.
#[must_use]
pub fn text(diagnosis: &Diagnosis, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &diagnosis.headline, 2);
    if let Some(first) = diagnosis.findings.iter().find(|found| found.finding.severity < Severity::Note) {
        out += &parts(&to_do(first), style);
    }
    out += &style.wrapped(Paint::Plain, &capacity(diagnosis), 2);
    out.push('\n');
    out += &links(diagnosis, style);
    for found in &diagnosis.findings {
        out += if found.finding.severity == Severity::Note { "" } else { "\n" };
        out += &one(found, style);
    }
    if !diagnosis.unseen.is_empty() {
        out.push('\n');
    }
    for why in diagnosis.unseen.iter().take(UNSEEN) {
        out += &style.wrapped(Paint::Dim, &format!("not seen: {why}"), 2);
    }
    let more = diagnosis.unseen.len().saturating_sub(UNSEEN);
    if more > 0 {
        out += &style.wrapped(Paint::Dim, &format!("not seen: {more} more, in --json"), 2);
    }
    out
}

/// What to do about the first finding, with its command.
fn to_do(found: &Diagnosed) -> Vec<Part> {
    let Finding { id, remedies, .. } = &found.finding;
    let lead = format!("Fix [{id}]: ");
    match remedies.first() {
        Some(remedy) => finding::with_command(&lead, remedy),
        None => vec![Part::Words(format!("{lead}see below"))],
    }
}

/// Words in lines of the style's width, and each command on one line of its own, however long it is.
fn parts(parts: &[Part], style: Style) -> String {
    let line = |part: &Part| match part {
        Part::Words(words) => style.wrapped(Paint::Plain, words, 2),
        Part::Command(command) => format!("  {}\n", words::one_line(command)),
    };
    parts.iter().map(line).collect()
}

fn capacity(diagnosis: &Diagnosis) -> String {
    match (&diagnosis.capacity, &diagnosis.no_capacity) {
        (Some(capacity), _) => carries(capacity),
        (None, Some(why)) => why.clone(),
        (None, None) => "The rate that this path should carry is unknown.".into(),
    }
}

/// What it carries, and what it should.
fn carries(capacity: &Capacity) -> String {
    let Capacity { carried, should_carry, limit, cpus, readers, softirq_ns, program_ns, .. } = capacity;
    let what = if carried.transactions { "transactions/s" } else { "datagrams/s" };
    let cpus = format!("{cpus:.1}");
    let cpus = cpus.trim_end_matches(".0");
    let limit = match limit {
        Bound::Cpus => format!("all that the {cpus} CPUs left to it can do"),
        Bound::Receive => format!("limited by the {cpus} CPUs that receive packets"),
        Bound::Readers if *readers == 1 => "limited by its one reader thread".to_owned(),
        Bound::Readers => format!("limited by {readers} reader threads on {cpus} CPUs"),
        Bound::CpuLimit => format!("limited by its control group to {cpus} CPUs"),
    };
    format!(
        "Carries {} {what}, {} per CPU used; should carry about {} ({limit}). One costs {}: {} in softirqs, {} in the program \
         and its system calls.",
        units::tps(carried.rate),
        units::tps(carried.per_cpu),
        units::tps(*should_carry),
        units::time(softirq_ns + program_ns),
        units::time(*softirq_ns),
        units::time(*program_ns)
    )
}

fn links(diagnosis: &Diagnosis, style: Style) -> String {
    let headings = [
        Cell::new(""),
        Cell::new("link"),
        Cell::right("busy"),
        Cell::new(""),
        Cell::new("where"),
        Cell::new("seen"),
    ];
    let mut table = Table::with(headings.into());
    for link in &diagnosis.links {
        let paint = if link.saturated { Paint::Bad } else { Paint::Plain };
        table.row(vec![
            Cell::new(if link.saturated { "!" } else { "" }).painted(Paint::Bad),
            Cell::new(link.stage.title()),
            Cell::right(units::share(link.busy)).painted(paint),
            Cell::new(bar(link.busy, BAR)).painted(paint),
            Cell::new(if link.place.is_empty() { units::NONE } else { &link.place }),
            Cell::whole(&link.evidence),
        ]);
    }
    if diagnosis.links.is_empty() { String::new() } else { table.text(style) }
}

fn one(found: &Diagnosed, style: Style) -> String {
    let finding = &found.finding;
    let paint = match finding.severity {
        Severity::Loss => Paint::Bad,
        Severity::Limit => Paint::Warn,
        Severity::Note => Paint::Dim,
    };
    let said = match &found.explained_by {
        Some(cause) => format!("{}; explained by {cause}", finding.evidence),
        None => finding::text(finding),
    };
    let text = format!("{:<6} {said} [{}]", finding.severity.name(), finding.id);
    let mut out = style.wrapped(paint, &text, INDENT);
    if found.explained_by.is_some() || finding.severity == Severity::Note {
        return out;
    }
    let inner = Style { width: style.width.saturating_sub(INDENT), ..style };
    let sure = format!("Confidence: {} ({})", found.confidence.level.name(), found.confidence.because);
    let below = inner.wrapped(Paint::Plain, &sure, 2) + &parts(&finding::fixes_with(finding), inner);
    for line in below.lines() {
        out += &format!("{}{line}\n", " ".repeat(INDENT));
    }
    out
}

/// A change as a line of a log.
#[must_use]
pub fn change_text(change: &Change<'_>, taken_ms: u64, style: &Style) -> String {
    let (word, text, paint) = match change {
        Change::Headline(headline) => ("now", (*headline).to_owned(), Paint::Bold),
        Change::Appeared(found) => ("appeared", said(found), Paint::Bad),
        Change::Grew(found) => ("grew", said(found), Paint::Bad),
        Change::Went(found) => ("went", said(found), Paint::Good),
    };
    let seconds = taken_ms / 1000;
    let date = units::date(seconds);
    let date = date.trim_end_matches(" UTC");
    let line = format!("{date}:{:02} UTC {word:<8} {text}", seconds % 60);
    style.paint(paint, &words::one_line(&line)) + "\n"
}

fn said(found: &Diagnosed) -> String {
    format!("{} {} [{}]", found.finding.severity.name(), found.finding.evidence, found.finding.id)
}

/// Version of the format of [`ChangeLine`]; incremented when a field changes its meaning or is removed.
pub const CHANGE_SCHEMA: &str = "udpath.diagnosis-change/1";

/// A change between two diagnoses as JSON.
#[derive(JsonSchema, Serialize)]
pub struct ChangeLine<'a> {
    /// Always [`CHANGE_SCHEMA`].
    schema: &'static str,
    /// When, milliseconds since 1970.
    taken: u64,
    /// `headline`, `appeared`, `grew` or `went`.
    change: &'static str,
    /// The new headline.
    #[serde(skip_serializing_if = "Option::is_none")]
    headline: Option<&'a str>,
    /// What appeared, grew or went.
    #[serde(skip_serializing_if = "Option::is_none")]
    finding: Option<&'a Diagnosed>,
}

/// A change as one line of JSON.
#[must_use]
pub fn change_json(change: &Change<'_>, taken_ms: u64) -> String {
    let (change, headline, finding) = match *change {
        Change::Headline(headline) => ("headline", Some(headline), None),
        Change::Appeared(found) => ("appeared", None, Some(found)),
        Change::Grew(found) => ("grew", None, Some(found)),
        Change::Went(found) => ("went", None, Some(found)),
    };
    json::to_json(&ChangeLine { schema: CHANGE_SCHEMA, taken: taken_ms, change, headline, finding })
}
