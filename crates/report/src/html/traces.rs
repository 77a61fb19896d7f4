//! Tracepoint counts on the page of a profile: for each source, a chart of durations and a table of counts; at the end,
//! the cost of tracing and the unavailable sources.

mod part;

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::trace::locks::Contention;
use udpath_profile::trace::softirqs::{Ipis, Polls, Size};
use udpath_profile::trace::{Delays, Drops, Locks, Softirqs, Times, Traces};

use part::{ROWS, figure, headings, picture, spread, text, timed};
pub(super) use part::{TraceCell, TracePart, TraceTable};

use crate::svg::histogram::{Bar, Chart, Row};
use crate::terminal::traces::{RECEIVE, notes, way};
use crate::{units, words};

/// Rows of a table: later ones are rarely a hundredth of the first.
const LINES: usize = 20;
/// Functions listed for a place that waits for a lock, from the one that takes it outwards.
const FUNCTIONS: usize = 4;

pub(super) fn parts(profile: &Profile) -> Vec<TracePart> {
    let traces = &profile.traces;
    let datagrams = profile.datagrams.map_or(0, |counted| counted.handled());
    let parts = [
        traces.locks.as_ref().map(locks),
        traces.drops.as_ref().map(drops),
        traces.softirqs.as_ref().map(|softirqs| self::softirqs(softirqs, datagrams)),
        traces.delays.as_ref().map(|delays| self::delays(delays, profile.facts.focus.port)),
        costs(traces),
    ];
    parts.into_iter().flatten().collect()
}

fn locks(locks: &Locks) -> TracePart {
    let lines = locks.by_lock();
    let name = |place: &Contention| {
        let socket = place.socket.as_ref().map_or_else(String::new, |lock| format!(", {}", lock.socket));
        format!("{}{socket}", place.owner.replace('-', " "))
    };
    let rows = lines.iter().map(|(place, waits)| timed(name(place), waits));
    let chart = Chart {
        id: "waits",
        title: "Waits for locks by length",
        axis: "length of a wait",
        value: units::time,
    };
    let table = TraceTable {
        caption: "Waits for locks, the longest altogether first",
        headings: headings(&[("lock of", true), ("waits", false)], &["together"], &[("where", true)]),
        rows: lines
            .iter()
            .take(LINES)
            .map(|(place, waits)| {
                let mut cells = vec![text(name(place)), figure(units::count(waits.count))];
                cells.extend(spread(waits));
                cells.push(figure(units::time(waits.ns as f64)));
                let from: Vec<&str> = place.frames.iter().take(FUNCTIONS).map(String::as_str).collect();
                cells.push(text(from.join(" ◂ ")));
                cells
            })
            .collect(),
    };
    TracePart {
        title: "Waits for locks",
        about: "Each line is one lock of the kernel; only waits are counted, not locks that were free. Where: the place \
                that waited longest, the function that takes the lock first."
            .to_owned(),
        charts: picture(&chart, rows),
        tables: vec![table],
    }
    .or_nothing(lines.is_empty(), "No lock waits.")
}

fn drops(drops: &Drops) -> TracePart {
    let by_reason: Vec<String> = drops
        .by_reason()
        .iter()
        .take(ROWS)
        .map(|(reason, packets)| format!("{reason} {}", units::count(*packets)))
        .collect();
    let all = drops.packets().max(1) as f64;
    let rows = drops.lines.iter().take(LINES).map(|line| {
        vec![
            text(line.reason.clone()),
            figure(line.port.map_or_else(|| units::NONE.to_owned(), |port| port.to_string())),
            text(way(line.way).to_owned()),
            figure(units::count(line.packets)),
            figure(units::share_in_column(line.packets as f64 / all)),
            text(line.function.clone().unwrap_or_else(|| units::NONE.to_owned())),
        ]
    });
    let table = TraceTable {
        caption: "Dropped packets by reason, port and place, the most first",
        headings: [
            ("reason", true),
            ("port", false),
            ("way", true),
            ("packets", false),
            ("share", false),
            ("by", true),
        ]
        .map(|(heading, is_text)| TraceCell { text: heading.to_owned(), is_text })
        .into(),
        rows: rows.collect(),
    };
    TracePart {
        title: "Dropped packets",
        about: format!(
            "{} in all, for the running kernel’s own reasons: {}. In: UDP received on this port; out: UDP sent \
             from it; neither: not UDP.",
            units::count(drops.packets()),
            by_reason.join(", ")
        ),
        charts: Vec::new(),
        tables: vec![table],
    }
    .or_nothing(drops.packets() == 0, "Nothing was dropped.")
}

