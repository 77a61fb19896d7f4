//! Verdicts, likeness and bad values, on results made up here.

use udpath_load::result::{Generator, Latency, LoadResult, PerCore, Series};

use super::*;

fn latency(scale: f64) -> Latency {
    let histogram: Vec<(u64, u64)> =
        (100..200).map(|v| ((f64::from(v) * 1000.0 * scale) as u64, 1000)).collect();
    let (min, max) = (histogram[0].0, histogram[99].0);
    Latency::from_buckets(histogram, min, max, 150_000.0 * scale).unwrap()
}

/// 10 s at this rate, with a per cent of scatter from second to second.
pub(crate) fn load(tps: f64) -> LoadResult {
    let scatter = [1.0, 0.99, 1.01, 1.005, 0.995, 1.0, 1.008, 0.992, 1.002, 0.998];
    let sent = (tps * 10.0) as u64;
    LoadResult {
        schema: udpath_load::result::SCHEMA.into(),
        protocol: "echo".into(),
        targets: vec!["10.0.0.2:7".into()],
        engine: "socket".into(),
        transport: "udp".into(),
        mode: "rr".into(),
        arrivals: "closed, 8 in flight per flow".into(),
        flows: 8,
        size: 100,
        seed: 1,
        seconds: 10.0,
        counts: Counts { sent, ok: sent, received: sent, ..Counts::default() },
        kinds: Vec::new(),
        offered: None,
        tps,
        series: Some(Series { slice: 1.0, tps: scatter.map(|share| share * tps).into() }),
        mbits: 0.0,
        delivered: None,
        intended_latency: Some(latency(1.0)),
        sent_latency: Some(latency(1.0)),
        lateness: None,
        generator: Generator::default(),
        cpus: Vec::new(),
        per_core: PerCore::default(),
        warnings: Vec::new(),
        drifted: None,
        start: None,
        segment: None,
        segments: None,
        origin: None,
    }
}

fn figure<'a>(result: &'a CompareResult, name: &str) -> &'a Figure {
    result.figures.iter().find(|figure| figure.name == name).unwrap()
}

#[test]
fn a_run_is_not_better_than_itself() {
    let same = loads(&load(1e5), &load(1e5));
    assert_eq!((same.verdict, same.unlike.len(), same.differs.len()), (Verdict::NotShown, 0, 0));
    let ratio = figure(&same, "transactions").interval.unwrap();
    assert!(ratio.low < 1.0 && ratio.high > 1.0 && ratio.ratio == 1.0, "{ratio:?}");
    // Within what two equal runs differ.
    assert_eq!(loads(&load(1e5), &load(1.02e5)).verdict, Verdict::NotShown);
}

#[test]
fn rates_decide_in_both_directions() {
    assert_eq!(loads(&load(1e5), &load(0.9e5)).verdict, Verdict::Worse);
    assert_eq!(loads(&load(0.9e5), &load(1e5)).verdict, Verdict::Better);
}

#[test]
fn a_slower_answer_is_worse_even_at_a_higher_rate() {
    let slow = LoadResult { intended_latency: Some(latency(1.7)), ..load(1.2e5) };
    let compared = loads(&load(1e5), &slow);
    assert_eq!(figure(&compared, "transactions").verdict, Some(Verdict::Better));
    assert_eq!(figure(&compared, "p50").verdict, Some(Verdict::Worse));
    assert_eq!(figure(&compared, "p99").verdict, Some(Verdict::Worse));
    assert_eq!(figure(&compared, "p99.9").verdict, None);
    assert_eq!(compared.verdict, Verdict::Worse);
}

#[test]
fn latency_of_a_disturbed_run_is_no_evidence() {
    let rates = [1e5, 0.7e5, 1.2e5, 1e5, 0.6e5, 1.1e5, 1e5, 1.2e5, 0.8e5, 1e5];
    let series = Some(Series { slice: 1.0, tps: rates.into() });
    let disturbed = LoadResult { intended_latency: Some(latency(5.0)), series, ..load(1e5) };
    let compared = loads(&load(1e5), &disturbed);
    assert_eq!((compared.verdict, figure(&compared, "p99").verdict), (Verdict::NotShown, None));
    // Nor is a rate, unless it is less than half.
    assert_eq!(loads(&load(1.7e5), &disturbed).verdict, Verdict::NotShown);
    assert_eq!(loads(&load(4e5), &disturbed).verdict, Verdict::Worse);
    assert!(
        compared.notes.iter().any(|note| note.contains("latency is no evidence")),
        "{:?}",
        compared.notes
    );
}

