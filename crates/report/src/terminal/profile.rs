//! A profile on one screen: the sentence and the findings, then classes, locks, CPUs and processes.

use udpath_advise::ProfileResult;
use udpath_load::cpu::CpuUse;
use udpath_profile::classes::Class;
use udpath_profile::profile::{Accounted, CpuLine, ProcessShare, Profile, Share};

use super::table::{Cell, Table};
use super::traces;
use super::{Paint, Style, bar, cpu_headings, cpu_lines};
use crate::hardware::counters;
use crate::time_line::{self, Lane, folded, mark};
use crate::{finding, units, words};

/// Most lines of each part.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Classes; further ones are below a point or two.
    classes: usize,
    locks: usize,
    processes: usize,
    /// Findings after the one in the sentence.
    findings: usize,
    /// Lines of each table of traces.
    traced: usize,
    notes: usize,
    /// Show the CPUs by /proc/stat as well; if the two disagree, a note says so.
    stat: bool,
    /// Empty lines between the tables.
    airy: bool,
}

/// From everything, which needs a screen of 40 lines, to the minimum for any screen.
const EXTENTS: [Extent; 9] = [
    Extent {
        classes: 12,
        locks: 4,
        processes: 4,
        findings: 4,
        traced: 5,
        notes: usize::MAX,
        stat: true,
        airy: true,
    },
    Extent { classes: 12, locks: 3, processes: 3, findings: 3, traced: 3, notes: 3, stat: true, airy: true },
    Extent { classes: 10, locks: 2, processes: 3, findings: 2, traced: 2, notes: 2, stat: false, airy: true },
    Extent { classes: 8, locks: 2, processes: 2, findings: 2, traced: 2, notes: 1, stat: false, airy: true },
    Extent { classes: 6, locks: 1, processes: 2, findings: 1, traced: 1, notes: 0, stat: false, airy: true },
    Extent { classes: 6, locks: 1, processes: 1, findings: 1, traced: 1, notes: 0, stat: false, airy: false },
    Extent { classes: 4, locks: 1, processes: 1, findings: 1, traced: 1, notes: 0, stat: false, airy: false },
    Extent { classes: 4, locks: 0, processes: 1, findings: 1, traced: 1, notes: 0, stat: false, airy: false },
    Extent { classes: 3, locks: 0, processes: 1, findings: 1, traced: 0, notes: 0, stat: false, airy: false },
];
/// Most columns of the time line; longer profiles merge seconds.
const SECONDS: usize = 16;
/// From this number of CPUs on, one line shows all of them: fewer have lines of their own.
const MANY_CPUS: usize = 5;
/// Processes with a line each, unless more are requested.
const PROCESSES: usize = 4;
/// Smallest share of a lock or process that is shown.
const LEAST: f64 = 0.005;
/// Widest and narrowest bar, columns.
const BAR: (usize, usize) = (30, 5);

/// All of it.
pub(crate) fn text(result: &ProfileResult, style: &Style) -> String {
    drawn(result, *style, &EXTENTS[0])
}

/// A profile as text on at most this many lines; the sentence and the largest of each kind always. `None`: all of it.
#[must_use]
pub fn within(result: &ProfileResult, style: &Style, lines: Option<usize>) -> String {
    let texts = EXTENTS.iter().map(|extent| drawn(result, *style, extent));
    let Some(most) = lines else { return text(result, style) };
    let mut last = String::new();
    for text in texts {
        last = text;
        if last.lines().count() <= most {
            break;
        }
    }
    last
}

fn drawn(result: &ProfileResult, style: Style, extent: &Extent) -> String {
    let profile = &result.profile;
    let mut out = style.wrapped(Paint::Bold, &result.sentence, 0);
    for finding in result.findings.iter().take(extent.findings) {
        let new = (!finding::is_said(result, finding)).then(|| format!("{}.", finding.evidence));
        let text: Vec<String> = new.into_iter().chain(finding::fixes_to_wrap(finding)).collect();
        out += &style.wrapped(Paint::Plain, &text.join(" "), 2);
    }
    let gap = |out: &mut String| {
        if extent.airy {
            out.push('\n');
        }
    };
    gap(&mut out);
    out += &style.wrapped(Paint::Plain, &words::sampled(profile), 2);
    for line in words::datagrams(profile) {
        out += &style.wrapped(Paint::Plain, &line, 2);
    }
    let tables = [classes(profile, style, extent), hardware(profile, extent), locks(profile, extent)];
    for table in tables.into_iter().flatten() {
        gap(&mut out);
        out += &table.text(style);
    }
    if let Some(table) = cpus(profile, style, extent) {
        gap(&mut out);
        out += &table.text(style);
        out += &every_cpu(profile, style);
    }
    for table in processes(profile, extent).into_iter().chain(traces::tables(profile, extent.traced)) {
        gap(&mut out);
        out += &table.text(style);
    }
    let traced = traces::notes(&profile.traces);
    let notes: Vec<&String> = traced.iter().chain(&profile.notes).collect();
    if !notes.is_empty() {
        gap(&mut out);
    }
    let shown = notes.len().min(extent.notes);
    for note in &notes[..shown] {
        out += &style.wrapped(Paint::Dim, &format!("note: {note}"), 2);
    }
    let left = notes.len() - shown;
    if left > 0 {
        let (more, notes) = (if shown > 0 { " more" } else { "" }, if left == 1 { "note" } else { "notes" });
        let said = format!("{left}{more} {notes}: in a higher window, --json and --report");
        out += &style.wrapped(Paint::Dim, &said, 2);
    }
    out
}

