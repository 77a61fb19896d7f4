//! Sentences about the history of results.

use udpath_advise::comparison::Pair;
use udpath_advise::result::Verdict;
use udpath_history::{Metric, Series, Shift};

use super::compare;
use crate::units;

/// Settings that a sentence names; the rest are counted.
const NAMED: usize = 6;

/// What a series is, on one line.
pub(crate) fn title(series: &Series) -> String {
    let name = if series.name.is_empty() { String::new() } else { format!(" '{}'", series.name) };
    format!("{}{name}: {}", series.kind, series.load)
}

/// The machine of a series.
pub(crate) fn machine(series: &Series) -> String {
    let identity = match series.machine.as_str() {
        "" => "a machine without identity".to_owned(),
        machine => format!("machine {machine}"),
    };
    format!(
        "{identity}, {}, {} {}",
        compare::value(&series.cpu_model),
        series.cpus,
        super::plural(series.cpus, "CPU")
    )
}

/// A change: dates, ratio, probability, and what else changed.
pub(crate) fn shift(shift: &Shift, metric: Metric) -> String {
    let ratio = units::interval(shift.ratio).replacen(' ', "× ", 1);
    let word = match shift.verdict {
        Verdict::Better => "better",
        _ => "worse",
    };
    let chance =
        if shift.p <= 0.001 { "p = 0.001 or less".to_owned() } else { format!("p = {:.3}", shift.p) };
    format!(
        "between {} (run {}) and {} (run {}): {} {ratio}, {word}, {chance}; {}",
        units::date(shift.from),
        shift.before,
        units::date(shift.to),
        shift.after,
        metric_title(metric),
        changed(&shift.differs)
    )
}

fn changed(pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return "kernel and settings are the same".to_owned();
    }
    let pair = |pair: &Pair| {
        format!("{} {} → {}", compare::value(&pair.what), compare::value(&pair.a), compare::value(&pair.b))
    };
    let named = pairs.iter().take(NAMED).map(pair).collect::<Vec<_>>().join(", ");
    match pairs.len().saturating_sub(NAMED) {
        0 => format!("changed with it: {named}"),
        more => format!("changed with it: {named}, and {more} more (--json)"),
    }
}

/// A metric as text.
pub(crate) const fn metric_title(metric: Metric) -> &'static str {
    match metric {
        Metric::Tps => "rate",
        Metric::P99 => "99th percentile of latency",
        Metric::Cpu => "CPU time each",
    }
}

/// A value of a metric; a dash if there is none.
pub(crate) fn value(metric: Metric, value: Option<f64>) -> String {
    let Some(value) = value else { return units::NONE.to_owned() };
    match metric {
        Metric::Tps => units::tps(value),
        Metric::P99 | Metric::Cpu => units::time(value),
    }
}
