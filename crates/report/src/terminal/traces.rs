//! Tracepoint counts of a profile, on as many lines as are informative.

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::trace::drops::Way;
use udpath_profile::trace::{Delays, Drops, Locks, Softirqs, Times, Traces};

use super::table::{Cell, Table};
use crate::units;

/// The softirq that takes packets from the devices.
pub(crate) const RECEIVE: &str = "NET_RX";

/// The tables of the sources that were traced and counted something, each with at most `lines` lines (zero: no tables):
/// after five, further ones are rarely a tenth of the first.
pub(super) fn tables(profile: &Profile, lines: usize) -> Vec<Table> {
    if lines == 0 {
        return Vec::new();
    }
    let traces = &profile.traces;
    let datagrams = profile.datagrams.map_or(0, |counted| counted.handled());
    [
        traces.locks.as_ref().and_then(|counted| locks(counted, lines)),
        traces.drops.as_ref().and_then(|counted| drops(counted, lines)),
        traces.delays.as_ref().and_then(|counted| delays(counted, lines)),
        traces.softirqs.as_ref().and_then(|counted| late(counted, lines)),
        traces.softirqs.as_ref().and_then(|softirqs| polls(softirqs, datagrams, lines)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What the tables do not show: unavailable sources, the cost of tracing, events not counted.
pub(crate) fn notes(traces: &Traces) -> Vec<String> {
    // Usually one reason applies to all of them.
    let mut absent: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in &traces.absent {
        absent.entry(&source.reason).or_default().push(source.source.name());
    }
    let mut notes: Vec<String> = absent
        .into_iter()
        .map(|(reason, sources)| format!("{} were not traced: {reason}", sources.join(" and ")))
        .collect();
    let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
    for cost in &traces.costs {
        *costs.entry(cost.source.name()).or_default() += cost.share;
    }
    if !costs.is_empty() {
        let each: Vec<String> =
            costs.iter().map(|(name, share)| format!("{name} {}", units::share(*share))).collect();
        notes.push(format!("CPU time of tracing, from the kernel's run counts: {}", each.join(", ")));
    }
    if let Some(delays) = &traces.delays
        && let Some(every) = delays.every()
    {
        notes.push(format!(
            "delays are sampled from one packet in {every:.0}: {} datagrams",
            units::count(delays.sampled)
        ));
    }
    let uncounted = [
        (
            "waits for locks",
            traces.locks.as_ref().map_or(0, |locks| locks.no_room.saturating_add(locks.not_followed)),
        ),
        ("drops", traces.drops.as_ref().map_or(0, |drops| drops.no_room)),
    ];
    for (what, count) in uncounted.into_iter().filter(|(_, count)| *count > 0) {
        notes.push(format!(
            "{} {what} are not in the table: there was no room to count them",
            units::count(count)
        ));
    }
    notes
}

fn locks(locks: &Locks, most: usize) -> Option<Table> {
    let lines = locks.by_lock();
    let mut table = Table::with(timed("waits for lock of", "socket", "waits", "together"));
    for (place, waits) in lines.iter().take(most) {
        let socket = place.socket.as_ref().map_or_else(String::new, |lock| lock.socket.to_string());
        let mut cells = vec![Cell::new(place.owner.replace('-', " ")), Cell::new(socket)];
        cells.extend(times(waits));
        cells.push(Cell::right(units::time(waits.ns as f64)));
        table.row(cells);
    }
    (!lines.is_empty()).then_some(table)
}

fn drops(drops: &Drops, lines: usize) -> Option<Table> {
    let headings = [
        Cell::new("dropped"),
        Cell::right("packets"),
        Cell::new("way"),
        Cell::right("port"),
        Cell::new("by"),
    ];
    let mut table = Table::with(headings.into());
    for line in drops.lines.iter().take(lines) {
        table.row(vec![
            Cell::new(&line.reason),
            Cell::right(units::count(line.packets)),
            Cell::new(way(line.way)),
            Cell::right(line.port.map_or(units::NONE.to_owned(), |port| port.to_string())),
            Cell::new(line.function.as_deref().unwrap_or(units::NONE)),
        ]);
    }
    (!drops.lines.is_empty()).then_some(table)
}

/// The direction of packets, in a word.
pub(crate) const fn way(way: Way) -> &'static str {
    match way {
        Way::Received => "in",
        Way::Sent => "out",
        Way::Other => units::NONE,
    }
}

fn delays(delays: &Delays, lines: usize) -> Option<Table> {
    let mut headings = vec![Cell::new("way inside"), Cell::new("part")];
    headings.extend(["datagrams", "p50", "p99", "longest"].map(Cell::right));
    let mut table = Table::with(headings);
    for socket in delays.sockets.iter().take(lines) {
        for (part, delay) in [("stack → queue", &socket.to_socket), ("queue → reader", &socket.to_reader)]
        {
            let name = if part.starts_with("stack") { socket.socket.to_string() } else { String::new() };
            let mut cells = vec![Cell::new(name), Cell::new(part)];
            cells.extend(times(delay));
            table.row(cells);
        }
    }
    (!delays.sockets.is_empty()).then_some(table)
}

fn late(softirqs: &Softirqs, lines: usize) -> Option<Table> {
    let found = softirqs.of(RECEIVE);
    let mut table = Table::with(timed("softirq", "CPU", "raised", "ran"));
    for softirq in found.iter().take(lines) {
        let mut cells = vec![Cell::new(format!("{RECEIVE} late by")), Cell::new(softirq.cpu.to_string())];
        cells.extend(times(&softirq.late));
        cells.push(Cell::right(units::time(softirq.ns as f64)));
        table.row(cells);
    }
    (!found.is_empty()).then_some(table)
}

fn polls(softirqs: &Softirqs, datagrams: u64, lines: usize) -> Option<Table> {
    let mut headings = vec![Cell::new("NAPI polls of")];
    headings.extend(["polls", "packets each", "full", "wake-ups/datagram"].map(Cell::right));
    let mut table = Table::with(headings);
    for (at, polls) in softirqs.polls.iter().take(lines).enumerate() {
        let each = polls.packets_per_poll().map_or(units::NONE.to_owned(), |each| format!("{each:.1}"));
        // For the whole machine, so only once.
        let wakeups = softirqs.wakeups_per(datagrams).filter(|_| at == 0);
        table.row(vec![
            Cell::new(&polls.interface),
            Cell::right(units::count(polls.polls)),
            Cell::right(each),
            Cell::right(units::count(polls.full)),
            Cell::right(wakeups.map_or_else(String::new, |wakeups| format!("{wakeups:.2}"))),
        ]);
    }
    (!softirqs.polls.is_empty()).then_some(table)
}

/// Headings of lines that end with [`times`] and a sum.
fn timed(first: &str, second: &str, count: &str, sum: &str) -> Vec<Cell> {
    let mut headings = vec![Cell::new(first), Cell::new(second)];
    headings.extend([count, "p50", "p99", "longest", sum].map(Cell::right));
    headings
}

/// Count and durations.
fn times(times: &Times) -> [Cell; 4] {
    let at = |share| times.quantile_ns(share).map_or(units::NONE.to_owned(), |ns| units::time(ns as f64));
    [units::count(times.count), at(0.5), at(0.99), units::time(times.longest_ns as f64)].map(Cell::right)
}