fn classes(profile: &Profile, style: Style, extent: &Extent) -> Option<Table> {
    if profile.classes.is_empty() {
        return None;
    }
    let bare = class_table(profile, 0, extent).width();
    let room = style.width.saturating_sub(bare + 2).min(BAR.0);
    Some(class_table(profile, if room < BAR.1 { 0 } else { room }, extent))
}

/// `bar_width` 0 leaves the bars out.
fn class_table(profile: &Profile, bar_width: usize, extent: &Extent) -> Table {
    let counted = profile.per_datagram(1).is_some();
    let paired = profile.per_transaction(1).is_some();
    let mut headings = vec![Cell::new("class")];
    headings.extend((bar_width > 0).then(|| Cell::new("")));
    headings.push(Cell::right("CPU time"));
    headings.extend(counted.then(|| Cell::right("/datagram")));
    headings.extend(paired.then(|| Cell::right("/transaction")));
    let mut table = Table::with(headings);
    let most = profile.classes.first().map_or(0.0, |share| share.share);
    let mut row = |name: &str, share: f64, charged: u64, paint: Paint| {
        let mut cells = vec![Cell::new(name).painted(paint)];
        // Padded, so that the bars' column has its planned width.
        cells.extend((bar_width > 0).then(|| {
            let part = if most > 0.0 { share / most } else { 0.0 };
            Cell::new(format!("{:<bar_width$}", bar(part, bar_width))).painted(paint)
        }));
        let cost = |cost: Option<f64>| cost.map(|ns| Cell::right(units::time(ns)).painted(paint));
        cells.push(Cell::right(units::share_in_column(share)).painted(paint));
        cells.extend(cost(profile.per_datagram(charged)));
        cells.extend(cost(profile.per_transaction(charged)));
        table.row(cells);
    };
    let shown = profile.classes.len().min(extent.classes);
    for share in &profile.classes[..shown] {
        let paint = if share.of == Class::Unclassified { Paint::Warn } else { Paint::Plain };
        row(share.of.title(), share.share, share.charged(), paint);
    }
    let rest = &profile.classes[shown..];
    if !rest.is_empty() {
        let (share, charged) =
            (rest.iter().map(|share| share.share).sum(), rest.iter().map(Share::charged).sum());
        row(&format!("{} others", rest.len()), share, charged, Paint::Dim);
    }
    table
}

/// Hardware counters, if there are any: of all classes, and of half as many classes as there are lines for.
fn hardware(profile: &Profile, extent: &Extent) -> Option<Table> {
    let counters = counters(profile)?;
    let headings = std::iter::once(Cell::new(counters.unit));
    let headings = headings.chain(counters.headings.into_iter().map(Cell::right));
    let mut table = Table::with(headings.collect());
    for (name, figures) in counters.rows.into_iter().take(extent.classes / 2) {
        table.row(std::iter::once(Cell::new(name)).chain(figures.into_iter().map(Cell::right)).collect());
    }
    Some(table)
}

fn locks(profile: &Profile, extent: &Extent) -> Option<Table> {
    let large: Vec<&Share<String>> =
        profile.locks.iter().filter(|lock| lock.share >= LEAST).take(extent.locks).collect();
    if large.is_empty() {
        return None;
    }
    let counted = profile.per_datagram(1).is_some();
    let mut headings = vec![Cell::new("lock of"), Cell::right("CPU time")];
    headings.extend(counted.then(|| Cell::right("/datagram")));
    let mut table = Table::with(headings);
    for lock in large {
        let mut cells =
            vec![Cell::new(lock.of.replace('-', " ")), Cell::right(units::share_in_column(lock.share))];
        cells.extend(profile.per_datagram(lock.charged()).map(|ns| Cell::right(units::time(ns))));
        table.row(cells);
    }
    Some(table)
}

