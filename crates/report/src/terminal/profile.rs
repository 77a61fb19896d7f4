//! A profile on one screen: the sentence a colleague would say, then classes, locks, CPUs and processes.

use udpath_load::cpu::CpuUse;
use udpath_profile::classes::Class;
use udpath_profile::profile::{Accounted, CpuLine, ProcessShare, Profile, Share};

use super::table::{Cell, Table};
use super::traces;
use super::{Paint, Style, bar, cpu_headings, cpu_lines};
use crate::hardware::counters;
use crate::{units, words};

/// Classes that get a line each. A screen of 40 lines has room for no more; what follows is below a point or two.
const CLASSES: usize = 12;
/// Lines of hardware counters, the first of all classes.
const COUNTED: usize = 6;
/// The same for locks, for processes, and for findings after the one in the sentence.
const LOCKS: usize = 4;
const PROCESSES: usize = 4;
const FINDINGS: usize = 4;
/// Smallest share of a lock or process that is worth a line.
const LEAST: f64 = 0.005;
/// Widest and narrowest bar, columns.
const BAR: (usize, usize) = (30, 5);

pub(crate) fn text(profile: &Profile, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &profile.sentence, 0);
    for finding in profile.findings.iter().take(FINDINGS) {
        let also = if words::is_said(profile, finding) {
            String::new()
        } else {
            format!("also: {}; ", finding.text)
        };
        out += &style.wrapped(Paint::Plain, &format!("{also}helps: {}", finding.remedy), 2);
    }
    out.push('\n');
    out += &style.wrapped(Paint::Plain, &words::sampled(profile), 2);
    for line in words::datagrams(profile) {
        out += &style.wrapped(Paint::Plain, &line, 2);
    }
    let tables =
        [classes(profile, style), hardware(profile), locks(profile), cpus(profile), processes(profile)];
    let tables = tables.into_iter().flatten().chain(traces::tables(profile));
    for table in tables {
        out.push('\n');
        out += &table.text(style);
    }
    let traced = traces::notes(&profile.traces);
    if !profile.notes.is_empty() || !traced.is_empty() {
        out.push('\n');
    }
    for note in traced.iter().chain(&profile.notes) {
        out += &style.wrapped(Paint::Dim, &format!("note: {note}"), 2);
    }
    out
}

fn classes(profile: &Profile, style: Style) -> Option<Table> {
    if profile.classes.is_empty() {
        return None;
    }
    let bare = class_table(profile, 0).width();
    let room = style.width.saturating_sub(bare + 2).min(BAR.0);
    Some(class_table(profile, if room < BAR.1 { 0 } else { room }))
}

/// `bar_width` 0 leaves the bars out.
fn class_table(profile: &Profile, bar_width: usize) -> Table {
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
        // Padded, so that the bars' column is as wide as was planned whatever is in it.
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
    let shown = profile.classes.len().min(CLASSES);
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

/// What the processor counted, where it does.
fn hardware(profile: &Profile) -> Option<Table> {
    let counters = counters(profile)?;
    let headings = std::iter::once(Cell::new(counters.unit));
    let headings = headings.chain(counters.headings.into_iter().map(Cell::right));
    let mut table = Table::with(headings.collect());
    for (name, figures) in counters.rows.into_iter().take(COUNTED) {
        table.row(std::iter::once(Cell::new(name)).chain(figures.into_iter().map(Cell::right)).collect());
    }
    Some(table)
}

fn locks(profile: &Profile) -> Option<Table> {
    let large: Vec<&Share<String>> =
        profile.locks.iter().filter(|lock| lock.share >= LEAST).take(LOCKS).collect();
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

fn cpus(profile: &Profile) -> Option<Table> {
    if profile.cpus.is_empty() {
        return None;
    }
    let mut table = Table::with(cpu_headings("CPU time by"));
    cpu_lines(&mut table, "samples", &sampled(profile));
    cpu_lines(&mut table, "/proc/stat", &accounted(profile));
    Some(table)
}

/// The CPUs by the samples, as /proc/stat divides their time. What the hypervisor took no sample shows.
pub(crate) fn sampled(profile: &Profile) -> Vec<CpuUse> {
    use udpath_profile::context::Context;
    let of = |line: &CpuLine| {
        let share = |contexts: &[Context]| {
            let ns: u64 = contexts.iter().filter_map(|context| line.sampled.get(context)).sum();
            ns as f64 / 1e9 / profile.sampled_seconds(line).max(1e-9)
        };
        let (usr, sys) =
            (share(&[Context::User, Context::Guest]), share(&[Context::Syscall, Context::Kernel]));
        let (soft, irq) = (share(&[Context::Softirq]), share(&[Context::HardIrq]));
        // A halted CPU counts no cycles: idle is what is left.
        let idle = (1.0 - usr - sys - soft - irq).max(0.0);
        CpuUse {
            cpu: line.cpu,
            usr,
            sys,
            soft,
            irq,
            steal: 0.0,
            idle,
            seconds: profile.sampled_seconds(line),
        }
    };
    profile.cpus.iter().map(of).collect()
}

/// The CPUs by the kernel's own accounting, those of which it is known.
pub(crate) fn accounted(profile: &Profile) -> Vec<CpuUse> {
    let of = |line: &CpuLine| {
        let Accounted { usr, sys, irq, soft, steal, idle } = line.accounted?;
        Some(CpuUse { cpu: line.cpu, usr, sys, soft, irq, steal, idle, seconds: profile.seconds })
    };
    profile.cpus.iter().filter_map(of).collect()
}

fn processes(profile: &Profile) -> Option<Table> {
    let chosen = chosen(profile);
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

/// Processes worth a line: those asked for, and the largest.
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
