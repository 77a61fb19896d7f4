//! The page of a climb.

use askama::Template;
use udpath_advise::result::{BoostResult, RungResult, Running, Verdict};
use udpath_load::result::Latency;

use super::profiles::Section;
use super::{CpuRow, Figure, Head, LatencyRow, cpu_rows, latency_row, rendered};
use crate::svg::cpus::Group;
use crate::svg::latency::Curve;
use crate::svg::{self, ladder};
use crate::{units, words};

#[derive(Template)]
#[template(path = "boost.html")]
struct Page<'a> {
    head: Head<'a>,
    warnings: Vec<String>,
    limits: Vec<String>,
    helps: Vec<[String; 3]>,
    apply: String,
    compared: String,
    unit: &'static str,
    rungs: Vec<Row<'a>>,
    ladder_chart: String,
    cpu_rows: Vec<CpuRow>,
    cpu_chart: String,
    profiles: Option<Section<'a>>,
    latency_rows: Vec<LatencyRow>,
    latency_about: &'static str,
    latency_caption: &'static str,
    latency_chart: String,
    facts: Vec<(&'static str, String)>,
    command: String,
    setting_names: Vec<&'a str>,
    setting_rows: Vec<SettingRow<'a>>,
}

/// A rung in the tables.
struct Row<'a> {
    class: &'static str,
    name: &'a str,
    change: &'a str,
    note: &'a str,
    tps: String,
    ratio: String,
    verdict: String,
    verdict_class: &'static str,
    mark: &'static str,
    trials: usize,
    costs: [String; 7],
}

/// A rung's settings: value, and whether the rung changed it.
struct SettingRow<'a> {
    name: &'a str,
    cells: Vec<(&'a str, bool)>,
}

pub(crate) fn page<'a>(result: &'a BoostResult) -> String {
    let best = words::best(result);
    let is_best = |rung: &RungResult| best.is_some_and(|b| std::ptr::eq(b, rung));
    // Every setting of any rung.
    let settings = result.rungs.iter().flat_map(|rung| &rung.settings);
    let setting_names = words::distinct(settings.map(|(name, _)| name.as_str()));
    let hostname = &result.machine.hostname;
    let (started, took) = (units::date(result.started), units::duration(result.seconds));
    let profiles = Section::of(result);
    rendered(&Page {
        head: Head {
            version: &result.version,
            title: format!("udpath boost: {hostname}"),
            kind: format!("udpath boost · {hostname} · {started} · took {took}"),
            headline: headline(result),
            lead: words::conclusion(result),
            figures: figures(result),
            flames: profiles.as_ref().is_some_and(Section::flames),
        },
        warnings: result
            .warnings
            .iter()
            .cloned()
            .chain(result.left_out.iter().map(words::left_out))
            .collect(),
        limits: words::limits(result, str::to_owned),
        helps: helps(result),
        apply: result.running.as_ref().map_or_else(String::new, applied),
        compared: words::duets::compared(result),
        unit: words::unit(result),
        rungs: result.rungs.iter().map(|rung| row(rung, is_best(rung))).collect(),
        ladder_chart: svg::both(|paper| ladder::draw(result, paper)),
        cpu_rows: cpu_rows(result.rungs.iter().map(|rung| (rung.name.as_str(), rung.cpus.as_slice()))),
        cpu_chart: {
            let rungs = result.rungs.iter();
            let groups: Vec<Group<'_>> =
                rungs.map(|r| Group { name: &r.name, strong: is_best(r), cpus: &r.cpus }).collect();
            svg::both(|paper| svg::cpus::draw(&groups, paper))
        },
        profiles,
        latency_rows: latencies(result).map(|(rung, l)| latency_row(&rung.name, is_best(rung), l)).collect(),
        latency_about: match words::is_live(result) {
            true => "From entering the stack to the end of the reader’s call, of a sample of the datagrams.",
            false => {
                "From a request’s sending to its reply. With a fixed number in flight, more transactions per second means less waiting for each."
            }
        },
        latency_caption: match words::is_live(result) {
            true => "Time of datagrams by rung, stack to reader",
            false => "Latency by rung, sent to answered",
        },
        latency_chart: {
            let is_first = |rung| result.rungs.first().is_some_and(|first| std::ptr::eq(first, rung));
            let curve = |(i, (rung, latency)): (usize, (&'a RungResult, &'a Latency))| Curve {
                name: &rung.name,
                latency,
                strong: is_best(rung) || is_first(rung),
                look: if is_first(rung) {
                    0
                } else if is_best(rung) {
                    1
                } else {
                    2 + i
                },
            };
            let curves: Vec<Curve<'_>> = latencies(result).enumerate().map(curve).collect();
            svg::both(|paper| svg::latency::draw(&curves, paper))
        },
        facts: facts(result),
        command: words::command(result),
        setting_rows: setting_rows(result, &setting_names),
        setting_names,
    })
}