fn cpus(profile: &Profile, style: Style, extent: &Extent) -> Option<Table> {
    if profile.cpus.is_empty() {
        return None;
    }
    let used = sampled(profile);
    let lanes = time_line::lanes(profile, SECONDS);
    let drawn = |timed: bool| {
        let mut headings = cpu_headings("CPU time by");
        headings.extend(timed.then(|| Cell::new("over time")));
        let mut table = Table::with(headings);
        cpu_lines(&mut table, "samples", &used, if timed { &lanes } else { &[] });
        if extent.stat {
            cpu_lines(&mut table, "/proc/stat", &accounted(profile), &[]);
        }
        table
    };
    let timed = drawn(!lanes.is_empty());
    Some(if timed.width() <= style.width { timed } else { drawn(false) })
}

/// Many CPUs on one line, from the first to the last, each as high as it was busy; neighbours share a character, which
/// shows the busiest one.
fn every_cpu(profile: &Profile, style: Style) -> String {
    let used = sampled(profile);
    let (Some(first), Some(last)) = (used.first(), used.last()) else { return String::new() };
    if used.len() < MANY_CPUS {
        return String::new();
    }
    let ends = [format!("CPU {} ", first.cpu), format!(" {}", last.cpu)];
    let room = style.width.saturating_sub(ends[0].len() + ends[1].len()).max(20);
    let lanes = used.iter().map(|used| Lane { cpus: (used.cpu, used.cpu), slices: vec![*used] }).collect();
    let marks =
        folded(lanes, room).iter().filter_map(|lane| lane.slices.first().map(mark)).collect::<String>();
    format!("{}{marks}{}\n", ends[0], ends[1])
}

/// The CPUs by the samples, as /proc/stat divides their time.
pub(crate) fn sampled(profile: &Profile) -> Vec<CpuUse> {
    let of = |line: &CpuLine| {
        let seconds = profile.sampled_seconds(line);
        time_line::shares(line.cpu, seconds, |contexts| {
            let ns = contexts.iter().filter_map(|context| line.sampled.get(context));
            let ns = ns.fold(0_u64, |sum, ns| sum.saturating_add(*ns));
            ns as f64 / 1e9 / seconds.max(1e-9)
        })
    };
    profile.cpus.iter().map(of).collect()
}

/// The CPUs by the kernel's own accounting, if known.
pub(crate) fn accounted(profile: &Profile) -> Vec<CpuUse> {
    let of = |line: &CpuLine| {
        let Accounted { usr, sys, irq, soft, steal, idle } = line.accounted?;
        Some(CpuUse { cpu: line.cpu, usr, sys, soft, irq, steal, idle, seconds: profile.seconds })
    };
    profile.cpus.iter().filter_map(of).collect()
}

fn processes(profile: &Profile, extent: &Extent) -> Option<Table> {
    let mut chosen = chosen(profile);
    if extent.processes < PROCESSES {
        chosen.truncate(extent.processes);
    }
    if chosen.is_empty() {
        return None;
    }
    let headings = [
        Cell::new("process"),
        Cell::right("pid"),
        Cell::right("CPU time"),
        Cell::right("threads"),
        Cell::new("busiest thread"),
    ];
    let mut table = Table::with(headings.to_vec());
    for process in chosen {
        let wanted = profile.facts.focus.pids.contains(&process.pid);
        let paint = if wanted { Paint::Bold } else { Paint::Plain };
        let busiest = process.threads.first().map_or_else(String::new, |thread| {
            let part = thread.ns as f64 / profile.busy().max(1) as f64;
            format!("{} ({}) {}", thread.name, thread.tid, units::share(part))
        });
        let readers = process.threads.iter().filter(|thread| thread.reads).count();
        let threads = match readers {
            0 => process.threads.len().to_string(),
            _ => format!("{}, {readers} read UDP", process.threads.len()),
        };
        let cells = [
            Cell::new(name(process)),
            Cell::right(process.pid.to_string()),
            Cell::right(units::share_in_column(process.share)),
            Cell::right(threads),
            Cell::new(busiest),
        ];
        table.row(cells.into_iter().map(|cell| cell.painted(paint)).collect());
    }
    Some(table)
}

/// Processes to show: the requested ones, and the largest.
pub(crate) fn chosen(profile: &Profile) -> Vec<&ProcessShare> {
    let focus = &profile.facts.focus.pids;
    let worth = |process: &&ProcessShare| {
        focus.contains(&process.pid) || (process.pid != 0 && process.share >= LEAST)
    };
    profile.processes.iter().filter(worth).take(PROCESSES.max(focus.len().min(2 * PROCESSES))).collect()
}

/// A process's name; the kernel's idle task has none of its own.
pub(crate) fn name(process: &ProcessShare) -> &str {
    if process.name.is_empty() { units::NONE } else { &process.name }
}
