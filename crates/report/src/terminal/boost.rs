//! The climb on one screen: the conclusion, the ladder twice (rates and verdicts; latency and cost), where the CPUs
//! of the first and the best rung spent their time, what each datagram costs with both, and what to know before believing it.

use udpath_advise::result::{BoostResult, RungResult, Verdict};
use udpath_profile::difference::Difference;

use super::table::{Cell, Table};
use super::{Paint, Style, bar, cpu_headings, cpu_lines, difference};
use crate::{units, words};

/// Widest bar, columns: beyond this it says nothing more.
const WIDEST_BAR: usize = 24;
/// Classes of CPU time that changed most. More: the screen is full of what matters least.
const CLASSES: usize = 6;
/// Narrowest bar worth its place, columns.
const NARROWEST_BAR: usize = 5;

pub(crate) fn text(result: &BoostResult, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &words::conclusion(result), 0);
    if result.rungs.is_empty() {
        return out + &closing(result, style);
    }
    let best = words::best(result);
    let is_best = |rung: &RungResult| best.is_some_and(|b| std::ptr::eq(b, rung));

    out.push('\n');
    let bare = ladder(result, 0, is_best).width();
    let room = style.width.saturating_sub(bare + 2).min(WIDEST_BAR);
    out += &ladder(result, if room < NARROWEST_BAR { 0 } else { room }, is_best).text(style);
    out += &notes(result, is_best, style);
    out.push('\n');
    out += &costs(result, is_best).text(style);

    let mut cpus = Table::with(cpu_headings("CPU time"));
    let first = &result.rungs[0];
    cpu_lines(&mut cpus, &words::name(first), &first.cpus);
    if let Some(best) = best.filter(|b| !std::ptr::eq(*b, first)) {
        cpu_lines(&mut cpus, &words::name(best), &best.cpus);
    }
    out.push('\n');
    out += &cpus.text(style);
    out += &profiles(result, style);
    out + &closing(result, style)
}

/// Where the CPU time of the first and of the best rung goes: a sentence each, what the difference comes to, and the classes
/// that changed most.
fn profiles(result: &BoostResult, style: Style) -> String {
    let Some(profiles) = &result.profiles else { return String::new() };
    let taken = words::profiled(result);
    let mut out = String::from("\n");
    for (name, profile) in &taken {
        let text = format!("{}: {}", words::shortened(&words::one_line(name), 24), profile.sentence);
        out += &style.wrapped(Paint::Plain, &text, 2);
    }
    if let Some(absent) = words::not_profiled(profiles) {
        out += &style.wrapped(Paint::Dim, &absent, 2);
    }
    if let [(first, a), (best, b)] = taken.as_slice() {
        let difference = Difference::new(a, b);
        out += &style.wrapped(Paint::Bold, &difference.sentence(), 2);
        out.push('\n');
        out += &difference::classes(&difference, [first, best], CLASSES).text(style);
    }
    out
}

/// Why rungs failed, and what was noted of the first and of the best one: those the conclusion rests on. The notes of
/// the others would push it off the screen.
fn notes(result: &BoostResult, is_best: impl Fn(&RungResult) -> bool, style: Style) -> String {
    let (mut out, mut more) = (String::new(), Vec::new());
    for rung in &result.rungs {
        let Some(note) = &rung.note else { continue };
        let failed = rung.verdict == Verdict::Failed;
        if failed || rung.verdict == Verdict::Base || is_best(rung) {
            let paint = if failed { Paint::Bad } else { Paint::Warn };
            out += &style.wrapped(paint, &format!("{}: {note}", words::name(rung)), 2);
        } else {
            more.push(words::name(rung));
        }
    }
    if !more.is_empty() {
        let text = format!("there are notes on {} too: see the JSON or the HTML", more.join(", "));
        out += &style.wrapped(Paint::Dim, &text, 2);
    }
    out
}

