//! The page of experiments: a plot for each, its tables, and why figures differ.

use askama::Template;
use udpath_experiment::outcome::{CaseOutcome, ComparisonOutcome, ExperimentResult, Line, Outcome, Sweep};
use udpath_experiment::verdict::Verdict;

use super::{Figure, Head, rendered};
use crate::words::experiment as words;
use crate::{svg, units};

#[derive(Template)]
#[template(path = "experiment.html")]
struct Page<'a> {
    head: Head<'a>,
    experiments: Vec<Section<'a>>,
    facts: Vec<(&'static str, String)>,
    command: &'a str,
}

struct Section<'a> {
    outcome: &'a Outcome,
    source: String,
    took: String,
    chart: String,
    cases: Vec<Case<'a>>,
    /// What limited each case, or why it has no figure.
    about: Vec<String>,
    comparisons: Vec<Comparison>,
    /// Why comparisons came out as they did.
    whys: Vec<String>,
    sweeps: Vec<Lines<'a>>,
}

struct Case<'a> {
    /// The title of its group, if the group begins here.
    group: Option<&'a str>,
    of: &'a CaseOutcome,
    figures: [String; 3],
    /// Where it was published.
    place: &'a str,
}

struct Comparison {
    pair: String,
    figures: [String; 3],
    verdict: String,
    class: &'static str,
}

struct Lines<'a> {
    title: &'a str,
    unit: &'static str,
    chart: String,
    x: &'a str,
    names: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

pub(crate) fn page(result: &ExperimentResult) -> String {
    let machine = &result.machine;
    let (started, took) = (units::date(result.started), units::duration(result.seconds));
    let count = |wanted: &[Verdict]| {
        let all = result.experiments.iter().flat_map(|outcome| &outcome.comparisons);
        all.filter(|of| wanted.contains(&of.verdict)).count().to_string()
    };
    let figure =
        |what, wanted: &[Verdict], note: &str| Figure { what, value: count(wanted), note: note.to_owned() };
    rendered(&Page {
        head: Head {
            version: &result.version,
            title: "udpath experiment: published, measured, modelled".to_owned(),
            kind: format!("udpath experiment · {started} · took {took}"),
            headline: "Published experiments, repeated".to_owned(),
            lead: words::conclusion(result),
            figures: vec![
                figure("same factor", &[Verdict::SameFactor], "the published ratio is in the interval"),
                figure("same order", &[Verdict::SameOrder], "by another factor"),
                figure("differs", &[Verdict::Differs], "with the measured cause"),
                figure("not shown", &[Verdict::NotShown], "the interval has both orders"),
            ],
            flames: false,
        },
        experiments: result
            .experiments
            .iter()
            .enumerate()
            .map(|(at, outcome)| section(at, outcome))
            .collect(),
        facts: vec![
            ("kernel", format!("Linux {}", machine.kernel)),
            ("CPUs", format!("{} × {}", machine.cpus, machine.cpu_model)),
            ("memory", units::memory(machine.memory)),
            ("links", machine.link.clone()),
            ("measured", format!("{started}, {took} in all")),
        ],
        command: result.command.as_deref().unwrap_or_default(),
    })
}

fn section(at: usize, outcome: &Outcome) -> Section<'_> {
    Section {
        outcome,
        source: words::source(outcome),
        took: units::duration(outcome.seconds),
        chart: svg::both(|paper| svg::experiment::draw(outcome, &format!("experiment-{at}"), paper)),
        cases: cases(&outcome.cases),
        about: outcome.cases.iter().filter_map(words::about).collect(),
        comparisons: outcome.comparisons.iter().map(comparison).collect(),
        whys: outcome.comparisons.iter().filter_map(words::why).collect(),
        sweeps: outcome.sweeps.iter().enumerate().map(|(nth, sweep)| lines(at, nth, sweep)).collect(),
    }
}

fn cases(cases: &[CaseOutcome]) -> Vec<Case<'_>> {
    let mut rows = Vec::with_capacity(cases.len());
    let mut group = None;
    for of in cases {
        let own = of.group.as_deref();
        let begins = std::mem::replace(&mut group, own) != own;
        rows.push(Case {
            group: own.filter(|_| begins),
            of,
            figures: [words::published(of), words::measured(of), words::modelled(of)],
            place: of.place.as_deref().unwrap_or_default(),
        });
    }
    rows
}

fn comparison(of: &ComparisonOutcome) -> Comparison {
    Comparison {
        pair: words::pair(of),
        figures: [words::published_ratio(of), words::measured_ratio(of), words::modelled_ratio(of)],
        verdict: words::verdict_of(of),
        class: match of.verdict {
            Verdict::SameFactor | Verdict::SameOrder => "verdict better",
            Verdict::Differs => "verdict worse",
            Verdict::NotShown | Verdict::Unpublished | Verdict::NotMeasured => "verdict not-shown",
        },
    }
}

fn lines(at: usize, nth: usize, sweep: &Sweep) -> Lines<'_> {
    let name = |line: &Line| format!("{} ({})", line.name, words::origin(line.origin));
    Lines {
        title: &sweep.title,
        unit: words::unit(sweep.unit),
        chart: svg::both(|paper| svg::experiment::lines(sweep, &format!("sweep-{at}-{nth}"), paper)),
        x: &sweep.x,
        names: sweep.lines.iter().map(name).collect(),
        rows: words::rows(sweep),
    }
}