fn softirqs(softirqs: &Softirqs, datagrams: u64) -> TracePart {
    let mut receive = softirqs.of(RECEIVE);
    // Of many CPUs, those with the most receive time.
    receive.sort_by_key(|softirq| (std::cmp::Reverse(softirq.ns), softirq.cpu));
    let late = Chart {
        id: "late",
        title: "How late softirqs began",
        axis: "from raise to start",
        value: units::time,
    };
    let rows =
        receive.iter().map(|softirq| timed(format!("{RECEIVE} on CPU {}", softirq.cpu), &softirq.late));
    let mut charts = picture(&late, rows);
    let mut vectors: BTreeMap<&str, (u64, u64, Times)> = BTreeMap::new();
    for softirq in &softirqs.vectors {
        let sum = vectors.entry(&softirq.vector).or_default();
        (sum.0, sum.1) = (sum.0.saturating_add(softirq.runs), sum.1.saturating_add(softirq.ns));
        sum.2.add(&softirq.late);
    }
    let mut vectors: Vec<_> = vectors.into_iter().collect();
    vectors.sort_by_key(|(_, (_, ns, _))| std::cmp::Reverse(*ns));
    let line = |name: String, runs: u64, ns: u64, late: &Times| {
        let mut cells = vec![text(name), figure(units::count(runs))];
        cells.extend(spread(late));
        cells.push(figure(units::time(ns as f64)));
        cells
    };
    let named = |first| headings(&[(first, true), ("runs", false)], &["ran"], &[]);
    let mut tables = vec![
        TraceTable {
            caption: "Softirqs of all CPUs: how late they began, and for how long they ran",
            headings: named("softirq"),
            rows: vectors
                .iter()
                .map(|(name, (runs, ns, late))| line((*name).to_owned(), *runs, *ns, late))
                .collect(),
        },
        TraceTable {
            caption: "What takes packets off the devices (NET_RX), by CPU, the busiest first",
            headings: named("CPU"),
            rows: receive
                .iter()
                .take(LINES)
                .map(|softirq| line(softirq.cpu.to_string(), softirq.runs, softirq.ns, &softirq.late))
                .collect(),
        },
    ];
    charts
        .extend(picture(&POLLS, softirqs.polls.iter().map(|polls| sizes(polls, interface(polls, softirqs)))));
    tables.push(polls(softirqs));
    tables.extend(softirqs.ipis.as_deref().map(ipis));
    tables.retain(|table| !table.rows.is_empty());
    let wakeups = softirqs.wakeups_per(datagrams).map_or_else(String::new, |each| {
        format!(" Of every datagram, {each:.2} threads of any program were woken up.")
    });
    TracePart {
        title: "Softirqs and polls",
        about: format!(
            "A softirq that starts late delays every packet behind it. Polls of few packets spread a softirq’s \
             cost over little; full polls leave packets waiting.{wakeups}"
        ),
        charts,
        tables,
    }
}

const POLLS: Chart<'_> = Chart {
    id: "polls",
    title: "Packets of a NAPI poll",
    axis: "packets of a poll",
    value: |packets| if packets < 1.0 { "0".to_owned() } else { units::tps(packets) },
};

/// An interface's name; with the number of its namespace if several have an interface of that name.
fn interface(polls: &Polls, softirqs: &Softirqs) -> String {
    let alike = softirqs.polls.iter().filter(|other| other.interface == polls.interface).count();
    match polls.netns.filter(|_| alike > 1) {
        Some(netns) => format!("{} of {netns}", polls.interface),
        None => polls.interface.clone(),
    }
}

fn sizes(polls: &Polls, name: String) -> Row {
    // Empty polls come before those that found packets.
    let bar = |size: &Size| match size.from {
        0 => Bar { from: 0.5, to: 1.0, count: size.polls },
        from => Bar { from: from as f64, to: 2.0 * from as f64, count: size.polls },
    };
    Row {
        name,
        note: polls.packets_per_poll().map_or_else(String::new, |each| format!("{each:.1} each")),
        bars: polls.sizes.iter().map(bar).collect(),
        marks: Vec::new(),
    }
}

fn polls(softirqs: &Softirqs) -> TraceTable {
    let rows = softirqs.polls.iter().take(LINES).map(|polls| {
        let each =
            polls.packets_per_poll().map_or_else(|| units::NONE.to_owned(), |each| format!("{each:.1}"));
        let counts = [polls.polls, polls.packets, polls.full].map(|count| figure(units::count(count)));
        [text(interface(polls, softirqs))].into_iter().chain(counts).chain([figure(each)]).collect()
    });
    TraceTable {
        caption: "NAPI polls by interface; full ones left packets waiting",
        headings: [
            ("interface", true),
            ("polls", false),
            ("packets", false),
            ("full", false),
            ("packets each", false),
        ]
        .map(|(heading, is_text)| TraceCell { text: heading.to_owned(), is_text })
        .into(),
        rows: rows.collect(),
    }
}

