//! The page of a profile: the sentence, the flame graph, and the figures behind them.

use askama::Template;
use udpath_advise::ProfileResult;
use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::Share;

use super::traces::TracePart;
use super::{CpuRow, Figure, Head, cpu_rows, rendered};
use crate::flame::Tree;
use crate::hardware::{Counters, counters};
use crate::svg::cpus::Group;
use crate::svg::flame::{self, Graph, Kind};
use crate::terminal::profile::{accounted, chosen, name, sampled};
use crate::{finding, svg, time_line, units, words};

#[derive(Template)]
#[template(path = "profile.html")]
struct Page<'a> {
    head: Head<'a>,
    findings: Vec<(String, String)>,
    notes: &'a [String],
    graph: String,
    /// The share of other programs, if it is left out of the figures per datagram.
    others: Option<String>,
    /// There are figures per datagram and per transaction.
    counted: bool,
    paired: bool,
    classes: Vec<CostRow>,
    locks: Vec<CostRow>,
    counters: Option<Counters>,
    cpu_rows: Vec<CpuRow>,
    cpu_chart: String,
    time_line: String,
    processes: Vec<ProcessRow>,
    traces: Vec<TracePart>,
    facts: Vec<(&'static str, String)>,
}

/// A row of the classes or of the locks.
struct CostRow {
    name: String,
    /// Width of the bar, of 140 units.
    bar: String,
    share: String,
    datagram: String,
    transaction: String,
    time: String,
}

struct ProcessRow {
    wanted: bool,
    name: String,
    pid: u32,
    share: String,
    threads: usize,
    readers: usize,
    busiest: String,
}

/// Most slices of the time line; longer profiles merge seconds. Higher: columns are too narrow to see.
const SLICES: usize = 120;
/// Threads listed for each process.
const THREADS: usize = 4;

pub(crate) fn page(result: &ProfileResult) -> String {
    let profile = &result.profile;
    let (by_samples, by_stat) = (sampled(profile), accounted(profile));
    let groups = [("samples", by_samples.as_slice()), ("/proc/stat", by_stat.as_slice())];
    let each = |ns: f64| profile.per_datagram(ns as u64);
    let graph = flame::draw(
        &Tree::of(profile),
        &Kind::Classes { each: &each },
        &words::sampled(profile),
        &Graph::ONLY,
    );
    let about = about(profile);
    rendered(&Page {
        head: Head {
            version: env!("CARGO_PKG_VERSION"),
            title: format!("udpath profile: {about}"),
            kind: format!("udpath profile · {about}"),
            headline: headline(profile),
            lead: result.sentence.clone(),
            figures: figures(profile),
            flames: true,
        },
        findings: result
            .findings
            .iter()
            .map(|finding| (finding::text(finding), finding::fixes(finding).unwrap_or_default()))
            .collect(),
        notes: &profile.notes,
        graph,
        others: (profile.others() > 0)
            .then(|| units::share(profile.others() as f64 / profile.busy().max(1) as f64)),
        counted: profile.per_datagram(1).is_some(),
        paired: profile.per_transaction(1).is_some(),
        classes: profile
            .classes
            .iter()
            .map(|share| cost(profile, share.of.title().to_owned(), share))
            .collect(),
        locks: profile.locks.iter().map(|share| cost(profile, share.of.replace('-', " "), share)).collect(),
        counters: counters(profile),
        cpu_rows: cpu_rows(groups.into_iter()),
        cpu_chart: {
            let groups = groups.map(|(name, cpus)| Group { name, strong: name == "samples", cpus });
            svg::both(|paper| svg::cpus::draw(&groups, paper))
        },
        time_line: {
            let lanes = time_line::lanes(profile, SLICES);
            svg::both(|paper| svg::time_line::draw(&lanes, profile.seconds, paper))
        },
        processes: processes(profile),
        traces: super::traces::parts(profile),
        facts: facts(profile),
    })
}

/// The focus, for the title.
fn about(profile: &Profile) -> String {
    let focus = &profile.facts.focus;
    match (focus.port, focus.pids.as_slice()) {
        (Some(port), _) => format!("UDP port {port}"),
        (None, [pid, ..]) => {
            let found = profile.processes.iter().find(|process| process.pid == *pid);
            format!("{} (pid {pid})", found.map_or("process", name))
        }
        (None, []) => "this machine".to_owned(),
    }
}

