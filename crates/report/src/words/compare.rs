//! The sentences about two results compared that the terminal and the HTML share.

use udpath_advise::comparison::{CompareResult, Figure, Pair, Unit};
use udpath_advise::result::Verdict;

use super::{one_line, shortened};
use crate::units;

/// Longest value of a setting that a sentence quotes, characters.
const MAX_VALUE: usize = 40;

/// What the comparison comes to.
pub(crate) fn conclusion(result: &CompareResult) -> String {
    if !result.unlike.is_empty() {
        return format!("Not a fair comparison: the loads differ in {}.", unlike(&result.unlike));
    }
    let of = |wanted| {
        let figures = result.figures.iter().filter(|f| f.decisive && f.verdict == Some(wanted));
        figures.map(said).collect::<Vec<_>>().join(", ")
    };
    let (worse, better) = (of(Verdict::Worse), of(Verdict::Better));
    match result.verdict {
        Verdict::Worse if better.is_empty() => format!("B is worse than A: {worse}."),
        Verdict::Worse => format!("B is worse than A: {worse}; but better: {better}."),
        Verdict::Better => format!("B is better than A: {better}."),
        _ if result.figures.iter().any(|f| f.decisive && f.verdict.is_some()) => {
            "B is not shown to be better or worse than A.".to_owned()
        }
        _ => "Nothing is shown: no figure of both has a known scatter.".to_owned(),
    }
}

/// What differs in two loads: `flows (8 and 64), size (100 and 512)`.
#[must_use]
pub fn unlike(pairs: &[Pair]) -> String {
    let pair = |pair: &Pair| format!("{} ({} and {})", value(&pair.what), value(&pair.a), value(&pair.b));
    pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// A value of either side on one line, not long; a dash if there is none.
pub(crate) fn value(text: &str) -> String {
    if text.is_empty() { units::NONE.to_owned() } else { shortened(&one_line(text), MAX_VALUE) }
}

fn said(figure: &Figure) -> String {
    let name = match (figure.group.as_str(), figure.name.as_str()) {
        ("rate" | "best rung", name) => format!("{name}/s"),
        (group, name) if group.starts_with("latency") => format!("{name} of latency"),
        ("CPU time", _) => "CPU time per datagram".to_owned(),
        (_, name) => name.to_owned(),
    };
    match figure.ratio {
        Some(_) if figure.interval.is_some() => format!("{name} {}", ratio(figure)),
        _ => {
            let of = |value| amount(figure.unit, value);
            format!("{name} {} instead of {}", of(figure.b), of(figure.a))
        }
    }
}

/// A figure of one side.
pub(crate) fn amount(unit: Unit, value: Option<f64>) -> String {
    let Some(value) = value else { return units::NONE.to_owned() };
    match unit {
        Unit::Rate => units::tps(value),
        Unit::Nanoseconds => units::time(value),
        Unit::Share => units::loss(value),
    }
}

/// B over A, with the interval if it is known: `0.912× (0.905–0.919)`.
pub(crate) fn ratio(figure: &Figure) -> String {
    match (figure.interval, figure.ratio) {
        (Some(interval), _) => units::interval(interval).replacen(' ', "× ", 1),
        (None, Some(ratio)) => format!("{}×", units::ratio(ratio)),
        (None, None) => units::NONE.to_owned(),
    }
}

/// The verdict on a figure; empty if it has none.
pub(crate) const fn verdict(figure: &Figure) -> &'static str {
    match figure.verdict {
        Some(verdict) => units::verdict(verdict),
        None => "",
    }
}