#[test]
fn losses_need_a_difference_and_enough_requests() {
    let lossy = |lost: u64, sent: u64| {
        let counts = Counts { sent, ok: sent - lost, lost, received: sent - lost, ..Counts::default() };
        LoadResult { counts, ..load(1e5) }
    };
    let verdict = |a: &LoadResult, b: &LoadResult| loads(a, b).verdict;
    assert_eq!(verdict(&load(1e5), &lossy(5_000, 1_000_000)), Verdict::Worse);
    assert_eq!(verdict(&lossy(5_000, 1_000_000), &load(1e5)), Verdict::Better);
    assert_eq!(verdict(&load(1e5), &lossy(900, 1_000_000)), Verdict::NotShown);
    assert_eq!(verdict(&load(1e5), &lossy(1, 100)), Verdict::NotShown);
}

#[test]
fn unlike_loads_are_named_and_get_no_verdict() {
    let other = LoadResult {
        protocol: "dns".into(),
        flows: 64,
        seconds: 12.0,
        arrivals: "poisson, 1000/s".into(),
        ..load(5e4)
    };
    let compared = loads(&load(1e5), &other);
    let what: Vec<_> = compared.unlike.iter().map(|pair| pair.what.as_str()).collect();
    assert_eq!(what, ["protocol", "arrivals", "flows", "duration"]);
    assert_eq!(compared.verdict, Verdict::NotShown);
    // A tenth of the duration is alike, and so is another interface of the kernel engine.
    let alike =
        LoadResult { seconds: 10.9, arrivals: format!("{}, XDP on eth7", load(1.0).arrivals), ..load(1e5) };
    assert_eq!(loads(&load(1e5), &alike).unlike, []);
}

#[test]
fn what_is_not_known_is_said() {
    let short = LoadResult { series: None, ..load(1e5) };
    let compared = loads(&load(1e5), &short);
    assert_eq!(figure(&compared, "transactions").verdict, None);
    assert!(compared.notes.iter().any(|note| note.starts_with("B does not show how its rate varied")));
    assert!(compared.notes.iter().any(|note| note.starts_with("neither A nor B says on which machine")));
    let limited = Generator { limited: true, ..Generator::default() };
    let unbalanced = Counts { sent: 5, ..load(1e5).counts };
    let odd = LoadResult { generator: limited, counts: unbalanced, ..load(1e5) };
    let notes = loads(&odd, &load(1e5)).notes.join("\n");
    assert!(
        notes.contains("A was limited by its generator") && notes.contains("A: its counts do not add up")
    );
}

#[test]
fn settings_of_the_machines_are_compared_by_name() {
    let origin = |kernel: &str, settings: &[(&str, &str)]| Origin {
        kernel: kernel.into(),
        settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Origin::default()
    };
    let a = origin("6.1", &[("net.core.rmem_max", "212992"), ("governor", "powersave")]);
    let b = origin("6.2", &[("net.core.rmem_max", "4194304"), ("clock source", "tsc")]);
    let pair = |what: &str, a: &str, b: &str| Pair { what: what.into(), a: a.into(), b: b.into() };
    assert_eq!(
        origins(&a, &b),
        [
            pair("kernel", "6.1", "6.2"),
            pair("clock source", "", "tsc"),
            pair("governor", "powersave", ""),
            pair("net.core.rmem_max", "212992", "4194304"),
        ]
    );
}

/// Values that a file may contain, and no run has.
#[test]
fn figures_beyond_reason_do_no_harm() {
    let empty = Latency { histogram: Vec::new(), count: 0, ..latency(1.0) };
    let huge = Latency { histogram: vec![(u64::MAX, u64::MAX), (5, u64::MAX)], ..latency(1.0) };
    for tps in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
        for latency in [&empty, &huge] {
            let odd = LoadResult {
                tps,
                seconds: tps,
                series: Some(Series { slice: tps, tps: vec![tps; 40] }),
                intended_latency: Some(latency.clone()),
                counts: Counts { ok: u64::MAX, late: u64::MAX, ..Counts::default() },
                ..load(1e5)
            };
            for compared in [loads(&odd, &load(1e5)), loads(&load(1e5), &odd), loads(&odd, &odd)] {
                assert_eq!(compared.verdict, Verdict::NotShown, "{tps}: {compared:?}");
            }
        }
    }
}
