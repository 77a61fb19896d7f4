//! Experiments in words: figures by their unit, verdicts, and what a run comes to.

use udpath_experiment::description::{Order, Unit};
use udpath_experiment::outcome::{
    CaseOutcome, ComparisonOutcome, ExperimentResult, FigureOrigin, Line, Measured, Outcome, Sweep,
};
use udpath_experiment::verdict::Verdict;

use crate::units;

/// A figure with its unit.
pub(crate) fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Tps | Unit::Pps => units::tps(value),
        Unit::GbitPerCore => format!("{} Gbit/s", units::tps(value)),
        Unit::NsPerPacket => units::time(value),
        Unit::CpuShare => units::share(value),
        Unit::Ratio => format!("{}×", units::ratio(value)),
    }
}

/// What the figures of a unit are, for an axis or a heading.
pub(crate) const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Tps => "transactions per second",
        Unit::Pps => "packets per second",
        Unit::GbitPerCore => "Gbit/s for each core of the receiver",
        Unit::NsPerPacket => "time per packet",
        Unit::CpuShare => "share of CPU time",
        Unit::Ratio => "ratio",
    }
}

/// The published figure of a case, with the published share of CPU time.
pub(crate) fn published(case: &CaseOutcome) -> String {
    with_cpu(case.published.map(|value| figure(case.unit, value)), case.published_cpu)
}

/// The figure measured here, with its quartiles and the share of CPU time.
pub(crate) fn measured(case: &CaseOutcome) -> String {
    with_cpu(case.measured.map(|measured| spread(case.unit, measured)), case.measured_cpu)
}

/// The figure of the model, with its band.
pub(crate) fn modelled(case: &CaseOutcome) -> String {
    case.modelled.map_or_else(
        || units::NONE.to_owned(),
        |modelled| {
            let [value, low, high] =
                [modelled.value, modelled.low, modelled.high].map(|value| figure(case.unit, value));
            if low == high { value } else { format!("{value} ({low}–{high})") }
        },
    )
}

fn spread(unit: Unit, measured: Measured) -> String {
    let [median, low, high] = [measured.median, measured.low, measured.high].map(|value| figure(unit, value));
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

fn with_cpu(figure: Option<String>, cpu: Option<f64>) -> String {
    match (figure, cpu) {
        (None, _) => units::NONE.to_owned(),
        (Some(figure), None) => figure,
        (Some(figure), Some(cpu)) => format!("{figure}, {} CPU", units::share(cpu)),
    }
}

/// The published ratio of a comparison, or the published order.
pub(crate) fn published_ratio(of: &ComparisonOutcome) -> String {
    match (of.published, of.published_order) {
        (Some(ratio), _) => units::ratio(ratio),
        (None, Some(Order::Slower)) => "slower".to_owned(),
        (None, Some(Order::Equal)) => "equal".to_owned(),
        (None, Some(Order::Faster)) => "faster".to_owned(),
        (None, None) => units::NONE.to_owned(),
    }
}

/// The measured ratio with its interval.
pub(crate) fn measured_ratio(of: &ComparisonOutcome) -> String {
    of.measured.map_or_else(|| units::NONE.to_owned(), units::interval)
}

/// The modelled ratio.
pub(crate) fn modelled_ratio(of: &ComparisonOutcome) -> String {
    of.modelled.map_or_else(|| units::NONE.to_owned(), units::ratio)
}

/// `spread / rss`.
pub(crate) fn pair(of: &ComparisonOutcome) -> String {
    format!("{} / {}", of.of, of.to)
}

/// A verdict.
pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::SameFactor => "same factor",
        Verdict::SameOrder => "same order",
        Verdict::Differs => "differs",
        Verdict::NotShown => "not shown",
        Verdict::Unpublished => "nothing published",
        Verdict::NotMeasured => "not measured",
    }
}

