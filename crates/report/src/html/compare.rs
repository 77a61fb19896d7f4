//! The page of two results compared.

use askama::Template;
use udpath_advise::comparison::{CompareResult, Figure};
use udpath_advise::result::Verdict;
use udpath_load::result::Latency;
use udpath_profile::difference::Difference;

use super::change::Change;
use super::{Head, LatencyRow, latency_row, rendered};
use crate::json::Document;
use crate::svg;
use crate::svg::flame::Graph;
use crate::svg::latency::Curve;
use crate::words::{self, compare};

#[derive(Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    head: Head<'a>,
    names: [&'a str; 2],
    notes: Vec<&'a str>,
    rows: Vec<Row>,
    latency_rows: Vec<LatencyRow>,
    latency_chart: String,
    changed: Option<Change<'a>>,
    differs: Vec<[String; 3]>,
}

struct Row {
    group: String,
    begins: bool,
    name: String,
    a: String,
    b: String,
    ratio: String,
    verdict: &'static str,
    bad: bool,
}

pub(crate) fn page(result: &CompareResult, names: [&str; 2], documents: [&Document; 2]) -> String {
    let latencies: Vec<(&str, &Latency)> =
        ["A", "B"].into_iter().zip(documents).filter_map(|(side, of)| Some((side, latency(of)?))).collect();
    let curves: Vec<Curve<'_>> = latencies
        .iter()
        .enumerate()
        .map(|(look, (name, latency))| Curve { name, latency, strong: true, look })
        .collect();
    let changed = match documents {
        [Document::Profile(a), Document::Profile(b)] => {
            let difference = Difference::new(&a.profile, &b.profile);
            Some(Change::new(&difference, &a.profile, &b.profile, ["A", "B"], &Graph::ONLY))
        }
        _ => None,
    };
    rendered(&Page {
        head: Head {
            version: env!("CARGO_PKG_VERSION"),
            title: format!("udpath compare: two results of {}", result.kind.name()),
            kind: format!("udpath compare · B against A, {}", result.kind.name()),
            headline: headline(result).to_owned(),
            lead: compare::conclusion(result),
            figures: Vec::new(),
            flames: changed.is_some(),
        },
        names,
        notes: result.notes.iter().map(String::as_str).collect(),
        rows: rows(&result.figures),
        latency_rows: latencies.iter().map(|(name, latency)| latency_row(name, false, latency)).collect(),
        latency_chart: if curves.is_empty() {
            String::new()
        } else {
            svg::both(|paper| svg::latency::draw(&curves, paper))
        },
        changed,
        differs: result
            .differs
            .iter()
            .map(|pair| [words::one_line(&pair.what), compare::value(&pair.a), compare::value(&pair.b)])
            .collect(),
    })
}

fn headline(result: &CompareResult) -> &'static str {
    match result.verdict {
        _ if !result.unlike.is_empty() => "Not a fair comparison",
        Verdict::Worse => "B is worse than A",
        Verdict::Better => "B is better than A",
        _ => "No difference is shown",
    }
}

/// The latency that the verdict is about.
fn latency(document: &Document) -> Option<&Latency> {
    match document {
        Document::Load(result) => result.intended_latency.as_ref().or(result.sent_latency.as_ref()),
        Document::Boost(result) => words::best(result)?.latency.as_ref(),
        Document::Profile(_) | Document::Experiment(_) => None,
    }
}

fn rows(figures: &[Figure]) -> Vec<Row> {
    let mut group = "";
    let row = |figure: &'_ Figure, begins| Row {
        group: figure.group.clone(),
        begins,
        name: figure.name.clone(),
        a: compare::amount(figure.unit, figure.a),
        b: compare::amount(figure.unit, figure.b),
        ratio: compare::ratio(figure),
        verdict: compare::verdict(figure),
        bad: figure.verdict == Some(Verdict::Worse),
    };
    let mut rows = Vec::with_capacity(figures.len());
    for figure in figures {
        rows.push(row(figure, std::mem::replace(&mut group, &figure.group) != figure.group));
    }
    rows
}