/// The largest context, as a short headline.
fn headline(profile: &Profile) -> String {
    let busy = profile.contexts.iter().filter(|(context, _)| **context != Context::Idle);
    let Some((context, ns)) = busy.max_by_key(|(_, ns)| **ns).filter(|_| profile.busy() > 0) else {
        return "Nothing ran".to_owned();
    };
    let place = match context {
        Context::User => "programs",
        Context::Syscall => "system calls",
        Context::Guest => "virtual machines",
        Context::Kernel => "the kernel",
        other => other.title(),
    };
    format!("{} in {place}", units::share(*ns as f64 / profile.busy() as f64))
}

fn figures(profile: &Profile) -> Vec<Figure> {
    let used = profile.busy() as f64 / profile.available().max(1.0);
    let mut figures = vec![Figure {
        what: "CPU time used",
        value: units::share(used),
        note: format!("of {} CPUs in {}", profile.cpus.len(), units::duration(profile.seconds)),
    }];
    if let Some(counted) = profile.datagrams {
        figures.push(Figure {
            what: "datagrams received",
            value: format!("{}/s", units::tps(counted.received as f64 / profile.seconds.max(1e-9))),
            note: format!("{} sent, {} dropped", units::count(counted.sent), units::count(counted.dropped)),
        });
    }
    if let Some(ns) = profile.per_datagram(profile.charged()) {
        let pair = profile.per_transaction(profile.charged());
        figures.push(Figure {
            what: "CPU time per datagram",
            value: units::time(ns),
            note: pair.map_or_else(String::new, |ns| format!("{} per transaction", units::time(ns))),
        });
    }
    if let Some(largest) = profile.classes.first() {
        figures.push(Figure {
            what: "largest class",
            value: units::share(largest.share),
            note: largest.of.title().to_owned(),
        });
    }
    figures
}

fn cost<T>(profile: &Profile, name: String, of: &Share<T>) -> CostRow {
    let time = |cost: Option<f64>| cost.map_or_else(|| units::NONE.to_owned(), units::time);
    let part = if of.share.is_finite() { of.share.clamp(0.0, 1.0) } else { 0.0 };
    CostRow {
        name,
        bar: format!("{:.1}", part * 140.0),
        share: units::share_in_column(of.share),
        datagram: time(profile.per_datagram(of.charged())),
        transaction: time(profile.per_transaction(of.charged())),
        time: units::time(of.ns as f64),
    }
}

fn processes(profile: &Profile) -> Vec<ProcessRow> {
    let part = |ns: u64| units::share(ns as f64 / profile.busy().max(1) as f64);
    let row = |process: &udpath_profile::profile::ProcessShare| {
        let busiest = process.threads.iter().take(THREADS);
        let busiest: Vec<String> =
            busiest.map(|thread| format!("{} ({}) {}", thread.name, thread.tid, part(thread.ns))).collect();
        ProcessRow {
            wanted: profile.facts.focus.pids.contains(&process.pid),
            name: name(process).to_owned(),
            pid: process.pid,
            share: units::share_in_column(process.share),
            threads: process.threads.len(),
            readers: process.threads.iter().filter(|thread| thread.reads).count(),
            busiest: busiest.join(", "),
        }
    };
    chosen(profile).into_iter().map(row).collect()
}

fn facts(profile: &Profile) -> Vec<(&'static str, String)> {
    let sockets = profile
        .facts
        .sockets
        .iter()
        .filter(|socket| profile.facts.focus.port.is_none_or(|port| socket.local.port() == port));
    let sockets: Vec<String> = sockets.take(12).map(|socket| socket.local.to_string()).collect();
    let mut facts = vec![("samples", words::sampled(profile)), ("kernel", profile.facts.kernel.clone())];
    facts.extend(words::datagrams(profile).into_iter().map(|line| ("datagrams", line)));
    if !sockets.is_empty() {
        facts.push(("UDP sockets", sockets.join(", ")));
    }
    facts
}