/// The verdict of a comparison; it says so where the model alone was compared.
pub(crate) fn verdict_of(of: &ComparisonOutcome) -> String {
    let word = verdict(of.verdict);
    match of.verdict {
        Verdict::SameFactor | Verdict::SameOrder | Verdict::Differs if of.measured.is_none() => {
            format!("{word} (model)")
        }
        _ => word.to_owned(),
    }
}

/// Why a comparison came out as it did, with its name; none if there is nothing to say.
pub(crate) fn why(of: &ComparisonOutcome) -> Option<String> {
    of.why.as_ref().map(|why| format!("{}: {why}", pair(of)))
}

/// Why a case has no figure, or what limited it, with its name.
pub(crate) fn about(case: &CaseOutcome) -> Option<String> {
    let text = case.not_measured.as_ref().or(case.limited_by.as_ref())?;
    Some(format!("{}: {text}", case.id))
}

/// How many comparisons of a run have each verdict, in one sentence.
pub(crate) fn conclusion(result: &ExperimentResult) -> String {
    let all = || result.experiments.iter().flat_map(|outcome| &outcome.comparisons);
    let with = |wanted: Verdict| all().filter(|of| of.verdict == wanted).count();
    let counts = [
        (with(Verdict::SameFactor), "the same factor"),
        (with(Verdict::SameOrder), "the same order"),
        (with(Verdict::Differs), "another order"),
        (with(Verdict::NotShown), "no order that is shown"),
        (with(Verdict::NotMeasured), "no measurement"),
    ];
    let compared: usize = counts.iter().map(|(count, _)| count).sum();
    let parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} with {what}"))
        .collect();
    let experiments = result.experiments.len();
    let plural = if experiments == 1 { "" } else { "s" };
    let took = units::duration(result.seconds);
    match compared {
        0 => format!("{experiments} experiment{plural} in {took}; nothing published was compared."),
        1 => format!(
            "{experiments} experiment{plural} in {took}: one published comparison, {}.",
            parts.join(", ")
        ),
        _ => format!(
            "{experiments} experiment{plural} in {took}: of {compared} published comparisons {}.",
            parts.join(", ")
        ),
    }
}

/// Where an experiment was published.
pub(crate) fn source(outcome: &Outcome) -> String {
    format!("{} ({})", outcome.source.title, outcome.source.by)
}

/// A sweep as rows: each x of any line, ascending, and the figure of each line there.
pub(crate) fn rows(sweep: &Sweep) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<f64> = sweep.lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all.into_iter()
        .map(|x| {
            let at = |line: &Line| {
                line.points.iter().find(|point| point.x.total_cmp(&x).is_eq()).map(|point| point.y)
            };
            let figures = sweep.lines.iter().map(at);
            let shown = figures.map(|y| y.map_or_else(|| units::NONE.to_owned(), |y| figure(sweep.unit, y)));
            (units::tps(x), shown.collect())
        })
        .collect()
}

/// Where a line's figures come from.
pub(crate) const fn origin(origin: FigureOrigin) -> &'static str {
    match origin {
        FigureOrigin::Published => "published",
        FigureOrigin::Measured => "measured",
        FigureOrigin::Modelled => "modelled",
    }
}

/// A case and the figures of its row as ratios to those of the first case of its group: published, measured, modelled.
pub(crate) fn ratios(cases: &[CaseOutcome]) -> Vec<(&CaseOutcome, [Option<f64>; 3])> {
    let figures = |case: &CaseOutcome| {
        [
            case.published,
            case.measured.map(|measured| measured.median),
            case.modelled.map(|modelled| modelled.value),
        ]
    };
    let first = |of: &CaseOutcome, at: usize| {
        let alike = |case: &&CaseOutcome| case.group == of.group && case.unit == of.unit;
        cases.iter().find(alike).and_then(|case| figures(case)[at])
    };
    cases
        .iter()
        .map(|case| {
            let own = figures(case);
            let ratio = |at: usize| {
                let (own, first) = own[at].zip(first(case, at))?;
                Some(own / first).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            };
            (case, [ratio(0), ratio(1), ratio(2)])
        })
        .collect()
}
