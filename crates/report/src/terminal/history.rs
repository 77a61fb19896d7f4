//! The history of results: a table of each series, its changes, and on request a plot.

use udpath_advise::result::Verdict;
use udpath_history::{Listing, MAX_ANALYSED, Metric, Run, Series, fingerprint};

use super::table::{Cell, Table};
use super::{Paint, Style, plot};
use crate::units;
use crate::words::{self, history};

/// Most runs of a series in its table, the newest; `--json` has all of them.
const ROWS: usize = 20;

/// The listing; with a plot of each series if `plotted`.
#[must_use]
pub fn text(listing: &Listing, style: &Style, plotted: bool) -> String {
    let mut out = String::new();
    for one in &listing.series {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &series(one, listing.metric, *style, plotted);
    }
    if listing.series.is_empty() {
        out += "No runs.\n";
    }
    out
}

fn series(series: &Series, metric: Metric, style: Style, plotted: bool) -> String {
    let mut out = style.wrapped(Paint::Bold, &history::title(series), 2);
    out += &style.wrapped(Paint::Dim, &history::machine(series), 2);
    out += &table(series).text(style);
    let left_out = series.runs.len().saturating_sub(ROWS);
    if left_out > 0 {
        out += &style.wrapped(
            Paint::Dim,
            &format!("{left_out} older runs are left out; --json has them all"),
            2,
        );
    }
    if plotted {
        out += &drawn(series, metric, style);
    }
    for shift in &series.shifts {
        let paint = if shift.verdict == Verdict::Better { Paint::Good } else { Paint::Bad };
        out += &style.wrapped(paint, &history::shift(shift, metric), 2);
    }
    if series.shifts.is_empty() {
        let title = words::capital(history::metric_title(metric));
        out += &style.wrapped(Paint::Plain, &format!("{title}: no change is shown."), 2);
    }
    if series.runs.len() > MAX_ANALYSED {
        out += &style.wrapped(Paint::Dim, &format!("Only the newest {MAX_ANALYSED} runs are searched."), 2);
    }
    out
}

fn table(series: &Series) -> Table {
    let mut headings =
        vec![Cell::right("run"), Cell::new("date"), Cell::new("kernel"), Cell::new("settings")];
    headings.extend(["tps", "p99", "CPU each"].map(Cell::right));
    headings.push(Cell::new(""));
    let mut table = Table::with(headings);
    for run in series.runs.iter().skip(series.runs.len().saturating_sub(ROWS)) {
        let changed = series.shifts.iter().find(|shift| shift.after == run.id);
        let paint = match changed.map(|shift| shift.verdict) {
            Some(Verdict::Better) => Paint::Good,
            Some(_) => Paint::Bad,
            None => Paint::Plain,
        };
        let mut cells = vec![
            Cell::right(run.id.to_string()),
            Cell::new(units::date(run.origin.at)),
            Cell::new(&run.origin.kernel),
            Cell::new(fingerprint(&run.origin.settings)),
        ];
        let figures = Metric::ALL.map(|metric| (metric, metric.of(run)));
        cells.extend(figures.map(|(metric, value)| Cell::right(history::value(metric, value))));
        cells.push(Cell::new(if changed.is_some() { "◂ change" } else { "" }).painted(paint));
        table.row(cells);
    }
    table
}

/// The plot of a metric, with the dates of the first and the last run below.
fn drawn(series: &Series, metric: Metric, style: Style) -> String {
    let measured: Vec<(&Run, f64)> =
        series.runs.iter().filter_map(|run| Some((run, metric.of(run)?))).collect();
    let values: Vec<f64> = measured.iter().map(|(_, value)| *value).collect();
    let at = |id: i64| measured.iter().position(|(run, _)| run.id == id);
    let marks: Vec<usize> = series.shifts.iter().filter_map(|shift| at(shift.after)).collect();
    let width = style.width.clamp(40, 120);
    let mut out = plot::draw(&values, &marks, width, |value| history::value(metric, Some(value)));
    if let ([(first, _), ..], [.., (last, _)]) = (&measured[..], &measured[..])
        && !out.is_empty()
    {
        let dates = format!(
            "{}, {} to {}",
            history::metric_title(metric),
            units::date(first.origin.at),
            units::date(last.origin.at)
        );
        out += &style.wrapped(Paint::Dim, &dates, 2);
    }
    out
}
