//! Two results compared, and the history of results: screens compared with snapshots, and hostile text.

use std::collections::BTreeMap;

use udpath_advise::comparison::{CompareResult, boosts, loads, profiles};
use udpath_advise::result::{BoostResult, Verdict};
use udpath_history::{Listing, Metric, Run};
use udpath_load::origin::Origin;
use udpath_load::result::{LoadResult, Series};
use udpath_report::{Document, Render, Style, Versus, history_text};

use crate::fixture;

fn origin(kernel: &str, rmem: &str) -> Origin {
    Origin {
        at: 1_767_225_600,
        version: "0.1.0".into(),
        machine: "0011223344556677".into(),
        cpu_model: "AMD EPYC".into(),
        cpus: 2,
        kernel: kernel.into(),
        settings: BTreeMap::from([("net.core.rmem_max".into(), rmem.into())]),
    }
}

/// The fixture, steady at `share` of its rate, with a loss to match.
fn load(share: f64, kernel: &str, rmem: &str) -> LoadResult {
    let mut result = fixture::load();
    result.tps *= share;
    let slices = (0..10).map(|slice| result.tps * (1.0 + 0.002 * f64::from(slice % 3)));
    result.series = Some(Series { slice: 1.0, tps: slices.collect() });
    result.origin = Some(origin(kernel, rmem));
    result
}

fn rendered(result: &CompareResult, documents: [&Document; 2], style: &Style) -> (String, String) {
    let versus = Versus { result, names: ["before.json", "after.json"], documents };
    (versus.terminal(style), versus.html())
}

fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn two_loads_on_eighty_columns() {
    let (a, b) = (load(1.0, "6.1.0", "212992"), load(0.9, "6.2.0", "4194304"));
    let result = loads(&a, &b);
    assert_eq!(result.verdict, Verdict::Worse);
    let (text, page) = rendered(&result, [&Document::Load(a), &Document::Load(b)], &Style::default());
    insta::assert_snapshot!("compare_loads_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
    assert!(page.contains("<h1>B is worse than A</h1>") && page.contains("Latency of A and B"));
    assert!(!page.contains("<script"));
}

#[test]
fn two_climbs_on_eighty_columns() {
    let a = fixture::boost();
    let mut b: BoostResult = a.clone();
    for rung in &mut b.rungs {
        rung.trials.iter_mut().for_each(|tps| *tps *= 1.2);
        rung.tps *= 1.2;
    }
    let result = boosts(&a, &b);
    assert_eq!(result.verdict, Verdict::Better);
    let (text, page) = rendered(&result, [&Document::Boost(a), &Document::Boost(b)], &Style::default());
    insta::assert_snapshot!("compare_climbs_80", text);
    assert!(width(&text) <= 80 && page.contains("B is better than A"));
}

#[test]
fn two_profiles_on_eighty_columns() {
    let (a, b) = (fixture::profile(), fixture::faster_profile());
    let result = profiles(&a, &b);
    assert_eq!(result.verdict, Verdict::Better);
    let back = profiles(&b, &a);
    assert_eq!(back.verdict, Verdict::Worse);
    let (text, page) = rendered(&result, [&Document::Profile(a), &Document::Profile(b)], &Style::default());
    insta::assert_snapshot!("compare_profiles_80", text);
    assert!(width(&text) <= 80 && page.contains("Flame graph of the difference"));
}

/// Text of an edited file moves no cursor, ends no table and begins no tag.
#[test]
fn hostile_text_stays_text() {
    let hostile = "\u{1b}[2J<script>alert(1)</script>\u{202e}\n";
    let mut a = load(1.0, hostile, hostile);
    a.protocol = hostile.into();
    a.counts.received += 1;
    let b = load(1.0, "6.1", "1");
    let result = loads(&a, &b);
    let names = [hostile, hostile];
    let documents = [Document::Load(a), Document::Load(b)];
    let versus = Versus { result: &result, names, documents: [&documents[0], &documents[1]] };
    let (text, page) = (versus.terminal(&Style::default()), versus.html());
    assert!(!text.contains(['\u{1b}', '\u{202e}']) && !page.contains(['\u{1b}', '\u{202e}']));
    assert!(!page.contains("<script>"), "{page}");
    let run = Run { name: hostile.into(), load: hostile.into(), ..run(1, 1.0) };
    let text = history_text(&Listing::new(vec![run], Metric::Tps), &Style::default(), true);
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
}

fn run(id: i64, level: f64) -> Run {
    let wobble = 1.0 + 0.003 * f64::from(i32::try_from(id * 7 % 5).unwrap() - 2);
    let tps = 1e5 * level * wobble;
    let (kernel, rmem) = if level < 1.0 { ("6.2.0", "212992") } else { ("6.1.0", "4194304") };
    let origin = Origin { at: 1_767_225_600 + 86_400 * id.unsigned_abs(), ..origin(kernel, rmem) };
    Run {
        id,
        kind: "load".into(),
        name: "nightly".into(),
        load:
            "dns rr over udp to 10.0.0.2:53, socket engine, closed, 8 in flight per flow, 8 flows, 40 bytes"
                .into(),
        origin,
        tps: Some(tps),
        p99: Some(1e10 / tps),
        cpu: (id % 9 != 0).then(|| 1e9 / tps),
    }
}

fn listing(metric: Metric) -> Listing {
    let mut runs: Vec<Run> = (1..=24).map(|id| run(id, if id <= 14 { 1.0 } else { 0.93 })).collect();
    let elsewhere = Origin { machine: String::new(), cpu_model: String::new(), ..origin("6.1.0", "") };
    runs.insert(0, Run { name: String::new(), origin: elsewhere, tps: None, p99: None, ..run(30, 1.0) });
    Listing::new(runs, metric)
}

#[test]
fn a_history_on_eighty_columns() {
    let text = history_text(&listing(Metric::Tps), &Style::default(), true);
    insta::assert_snapshot!("history_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
    let latency = history_text(&listing(Metric::P99), &Style::default(), false);
    let words = latency.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("(run 15): 99th percentile of latency 1.0"), "{latency}");
    assert!(!latency.contains('┤'));
}

#[test]
fn a_history_of_nothing() {
    assert_eq!(history_text(&Listing::new(Vec::new(), Metric::Cpu), &Style::default(), true), "No runs.\n");
}