/// What helps a running server: its name, what it does and what it adds.
fn helps(result: &BoostResult) -> Vec<[String; 3]> {
    let kept = result.running.iter().flat_map(|running| &running.kept);
    kept.map(|helps| [helps.name.clone(), helps.what.clone(), words::running::contribution(helps)]).collect()
}

/// How to make it stay, or how to take it back.
fn applied(running: &Running) -> String {
    words::running::command(running).unwrap_or_else(|| words::running::left(running).join("\n"))
}

/// The rungs whose latency was measured.
fn latencies(result: &BoostResult) -> impl Iterator<Item = (&RungResult, &Latency)> {
    result.rungs.iter().filter_map(|rung| Some((rung, rung.latency.as_ref()?)))
}

/// The gain as a headline, if there is one.
fn headline(result: &BoostResult) -> String {
    match (result.rungs.first(), words::best(result)) {
        (Some(first), Some(best)) if !std::ptr::eq(first, best) && result.gain.low > 1.0 => {
            let what = if words::is_live(result) { words::unit(result) } else { "transactions per second" };
            format!("{}× the {what}", units::ratio(result.gain.ratio))
        }
        (Some(_), Some(_)) => "No faster configuration was found".to_owned(),
        _ => "Nothing was measured".to_owned(),
    }
}

/// Before and after, in the most important figures.
fn figures(result: &BoostResult) -> Vec<Figure> {
    let (Some(first), Some(best)) = (result.rungs.first(), words::best(result)) else { return Vec::new() };
    let was = |before: String| {
        if std::ptr::eq(first, best) {
            format!("rung {}", best.name)
        } else {
            format!("{before} on the first rung")
        }
    };
    let p99 = |rung: &RungResult| words::latency(rung, |latency| latency.p99);
    let cost = |rung: &RungResult| units::time(rung.cpu_ns_per_transaction);
    let rate =
        Figure { what: words::unit(result), value: units::tps(best.tps), note: was(units::tps(first.tps)) };
    if words::is_live(result) {
        let delay = best.latency.is_some().then(|| Figure {
            what: "stack to reader, 99th percentile",
            value: p99(best),
            note: was(p99(first)),
        });
        return [Some(rate), delay].into_iter().flatten().collect();
    }
    vec![
        rate,
        Figure { what: "99 % answered within", value: p99(best), note: was(p99(first)) },
        Figure { what: "CPU per transaction", value: cost(best), note: was(cost(first)) },
        Figure {
            what: "of 10 GbE line rate",
            value: units::share(best.line_share),
            note: was(units::share(first.line_share)),
        },
    ]
}

fn row(rung: &RungResult, is_best: bool) -> Row<'_> {
    let failed = rung.verdict == Verdict::Failed;
    let figure = |text: String| if failed { units::NONE.to_owned() } else { text };
    Row {
        class: match (is_best, words::undone(rung)) {
            (true, _) => "best",
            (_, true) => "undone",
            _ => "kept",
        },
        name: &rung.name,
        change: &rung.change,
        note: rung.note.as_deref().unwrap_or_default(),
        tps: figure(units::tps(rung.tps)),
        ratio: match &rung.against {
            Some(against) if !failed => format!("{} × {against}", units::interval(words::ratio(rung))),
            _ => units::NONE.to_owned(),
        },
        verdict: if is_best { format!("{}, best", words::outcome(rung)) } else { words::outcome(rung) },
        verdict_class: ladder::verdict_class(rung.verdict),
        mark: ladder::mark(rung.verdict),
        trials: rung.trials.len(),
        costs: words::costs(rung),
    }
}

fn facts(result: &BoostResult) -> Vec<(&'static str, String)> {
    let (m, l) = (&result.machine, &result.load);
    let line_rate = match words::is_live(result) {
        true => "unknown: sizes of live traffic differ".to_owned(),
        false => format!("10 GbE carries {} transactions/s of this size", units::tps(l.line_rate_tps)),
    };
    vec![
        ("machine", format!("{}, Linux {}", m.hostname, m.kernel)),
        ("CPUs", format!("{} × {}", m.cpus, m.cpu_model)),
        ("memory", units::memory(m.memory)),
        ("link", words::link(result)),
        ("load", words::load(result)),
        ("line rate", line_rate),
        ("measured", format!("{}, {} in all", units::date(result.started), units::duration(result.seconds))),
    ]
}

fn setting_rows<'a>(result: &'a BoostResult, names: &[&str]) -> Vec<SettingRow<'a>> {
    let value = |rung: &'a RungResult, name: &str| {
        rung.settings.iter().find(|(n, _)| n == name).map_or(units::NONE, |(_, value)| value.as_str())
    };
    let row = |rung: &'a RungResult| {
        let other = rung.against.as_ref().and_then(|name| result.rungs.iter().find(|r| r.name == *name));
        let cell = |name: &&str| {
            let own = value(rung, name);
            (own, other.is_some_and(|o| value(o, name) != own))
        };
        SettingRow { name: &rung.name, cells: names.iter().map(cell).collect() }
    };
    result.rungs.iter().map(row).collect()
}
