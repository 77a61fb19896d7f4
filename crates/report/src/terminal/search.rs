//! A search for the highest rate as text: the conclusion, every run, and the last run at the highest rate held.

use udpath_load::search::{FindMax, RateVerdict};

use super::table::{Cell, Table};
use super::{Paint, Style, load};
use crate::units;

/// The result of `udpath load --find-max`.
#[must_use]
pub fn text(found: &FindMax, style: &Style) -> String {
    let closed = found.probes.iter().any(|probe| probe.inflight.is_some());
    let mut table = Table::with(vec![
        Cell::right(if closed { "in flight" } else { "offered/s" }),
        Cell::right("completed/s"),
        Cell::right("loss"),
        Cell::right("p99"),
        Cell::new("verdict"),
    ]);
    for probe in &found.probes {
        let p99 = probe.p99.map_or_else(|| units::NONE.to_owned(), |ns| units::time(ns as f64));
        let paint = match probe.verdict {
            RateVerdict::Held => Paint::Good,
            RateVerdict::Exceeded => Paint::Bad,
            RateVerdict::GeneratorLimited => Paint::Warn,
        };
        table.row(vec![
            Cell::right(probe.inflight.map_or_else(|| units::tps(probe.rate), |n| n.to_string())),
            Cell::right(units::tps(probe.tps)),
            Cell::right(units::loss(probe.loss)),
            Cell::right(p99),
            Cell::new(verdict(probe.verdict)).painted(paint),
            Cell::whole(&probe.reason),
        ]);
    }
    let mut out = style.wrapped(Paint::Bold, &found.sentence(), 0) + "\n" + &table.text(*style);
    if let Some(best) = &found.best {
        out += "\nLast run at the highest rate held:\n";
        out += &load::text(best, style);
    }
    out
}

/// A verdict as text.
pub(super) const fn verdict(verdict: RateVerdict) -> &'static str {
    match verdict {
        RateVerdict::Held => "held",
        RateVerdict::Exceeded => "exceeded",
        RateVerdict::GeneratorLimited => "generator limited",
    }
}
