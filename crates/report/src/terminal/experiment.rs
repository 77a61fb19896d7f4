//! Experiments: what was asked, published beside measured beside modelled, what is compared, and why figures differ.

use udpath_experiment::description::Description;
use udpath_experiment::outcome::Table as Counts;
use udpath_experiment::outcome::{CaseOutcome, ComparisonOutcome, ExperimentResult, Outcome, Sweep};
use udpath_experiment::verdict::Verdict;

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::words::experiment as words;
use crate::{units, words as common};

/// Fewest columns that a case's label gets; narrower it is left out.
const LABEL: usize = 16;

pub(crate) fn text(result: &ExperimentResult, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &words::conclusion(result), 0);
    for outcome in &result.experiments {
        out.push('\n');
        out += &experiment(outcome, style);
    }
    let machine = &result.machine;
    out.push('\n');
    let facts = format!(
        "measured on {} × {}, Linux {}, {}; client and server share the CPUs: compare ratios, not rates",
        machine.cpus,
        machine.cpu_model,
        machine.kernel,
        units::date(result.started)
    );
    out += &style.wrapped(Paint::Dim, &facts, 2);
    out
}

/// The names and titles of all experiments.
#[must_use]
pub fn list(descriptions: &[Description], style: &Style) -> String {
    let mut table = Table::default();
    for description in descriptions {
        table.row(vec![Cell::whole(&description.name), Cell::whole(&description.title)]);
    }
    table.text(*style)
}

fn experiment(outcome: &Outcome, style: Style) -> String {
    let mut out = style.wrapped(Paint::Bold, &format!("{}: {}", outcome.name, outcome.title), 2);
    out += &style.wrapped(Paint::Plain, &outcome.question, 2);
    out += &style.wrapped(Paint::Dim, &format!("published: {}", words::source(outcome)), 2);
    out.push('\n');
    out += &cases(&outcome.cases, style);
    if !outcome.comparisons.is_empty() {
        out.push('\n');
        out += &comparisons(&outcome.comparisons).text(style);
    }
    let whys = outcome.comparisons.iter().filter_map(words::why);
    out += &paragraph(whys, Paint::Plain, style);
    out += &paragraph(outcome.cases.iter().filter_map(words::about), Paint::Dim, style);
    for table in outcome.sweeps.iter().map(sweep).chain(outcome.tables.iter().map(counts)) {
        out.push('\n');
        out += &style.wrapped(Paint::Bold, &table.0, 2);
        out += &table.1.text(style);
    }
    out += &paragraph(outcome.notes.iter().map(|note| format!("note: {note}")), Paint::Dim, style);
    out
}

/// Lines, each with a hanging indent, after an empty one; nothing if there are none.
fn paragraph(lines: impl Iterator<Item = String>, paint: Paint, style: Style) -> String {
    let text: String = lines.map(|line| style.wrapped(paint, &line, 2)).collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn cases(cases: &[CaseOutcome], style: Style) -> String {
    let rows: Vec<[String; 4]> = cases
        .iter()
        .map(|case| [case.id.clone(), words::published(case), words::measured(case), words::modelled(case)])
        .collect();
    let width = |column: usize, heading: &str| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(heading.len())
    };
    let headings = ["case", "published", "measured", "modelled"];
    let taken: usize = headings.iter().enumerate().map(|(at, heading)| width(at, heading) + 2).sum();
    let room = style.width.saturating_sub(taken);
    let mut first: Vec<Cell> = vec![Cell::new("case")];
    first.extend(headings[1..].iter().map(Cell::right));
    if room >= LABEL {
        first.push(Cell::new(""));
    }
    let mut table = Table::with(first);
    for (case, [id, figures @ ..]) in cases.iter().zip(rows) {
        let mut row = vec![Cell::new(id)];
        row.extend(figures.iter().map(Cell::right));
        if room >= LABEL {
            row.push(Cell::new(common::shortened(&case.label, room)).painted(Paint::Dim));
        }
        table.row(row);
    }
    table.text(style)
}

fn comparisons(comparisons: &[ComparisonOutcome]) -> Table {
    let mut table = Table::with(vec![
        Cell::new("ratio of"),
        Cell::right("published"),
        Cell::new("measured (95 %)"),
        Cell::right("modelled"),
        Cell::new("verdict"),
    ]);
    for of in comparisons {
        let paint = match of.verdict {
            Verdict::SameFactor | Verdict::SameOrder => Paint::Good,
            Verdict::Differs => Paint::Bad,
            Verdict::NotShown => Paint::Warn,
            Verdict::Unpublished | Verdict::NotMeasured => Paint::Dim,
        };
        table.row(vec![
            Cell::new(words::pair(of)),
            Cell::right(words::published_ratio(of)),
            Cell::new(words::measured_ratio(of)),
            Cell::right(words::modelled_ratio(of)),
            Cell::new(words::verdict_of(of)).painted(paint),
        ]);
    }
    table
}

/// A sweep as a table: a row for each x, a column for each line.
fn sweep(sweep: &Sweep) -> (String, Table) {
    let mut headings = vec![Cell::new(&sweep.x)];
    headings.extend(sweep.lines.iter().map(|line| Cell::right(&line.name)));
    let mut table = Table::with(headings);
    for (x, figures) in crate::words::experiment::rows(sweep) {
        let mut row = vec![Cell::new(x)];
        row.extend(figures.iter().map(Cell::right));
        table.row(row);
    }
    (format!("{} ({})", sweep.title, words::unit(sweep.unit)), table)
}

fn counts(counts: &Counts) -> (String, Table) {
    let column = |at: usize, text: &String| if at == 0 { Cell::new(text) } else { Cell::right(text) };
    let cells = |row: &Vec<String>| row.iter().enumerate().map(|(at, text)| column(at, text)).collect();
    let mut table = Table::with(cells(&counts.columns));
    for row in &counts.rows {
        table.row(cells(row));
    }
    (counts.title.clone(), table)
}
