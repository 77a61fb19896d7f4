//! Experiments as pages of the book: one for each, with its plot as a file beside it, and a page that lists them.
//!
//! ```text
//!  ExperimentResult ──▸ experiments.md            what each one came to
//!                   ──▸ experiments/NAME.md       figures, causes, counts
//!                   ──▸ experiments/NAME.svg      published beside measured beside modelled
//!                   ──▸ experiments/NAME-N.svg    a sweep
//! ```
//! The same result gives the same bytes, so that a check can compare pages and result. Host names are left out.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use udpath_experiment::outcome::{CaseOutcome, ComparisonOutcome, ExperimentResult, Outcome};
use udpath_experiment::verdict::Verdict;

use crate::svg::{self, Paper};
use crate::units;
use crate::words::experiment as words;
use crate::words::one_line;

/// A file of the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocsFile {
    /// Its path below the folder of the book.
    pub path: String,
    /// Its contents.
    pub contents: String,
}

/// The files of a result's pages; `source` is its text, whose digest they carry. Names that are not those of
/// experiments are left out.
#[must_use]
pub fn experiment_docs(result: &ExperimentResult, source: &str) -> Vec<DocsFile> {
    let mark = mark(source);
    let named = |outcome: &&Outcome| {
        let typed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !outcome.name.is_empty() && outcome.name.chars().all(typed)
    };
    let outcomes: Vec<&Outcome> = result.experiments.iter().filter(named).collect();
    let mut files =
        vec![DocsFile { path: "experiments.md".into(), contents: index(result, &outcomes, &mark) }];
    for outcome in outcomes {
        let file = |name: String, contents| DocsFile { path: format!("experiments/{name}"), contents };
        let mut plots = Vec::new();
        let mut plot = |name: String, drawing: String| {
            let drawn = !drawing.is_empty();
            if drawn {
                plots.push(file(name, standalone(&drawing)));
            }
            drawn
        };
        let has_plot =
            plot(format!("{}.svg", outcome.name), svg::experiment::draw(outcome, "plot", Paper::Wide));
        let sweeps: Vec<bool> = outcome
            .sweeps
            .iter()
            .enumerate()
            .map(|(at, sweep)| {
                plot(
                    format!("{}-{}.svg", outcome.name, at + 1),
                    svg::experiment::lines(sweep, "plot", Paper::Wide),
                )
            })
            .collect();
        files.push(file(
            format!("{}.md", outcome.name),
            mark.clone() + &page(result, outcome, has_plot, &sweeps),
        ));
        files.extend(plots);
    }
    files
}

/// First line of every page: `scripts/check-docs.sh` compares the digest with the result's.
fn mark(source: &str) -> String {
    let digest = Sha256::digest(source.trim_ascii());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "<!-- written by `make experiment-docs` from benches/results/experiments.json, sha256 {digest}: do not edit -->\n"
    )
}

/// A drawing as a file of its own: with its style, and paper below it.
fn standalone(drawing: &str) -> String {
    const STYLE: &str = include_str!("../templates/chart.css");
    const FONT: &str =
        "svg { font-family: system-ui, \"Segoe UI\", Roboto, \"Liberation Sans\", Arial, sans-serif; }";
    let (head, body) = drawing.split_once(">\n").unwrap_or((drawing, ""));
    format!(
        "{head} xmlns=\"http://www.w3.org/2000/svg\">\n<style>\n{STYLE}{FONT}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n{body}"
    )
}

fn index(result: &ExperimentResult, outcomes: &[&Outcome], mark: &str) -> String {
    let mut out = format!("{mark}# Published experiments, repeated\n\n");
    out += "udpath comes from five documents about UDP on busy machines. [`udpath experiment`](commands/experiment.md) repeats what they \
            measured and puts three figures side by side: the published one, that of this machine, and that of a model of the \
            published machine.\n\n";
    let _ = writeln!(out, "{}\n", text(&words::conclusion(result)));
    out += &rows(
        ["experiment", "published in", "same factor", "same order", "differs", "not shown"]
            .map(str::to_owned)
            .to_vec(),
        {
            let row = |outcome: &&Outcome| {
                let count =
                    |wanted| outcome.comparisons.iter().filter(|of| of.verdict == wanted).count().to_string();
                vec![
                    format!("[{}](experiments/{}.md)", text(&outcome.title), outcome.name),
                    text(&words::source(outcome)),
                    count(Verdict::SameFactor),
                    count(Verdict::SameOrder),
                    count(Verdict::Differs),
                    count(Verdict::NotShown),
                ]
            };
            outcomes.iter().map(row).collect()
        },
    );
    out + "\n" + &measured_on(result)
}

