//! A climb as text. The summary fits on one screen: conclusion, ladder, three sentences on why, warnings. With details:
//! every note, costs and latency of each rung, CPU time of the first and the best rung, and the classes of CPU time
//! that changed most.

use udpath_advise::result::{BoostResult, RungResult, Verdict};
use udpath_profile::difference::Difference;

use super::table::{Cell, Table};
use super::{Paint, Style, bar, cpu_headings, cpu_lines, difference, progress, running};
use crate::unbroken::unbroken;
use crate::{units, words};

/// Lines of the summary: a terminal of 40 less the command, the line about the HTML report, and the next prompt.
const SCREEN: usize = 37;
/// Widest bar, columns: a wider one does not show more.
const WIDEST_BAR: usize = 24;
/// Classes of CPU time that changed most. More: the list fills with small changes.
const CLASSES: usize = 6;
/// Narrowest bar, columns.
const NARROWEST_BAR: usize = 5;
/// The last line of the summary.
const MORE: &str = "notes, latency, costs, CPU time, load, machine: --details or the HTML report";

/// Which notes on rungs are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notes {
    /// All.
    All,
    /// Those on failed rungs and on the first and the best, which the conclusion depends on.
    Main,
    /// Those on failed rungs.
    Failed,
}

/// A climb: a summary that fits on a screen of 40 lines, or all details.
#[must_use]
pub fn text(result: &BoostResult, style: &Style, details: bool) -> String {
    if details {
        return detailed(result, *style);
    }
    let all = summary(result, *style, Notes::Main);
    if all.lines().count() <= SCREEN { all } else { summary(result, *style, Notes::Failed) }
}

fn summary(result: &BoostResult, style: Style, which: Notes) -> String {
    let why = why(result, style);
    let gap = if why.is_empty() { "" } else { "\n" };
    let more = style.wrapped(Paint::Dim, MORE, 2);
    head(result, style, which) + gap + &why + "\n" + &warnings(result, style) + &more
}

fn detailed(result: &BoostResult, style: Style) -> String {
    let mut out = head(result, style, Notes::All);
    if let Some(first) = result.rungs.first() {
        let best = words::best(result);
        out.push('\n');
        out += &costs(result, |rung| is_best(result, rung)).text(style);
        let mut cpus = Table::with(cpu_headings("CPU time"));
        cpu_lines(&mut cpus, &words::name(first), &first.cpus, &[]);
        if let Some(best) = best.filter(|best| !std::ptr::eq(*best, first)) {
            cpu_lines(&mut cpus, &words::name(best), &best.cpus, &[]);
        }
        out.push('\n');
        out += &cpus.text(style);
        let why = why(result, style);
        if !why.is_empty() {
            out = out + "\n" + &why;
        }
        out += &classes(result, style);
    }
    out.push('\n');
    out += &warnings(result, style);
    out += &style.wrapped(Paint::Dim, &format!("load: {}", words::load(result)), 2);
    out + &style.wrapped(Paint::Dim, &format!("machine: {}", words::machine(result)), 2)
}

fn is_best(result: &BoostResult, rung: &RungResult) -> bool {
    words::best(result).is_some_and(|best| std::ptr::eq(best, rung))
}

/// The conclusion and the ladder, with notes and the rungs left out.
fn head(result: &BoostResult, style: Style, which: Notes) -> String {
    let mut out = style.wrapped(Paint::Bold, &words::conclusion(result), 0);
    if !result.rungs.is_empty() {
        let is_best = |rung: &RungResult| is_best(result, rung);
        out.push('\n');
        let bare = ladder(result, 0, is_best).width();
        let room = style.width.saturating_sub(bare + 2).min(WIDEST_BAR);
        out += &ladder(result, if room < NARROWEST_BAR { 0 } else { room }, is_best).text(style);
    }
    for rung in &result.left_out {
        out += &style.wrapped(Paint::Dim, &words::left_out(rung), 2);
    }
    if let Some(worth) = words::duets::worth(result) {
        out += &style.wrapped(Paint::Dim, &worth, 2);
    }
    out += &notes(result, style, which);
    let limits = words::limits(result, unbroken);
    if !limits.is_empty() {
        out.push('\n');
    }
    for limit in limits {
        out += &style.wrapped(Paint::Plain, &limit, 2);
    }
    if let Some(running) = &result.running {
        out = out + "\n" + &running::text(running, style);
    }
    out
}

