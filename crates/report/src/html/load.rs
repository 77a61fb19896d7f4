//! The page of a run of the load.

use askama::Template;
use udpath_load::result::{Kind, LoadResult, SegmentResult};

use super::{CpuRow, Figure, Head, LatencyRow, cpu_rows, latency_row, rendered};
use crate::svg::cpus::Group;
use crate::svg::latency::Curve;
use crate::{svg, terminal, units, words};

#[derive(Template)]
#[template(path = "load.html")]
struct Page<'a> {
    head: Head<'a>,
    warnings: Vec<&'a str>,
    latency_rows: Vec<LatencyRow>,
    latency_chart: String,
    counts: Vec<CountRow>,
    kinds: Vec<KindRow>,
    is_sample: bool,
    generator: String,
    cpu_rows: Vec<CpuRow>,
    cpu_chart: String,
    segments: Vec<SegmentRow>,
    segment_headings: [&'static str; 8],
    facts: Vec<(&'static str, String)>,
}

/// One segment of a sum.
struct SegmentRow {
    cells: [String; 8],
    limits: String,
}

struct CountRow {
    name: &'static str,
    count: String,
    share: String,
    meaning: &'static str,
    bad: bool,
}

/// Intact replies that say the same.
struct KindRow {
    name: String,
    count: String,
    share: String,
}

pub(crate) fn page(result: &LoadResult) -> String {
    let targets = result.targets.join(", ");
    let latencies = terminal::load::latencies(result);
    let curves: Vec<Curve<'_>> = latencies
        .iter()
        .enumerate()
        .map(|(i, (name, latency))| Curve { name, latency, strong: i == 0, look: (i + 1) % 3 })
        .collect();
    rendered(&Page {
        head: Head {
            // The result does not contain the version that wrote it; the page shows the one that rendered it.
            version: env!("CARGO_PKG_VERSION"),
            title: format!("udpath load: {targets}"),
            kind: format!("udpath load · {targets} · {} measured", units::duration(result.seconds)),
            headline: headline(result),
            lead: words::load::conclusion(result),
            figures: figures(result),
            flames: false,
        },
        warnings: result.generator.reasons.iter().chain(&result.warnings).map(String::as_str).collect(),
        latency_rows: latencies.iter().map(|(name, latency)| latency_row(name, false, latency)).collect(),
        latency_chart: svg::both(|paper| svg::latency::draw(&curves, paper)),
        counts: counts(result),
        kinds: kinds(result),
        is_sample: words::load::is_sample(result),
        generator: generator(result),
        cpu_rows: cpu_rows([("", result.cpus.as_slice())].into_iter()),
        cpu_chart: {
            let groups = [Group { name: "", strong: false, cpus: &result.cpus }];
            svg::both(|paper| svg::cpus::draw(&groups, paper))
        },
        segments: segments(result),
        segment_headings: words::load::SEGMENT_HEADINGS,
        facts: facts(result),
    })
}

fn headline(result: &LoadResult) -> String {
    let what = match (result.mode.as_str(), result.transport.as_str()) {
        ("rr", _) => "transactions per second",
        (_, "tcp") => "messages per second sent",
        _ => "datagrams per second sent",
    };
    format!("{} {what}", units::tps(result.tps))
}

fn figures(result: &LoadResult) -> Vec<Figure> {
    let mut figures = vec![Figure {
        what: "rate",
        value: format!("{}/s", units::tps(result.tps)),
        note: result.offered.map_or_else(
            || "as fast as replies came".to_owned(),
            |offered| format!("of {}/s offered", units::tps(offered)),
        ),
    }];
    if let Some(delivered) = result.delivered {
        figures.push(Figure {
            what: "received",
            value: format!("{}/s", units::tps(delivered.per_second)),
            note: format!(
                "{} Mbit/s; {} in all",
                units::mbits(delivered.mbits),
                units::count(delivered.datagrams)
            ),
        });
    } else {
        let missed = result.counts.late.saturating_add(result.counts.lost);
        figures.push(Figure {
            what: "not answered in time",
            value: units::loss(result.counts.not_in_time()),
            note: format!("{} of {}", units::count(missed), units::count(result.counts.sent)),
        });
        if result.counts.refused > 0 {
            figures.push(Figure {
                what: "refused",
                value: units::loss(result.counts.refusals()),
                note: format!(
                    "{} of {}",
                    units::count(result.counts.refused),
                    units::count(result.counts.sent)
                ),
            });
        }
    }
    if let Some(latency) = result.intended_latency.as_ref().or(result.sent_latency.as_ref()) {
        let (p50, p99) = (units::time(latency.p50 as f64), units::time(latency.p99 as f64));
        figures.push(Figure { what: "99 % answered within", value: p99, note: format!("half within {p50}") });
    }
    figures.push(Figure {
        what: "payload sent",
        value: format!("{} Mbit/s", units::mbits(result.mbits)),
        note: format!("{} bytes each", units::count(result.size.into())),
    });
    figures
}

fn counts(result: &LoadResult) -> Vec<CountRow> {
    let c = result.counts;
    let rows = [
        ("sent", c.sent, "requests handed to the kernel or the driver"),
        ("ok", c.ok, "the first valid reply arrived in time"),
        ("late", c.late, "the first valid reply arrived after the timeout"),
        ("refused", c.refused, "the server's first reply refused them"),
        ("lost", c.lost, "no valid reply by the end of the run"),
        ("received", c.received, "datagrams that came back, valid or not"),
        ("duplicate", c.duplicate, "valid replies to a request that already had one"),
        ("reordered", c.reordered, "first valid replies after the reply to a later request of the same flow"),
        ("corrupt", c.corrupt, "replies whose contents are not the request’s"),
        ("wrong flow", c.wrong_flow, "intact replies that belong to another flow"),
        ("rejected by the kernel", c.send_errors, "requests it did not accept; not counted as sent"),
    ];
    let share = |count: u64| if c.sent == 0 { 0.0 } else { count as f64 / c.sent as f64 };
    let row = |(name, count, meaning)| CountRow {
        name,
        count: units::count(count),
        share: units::loss(share(count)),
        meaning,
        bad: count > 0 && !matches!(name, "sent" | "ok" | "received"),
    };
    rows.into_iter().map(row).collect()
}

fn kinds(result: &LoadResult) -> Vec<KindRow> {
    let kinds = words::load::sorted_kinds(result);
    let all: f64 = kinds.iter().map(|kind| kind.count as f64).sum();
    let row = |kind: &Kind| KindRow {
        name: words::one_line(&kind.name),
        count: units::count(kind.count),
        share: units::loss(kind.count as f64 / all.max(1.0)),
    };
    kinds.into_iter().map(row).collect()
}

fn segments(result: &LoadResult) -> Vec<SegmentRow> {
    let row = |of| {
        move |row: &SegmentResult| SegmentRow {
            cells: words::load::segment(row, of),
            limits: row.limits.iter().map(|limit| words::one_line(limit)).collect::<Vec<_>>().join("; "),
        }
    };
    result.segments.iter().flat_map(|all| all.rows.iter().map(row(all.of))).collect()
}

fn generator(result: &LoadResult) -> String {
    let used = units::duration(result.generator.cpu_seconds);
    let mut sentences = if result.generator.limited {
        format!(
            "Yes: the server may be able to handle more than it was sent. The generator used {used} of CPU time."
        )
    } else if let Some(doubt) = words::load::doubt(result) {
        format!("No. {doubt} It used {used} of CPU time.")
    } else {
        format!("No: the generator kept to its plan. It used {used} of CPU time.")
    };
    for line in words::load::per_core(result) {
        sentences += &format!(" {line}.");
    }
    for note in &result.generator.notes {
        sentences += &format!(" {note}.");
    }
    sentences
}

fn facts(result: &LoadResult) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        (
            "protocol",
            format!("{} over {}, mode {}", result.protocol, result.transport.to_uppercase(), result.mode),
        ),
        ("targets", result.targets.join(", ")),
        ("engine", result.engine.clone()),
        ("arrivals", result.arrivals.clone()),
        ("flows", units::count(result.flows.into())),
        ("size", format!("{} bytes of payload", units::count(result.size.into()))),
        ("measured", units::duration(result.seconds)),
        ("seed", result.seed.to_string()),
    ];
    if let Some(share) = &result.segment {
        facts.push(("segment", share.segment.to_string()));
    }
    let start = result.start.as_ref().map(words::load::start);
    facts.extend(
        start.or_else(|| words::load::segments(result.segments.as_ref()?)).map(|start| ("start", start)),
    );
    facts
}