fn page(result: &ExperimentResult, outcome: &Outcome, has_plot: bool, sweeps: &[bool]) -> String {
    let mut out = format!("# {}\n\n**{}**\n\n", text(&outcome.title), text(&outcome.question));
    let _ = writeln!(
        out,
        "Published in {}. The machine there: {}.\n",
        text(&words::source(outcome)),
        text(&outcome.source.machine)
    );
    let _ = writeln!(out, "{}\n", text(&outcome.topology));
    if has_plot {
        let _ = writeln!(out, "![Published, measured and modelled ratios]({}.svg)\n", outcome.name);
    }
    if !outcome.cases.is_empty() {
        out += "## Figures\n";
        let row = |case: &CaseOutcome| {
            vec![
                format!("`{}`", code(&case.id)),
                text(
                    &case
                        .group
                        .as_ref()
                        .map_or_else(|| case.label.clone(), |group| format!("{group}: {}", case.label)),
                ),
                words::published(case),
                words::measured(case),
                words::modelled(case),
            ]
        };
        let headings = ["case", "what", "published", "measured here (quartiles)", "modelled"];
        out += &rows(headings.map(str::to_owned).to_vec(), outcome.cases.iter().map(row).collect());
        out.push('\n');
    }
    if !outcome.comparisons.is_empty() {
        out += "## What is compared\n";
        let row = |of: &ComparisonOutcome| {
            vec![
                format!("`{}`", code(&words::pair(of))),
                words::published_ratio(of),
                words::measured_ratio(of),
                words::modelled_ratio(of),
                words::verdict_of(of),
            ]
        };
        let headings = ["ratio of", "published", "measured (95 %)", "modelled", "verdict"];
        out += &rows(headings.map(str::to_owned).to_vec(), outcome.comparisons.iter().map(row).collect());
        out.push('\n');
        out += &list("## Why\n", outcome.comparisons.iter().filter_map(words::why));
    }
    out += &list("## What limited each case\n", outcome.cases.iter().filter_map(words::about));
    for (at, (sweep, drawn)) in outcome.sweeps.iter().zip(sweeps).enumerate() {
        let _ = writeln!(out, "## {}\n{}\n", text(&sweep.title), words::unit(sweep.unit));
        if *drawn {
            let _ = writeln!(out, "![{}]({}-{}.svg)\n", text(&sweep.title), outcome.name, at + 1);
        }
        let mut headings = vec![text(&sweep.x)];
        headings.extend(
            sweep.lines.iter().map(|line| text(&format!("{} ({})", line.name, words::origin(line.origin)))),
        );
        let lines =
            words::rows(sweep).into_iter().map(|(x, figures)| std::iter::once(x).chain(figures).collect());
        out += &rows(headings, lines.collect());
        out.push('\n');
    }
    for table in &outcome.tables {
        let _ = writeln!(out, "## {}", text(&table.title));
        let cells = |row: &Vec<String>| row.iter().map(|cell| text(cell)).collect();
        out += &rows(cells(&table.columns), table.rows.iter().map(cells).collect());
        out.push('\n');
    }
    out += &list("## Notes\n", outcome.notes.iter().cloned());
    if outcome.cases.is_empty() {
        // Counts alone: where they were taken is a note, and the other experiments' machine says nothing about them.
        return out + "Counted, not timed.\n";
    }
    out + &measured_on(result)
}

fn measured_on(result: &ExperimentResult) -> String {
    let machine = &result.machine;
    format!(
        "Measured on {}, {} × {}, Linux {}, udpath {}. Client and server share the CPUs: compare ratios, not rates.\n",
        units::date(result.started),
        machine.cpus,
        text(&machine.cpu_model),
        text(&machine.kernel),
        text(&result.version)
    )
}

fn list(heading: &str, items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("- {}\n", text(&item))).collect();
    if items.is_empty() { items } else { format!("{heading}{items}\n") }
}

/// A table of Markdown.
fn rows(headings: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); headings.len()];
    line(&headings) + &line(&rule).replace(' ', "") + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// Text that Markdown shows as it is.
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Text between backticks in a table.
fn code(text: &str) -> String {
    one_line(text).chars().filter(|c| !matches!(c, '`' | '|')).collect()
}
