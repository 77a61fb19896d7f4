//! A run of the load on one screen: the conclusion, the outcome of all requests, three latencies, CPU time.

use udpath_load::result::{Latency, LoadResult, Segments};

use super::table::{Cell, Table};
use super::{Paint, Style, cpu_headings, cpu_lines};
use crate::{units, words};

pub(crate) fn text(result: &LoadResult, style: &Style) -> String {
    let style = *style;
    let paint = if result.generator.limited { Paint::Warn } else { Paint::Bold };
    let mut out = style.wrapped(paint, &words::load::conclusion(result), 0);
    for reason in &result.generator.reasons {
        out += &style.wrapped(Paint::Warn, &format!("generator: {reason}"), 2);
    }
    for warning in &result.warnings {
        out += &style.wrapped(Paint::Warn, &format!("warning: {warning}"), 2);
    }

    out.push('\n');
    out += &fates(result).text(style);
    if let Some(kinds) = words::load::kinds(result) {
        out += &style.wrapped(Paint::Plain, &kinds, 2);
    }
    let latencies = latencies(result);
    if !latencies.is_empty() {
        out.push('\n');
        out += &latency_table(&latencies, style);
    }
    if let Some(segments) = &result.segments {
        out.push('\n');
        out += &segment_table(segments).text(style);
    }
    if !result.cpus.is_empty() {
        let mut table = Table::with(cpu_headings("CPU time"));
        cpu_lines(&mut table, "", &result.cpus, &[]);
        out.push('\n');
        out += &table.text(style);
    }
    out.push('\n');
    let generator = format!("generator: {} of CPU time", units::duration(result.generator.cpu_seconds));
    out += &style.wrapped(Paint::Dim, &generator, 2);
    for line in words::load::per_core(result).into_iter().chain(words::load::per_busy_cpu(result)) {
        out += &style.wrapped(Paint::Dim, &line, 2);
    }
    for note in &result.generator.notes {
        out += &style.wrapped(Paint::Dim, &format!("generator: {note}"), 2);
    }
    out += &style.wrapped(Paint::Dim, &format!("load: {}", words::load::plan(result)), 2);
    if let Some(start) = &result.start {
        let segment = result.segment.as_ref().map(|share| format!("segment {}: ", share.segment));
        let line = format!("{}{}", segment.unwrap_or_default(), words::load::start(start));
        out += &style.wrapped(Paint::Dim, &line, 2);
    }
    if let Some(line) = result.segments.as_ref().and_then(words::load::segments) {
        out += &style.wrapped(Paint::Dim, &line, 2);
    }
    out
}

/// A row for each segment of a sum; those whose generator was the limit stand out.
fn segment_table(segments: &Segments) -> Table {
    let [segment, of, figures @ ..] = words::load::SEGMENT_HEADINGS;
    let headings = [Cell::new(segment), Cell::new(of)].into_iter().chain(figures.iter().map(Cell::right));
    let mut table = Table::with(headings.collect());
    for row in &segments.rows {
        let paint = if row.limits.is_empty() { Paint::Plain } else { Paint::Warn };
        let [segment, of, figures @ ..] = words::load::segment(row, segments.of);
        let cells = [Cell::new(segment), Cell::new(of)].into_iter().chain(figures.iter().map(Cell::right));
        table.row(cells.map(|cell| cell.painted(paint)).collect());
    }
    table
}

/// As many percentiles as fit the terminal; the least informative are left out first.
fn latency_table(latencies: &[(&'static str, &Latency)], style: Style) -> String {
    type Column = (&'static str, fn(&Latency) -> f64);
    const COLUMNS: [Column; 8] = [
        ("min", |l| l.min as f64),
        ("mean", |l| l.mean),
        ("p50", |l| l.p50 as f64),
        ("p90", |l| l.p90 as f64),
        ("p99", |l| l.p99 as f64),
        ("p99.9", |l| l.p99_9 as f64),
        ("p99.99", |l| l.p99_99 as f64),
        ("max", |l| l.max as f64),
    ];
    let with = |left_out: &[&str]| {
        let columns = || COLUMNS.iter().filter(|(name, _)| !left_out.contains(name));
        let headings = [Cell::new("latency")].into_iter().chain(columns().map(|(name, _)| Cell::right(name)));
        let mut table = Table::with(headings.collect());
        for (name, latency) in latencies {
            let figures = columns().map(|(_, of)| Cell::right(units::time(of(latency))));
            table.row([Cell::new(name)].into_iter().chain(figures).collect());
        }
        table
    };
    let expendable = ["p90", "min", "mean", "p99.99"];
    let fits =
        (0..=expendable.len()).map(|n| with(&expendable[..n])).find(|table| table.width() <= style.width);
    fits.unwrap_or_else(|| with(&expendable)).text(style)
}

/// The latencies that were measured, each with its name.
pub(crate) fn latencies(result: &LoadResult) -> Vec<(&'static str, &Latency)> {
    let all = [
        ("intended → answered", &result.intended_latency),
        ("sent → answered", &result.sent_latency),
        ("intended → sent", &result.lateness),
    ];
    all.into_iter().filter_map(|(name, latency)| Some((name, latency.as_ref()?))).collect()
}

/// Requests and replies, each kind with its share of the requests sent.
fn fates(result: &LoadResult) -> Table {
    let counts = result.counts;
    let mut headings: Vec<Cell> = vec![Cell::new("requests"), Cell::right(""), Cell::right("")];
    headings.extend([Cell::new("replies"), Cell::right(""), Cell::right("")]);
    let mut table = Table::with(headings);
    let requests = [
        ("sent", counts.sent),
        ("ok", counts.ok),
        ("late", counts.late),
        ("refused", counts.refused),
        ("lost", counts.lost),
        ("rejected by the kernel", counts.send_errors),
    ];
    let replies = [
        ("received", counts.received),
        ("duplicate", counts.duplicate),
        ("reordered", counts.reordered),
        ("corrupt", counts.corrupt),
        ("wrong flow", counts.wrong_flow),
    ];
    let share =
        |number: u64| units::loss(if counts.sent == 0 { 0.0 } else { number as f64 / counts.sent as f64 });
    for i in 0..requests.len() {
        let mut cells = Vec::new();
        for pair in [requests.get(i), replies.get(i)].into_iter().flatten() {
            let bad = pair.1 > 0 && !matches!(pair.0, "sent" | "ok" | "received");
            let paint = if bad { Paint::Warn } else { Paint::Plain };
            cells.push(Cell::new(pair.0).painted(paint));
            cells.push(Cell::right(units::count(pair.1)).painted(paint));
            cells.push(Cell::right(share(pair.1)).painted(Paint::Dim));
        }
        table.row(cells);
    }
    table
}