/// Why the best rung is faster: the change of CPU time per datagram, and a sentence from each profile.
fn why(result: &BoostResult, style: Style) -> String {
    let Some(profiles) = &result.profiles else { return String::new() };
    let taken = words::profiled(result);
    let mut out = String::new();
    if let [(_, a), (_, b)] = taken.as_slice() {
        out += &style.wrapped(Paint::Bold, &Difference::new(&a.profile, &b.profile).sentence(), 2);
    }
    for (name, result) in &taken {
        let text = format!("{}: {}", words::shortened(&words::one_line(name), 24), result.sentence);
        out += &style.wrapped(Paint::Plain, &text, 2);
    }
    if let Some(absent) = words::not_profiled(profiles) {
        out += &style.wrapped(Paint::Dim, &absent, 2);
    }
    out
}

/// The classes of CPU time that changed most between the first and the best rung.
fn classes(result: &BoostResult, style: Style) -> String {
    match words::profiled(result).as_slice() {
        [(first, a), (best, b)] => {
            let difference = Difference::new(&a.profile, &b.profile);
            String::from("\n") + &difference::classes(&difference, [first, best], CLASSES).text(style)
        }
        _ => String::new(),
    }
}

/// Notes on rungs, and the names of the rungs whose notes are not printed.
fn notes(result: &BoostResult, style: Style, which: Notes) -> String {
    let (mut out, mut more) = (String::new(), Vec::new());
    for rung in &result.rungs {
        let Some(note) = &rung.note else { continue };
        let failed = rung.verdict == Verdict::Failed;
        let main = rung.verdict == Verdict::Base || is_best(result, rung);
        if failed || which == Notes::All || main && which == Notes::Main {
            let paint = if failed { Paint::Bad } else { Paint::Warn };
            let text = format!("{}: {note}", words::name(rung));
            // If there is little room, two lines.
            let most = if which == Notes::Failed { 2 * style.width.max(40) - 20 } else { usize::MAX };
            out += &style.wrapped(paint, &words::shortened(&text, most), 2);
        } else {
            more.push(words::name(rung));
        }
    }
    if !more.is_empty() {
        let text = format!("notes on {}: see --details or the report", more.join(", "));
        out += &style.wrapped(Paint::Dim, &text, 2);
    }
    out
}

fn warnings(result: &BoostResult, style: Style) -> String {
    let line = |warning: &String| style.wrapped(Paint::Warn, &format!("warning: {warning}"), 2);
    result.warnings.iter().map(line).collect()
}

/// Rates, ratios and verdicts; `bar_width` 0 leaves the bars out.
fn ladder(result: &BoostResult, bar_width: usize, is_best: impl Fn(&RungResult) -> bool) -> Table {
    let highest = result.rungs.iter().map(|r| r.tps).fold(0.0, f64::max);
    let mut headings = vec![Cell::new("rung"), Cell::right(progress::unit(words::is_live(result)))];
    if bar_width > 0 {
        headings.push(Cell::new(""));
    }
    headings.extend([Cell::new("ratio (95 % interval)"), Cell::new("verdict")]);
    let mut table = Table::with(headings);
    for rung in &result.rungs {
        let paint = paint(rung, is_best(rung));
        let ran = rung.verdict != Verdict::Failed;
        let tps = if ran { units::tps(rung.tps) } else { units::NONE.to_owned() };
        let mut cells = vec![Cell::new(words::name(rung)).painted(paint), Cell::right(tps).painted(paint)];
        if bar_width > 0 {
            let share = if ran && highest > 0.0 { rung.tps / highest } else { 0.0 };
            // Padded, so that the column's width does not depend on the shares.
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

/// The best rung stands out; one that was undone does not.
fn paint(rung: &RungResult, is_best: bool) -> Paint {
    match (is_best, words::undone(rung)) {
        (true, _) => Paint::Bold,
        (false, true) => Paint::Dim,
        (false, false) => Paint::Plain,
    }
}

/// Bandwidth, latency, loss and CPU time per transaction.
fn costs(result: &BoostResult, is_best: impl Fn(&RungResult) -> bool) -> Table {
    let mut headings = vec![Cell::new("rung")];
    headings.extend(["Mbit/s", "of 10 GbE", "p50", "p99", "p99.9", "loss", "CPU/trans."].map(Cell::right));
    let mut table = Table::with(headings);
    for rung in result.rungs.iter().filter(|r| r.verdict != Verdict::Failed) {
        let paint = paint(rung, is_best(rung));
        let mut cells = vec![Cell::new(words::name(rung))];
        cells.extend(words::costs(rung).map(Cell::right));
        table.row(cells.into_iter().map(|c| c.painted(paint)).collect());
    }
    table
}