fn closing(result: &BoostResult, style: Style) -> String {
    let mut out = String::from("\n");
    for warning in &result.warnings {
        out += &style.wrapped(Paint::Warn, &format!("warning: {warning}"), 2);
    }
    out += &style.wrapped(Paint::Dim, &format!("load: {}", words::load(result)), 2);
    out += &style.wrapped(Paint::Dim, &format!("machine: {}", words::machine(result)), 2);
    out
}

/// Rates, ratios and verdicts; `bar_width` 0 leaves the bars out.
fn ladder(result: &BoostResult, bar_width: usize, is_best: impl Fn(&RungResult) -> bool) -> Table {
    let highest = result.rungs.iter().map(|r| r.tps).fold(0.0, f64::max);
    let mut headings = vec![Cell::new("rung"), Cell::right("tps")];
    if bar_width > 0 {
        headings.push(Cell::new(""));
    }
    headings.extend([Cell::new("ratio (95 % interval)"), Cell::new("verdict")]);
    let mut table = Table::with(headings);
    for rung in &result.rungs {
        let paint = if is_best(rung) {
            Paint::Bold
        } else if words::undone(rung) {
            Paint::Dim
        } else {
            Paint::Plain
        };
        let ran = rung.verdict != Verdict::Failed;
        let tps = if ran { units::tps(rung.tps) } else { units::NONE.to_owned() };
        let mut cells = vec![Cell::new(words::name(rung)).painted(paint), Cell::right(tps).painted(paint)];
        if bar_width > 0 {
            let share = if ran && highest > 0.0 { rung.tps / highest } else { 0.0 };
            // Padded, so that the bars' column is as wide as was planned whatever is in it.
            cells.push(Cell::new(format!("{:<bar_width$}", bar(share, bar_width))).painted(paint));
        }
        let ratio = match &rung.against {
            Some(against) if ran => {
                format!("{} × {}", units::interval(words::ratio(rung)), words::shortened(against, 24))
            }
            _ => String::new(),
        };
        let outcome = match (is_best(rung), rung.verdict) {
            (true, Verdict::Base) => "first and best".to_owned(),
            (true, _) => format!("{}, best", words::outcome(rung)),
            _ => words::outcome(rung),
        };
        let verdict = match rung.verdict {
            Verdict::Better => Paint::Good,
            Verdict::Worse | Verdict::Failed => Paint::Bad,
            Verdict::NotShown => Paint::Dim,
            Verdict::Base => Paint::Plain,
        };
        cells.extend([Cell::new(ratio).painted(paint), Cell::new(outcome).painted(verdict)]);
        table.row(cells);
    }
    table
}

/// Bandwidth, latency, loss and CPU time per transaction.
fn costs(result: &BoostResult, is_best: impl Fn(&RungResult) -> bool) -> Table {
    let mut headings = vec![Cell::new("rung")];
    headings.extend(["Mbit/s", "of 10 GbE", "p50", "p99", "p99.9", "loss", "CPU/trans."].map(Cell::right));
    let mut table = Table::with(headings);
    for rung in result.rungs.iter().filter(|r| r.verdict != Verdict::Failed) {
        let latency = |of: fn(&udpath_load::result::Latency) -> u64| {
            rung.latency.as_ref().map_or_else(|| units::NONE.to_owned(), |l| units::time(of(l) as f64))
        };
        let paint = if is_best(rung) {
            Paint::Bold
        } else if words::undone(rung) {
            Paint::Dim
        } else {
            Paint::Plain
        };
        let figures = [
            units::mbits(rung.wire_mbits),
            units::share_in_column(rung.line_share),
            latency(|l| l.p50),
            latency(|l| l.p99),
            latency(|l| l.p99_9),
            units::loss(rung.loss),
            units::time(rung.cpu_ns_per_transaction),
        ];
        let mut cells = vec![Cell::new(words::name(rung))];
        cells.extend(figures.map(Cell::right));
        table.row(cells.into_iter().map(|c| c.painted(paint)).collect());
    }
    table
}