fn ipis(ipis: &[Ipis]) -> TraceTable {
    let mut purposes: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for sent in ipis {
        let sum = purposes.entry(&sent.purpose).or_default();
        *sum = [sum[0].saturating_add(sent.single), sum[1].saturating_add(sent.masks)];
    }
    let mut purposes: Vec<_> = purposes.into_iter().collect();
    purposes.sort_by_key(|(_, [single, masks])| std::cmp::Reverse(single.saturating_add(*masks)));
    let row = |(purpose, counts): (&str, [u64; 2])| {
        let counts = counts.map(|count| figure(units::count(count)));
        [text(purpose.to_owned())].into_iter().chain(counts).collect()
    };
    TraceTable {
        caption: "Interrupts that CPUs sent each other, by purpose",
        headings: [("what for", true), ("to one CPU", false), ("to several", false)]
            .map(|(heading, is_text)| TraceCell { text: heading.to_owned(), is_text })
            .into(),
        rows: purposes.into_iter().take(LINES).map(row).collect(),
    }
}

fn delays(delays: &Delays, port: Option<u16>) -> TracePart {
    let mut sockets: Vec<_> = delays.sockets.iter().collect();
    // A stable sort: after the sockets of the focus, the order is kept.
    sockets.sort_by_key(|delay| Some(delay.socket.port) != port);
    let ways = sockets.into_iter().flat_map(|socket| {
        [("stack → queue", &socket.to_socket), ("queue → reader", &socket.to_reader)]
            .map(|(part, times)| (socket.socket.to_string(), part, times))
    });
    let ways: Vec<(String, &str, &Times)> = ways.collect();
    let chart = Chart {
        id: "delays",
        title: "Delay inside this host",
        axis: "time of a datagram",
        value: units::time,
    };
    let rows = ways.iter().map(|(socket, part, times)| timed(format!("{socket} {part}"), times));
    let table = TraceTable {
        caption: "Delay inside this host by socket and part of the way",
        headings: headings(&[("socket", true), ("part", true), ("datagrams", false)], &[], &[]),
        rows: ways
            .iter()
            .take(LINES)
            .map(|(socket, part, times)| {
                let first =
                    [text(socket.clone()), text((*part).to_owned()), figure(units::count(times.count))];
                first.into_iter().chain(spread(times)).collect()
            })
            .collect(),
    };
    let every = delays.every().map_or_else(String::new, |every| {
        format!(" One packet in {every:.0} was followed: {} datagrams.", units::count(delays.sampled))
    });
    TracePart {
        title: "Delay inside this host",
        about: format!(
            "From a packet’s entry into the stack, behind driver and GRO, into its socket’s queue; and from there to the \
             end of its reader’s receiving call, copy included.{every}"
        ),
        charts: picture(&chart, rows),
        tables: vec![table],
    }
    .or_nothing(ways.is_empty(), "No datagram that was followed reached a reader.")
}

/// The cost of tracing and the unavailable sources; `None` if nothing was traced.
fn costs(traces: &Traces) -> Option<TracePart> {
    let said = notes(traces);
    if traces.costs.is_empty() && said.is_empty() {
        return None;
    }
    let rows = traces.costs.iter().map(|cost| {
        vec![
            text(cost.source.to_string()),
            text(cost.at.clone()),
            figure(units::tps(cost.runs_per_second)),
            figure(units::time(cost.ns_per_run)),
            figure(units::share_in_column(cost.share)),
        ]
    });
    let table = TraceTable {
        caption: "Programs on tracepoints, as the kernel counted their runs for a moment",
        headings: [
            ("for", true),
            ("tracepoint", true),
            ("runs/s", false),
            ("each", false),
            ("of all CPUs", false),
        ]
        .map(|(heading, is_text)| TraceCell { text: heading.to_owned(), is_text })
        .into(),
        rows: rows.collect(),
    };
    let about: Vec<String> = said.iter().map(|note| format!("{}.", words::capital(note))).collect();
    let tables = if table.rows.is_empty() { Vec::new() } else { vec![table] };
    Some(TracePart { title: "What tracing cost", about: about.join(" "), charts: Vec::new(), tables })
}
