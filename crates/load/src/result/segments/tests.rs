use super::*;
use crate::plan::{Arrivals, Process};
use crate::record::{Evidence, Outcome};

fn plan(index: u32, of: u32) -> Plan {
    let mut plan = Plan::new("192.0.2.1:7".parse().unwrap());
    plan.flows = of;
    plan.arrivals = Arrivals::Open { rate: 900.0, process: Process::Poisson };
    plan.segment = Segment::new(index, of).unwrap();
    plan.start_at = Some(UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000));
    plan
}

fn run_of(plan: &Plan, values: &[(u64, u64)]) -> LoadResult {
    let sent: u64 = values.iter().map(|(_, count)| count).sum();
    let (min, max) = (values[0].0, values[values.len() - 1].0);
    let latency = Latency::from_buckets(values.to_vec(), min, max, 1.0);
    let outcome = Outcome {
        engine: "socket",
        protocol: "echo",
        seconds: 1.0,
        counts: Counts { sent, ok: sent, received: sent, ..Counts::default() },
        kinds: Vec::new(),
        completed: sent,
        intended_latency: latency.clone(),
        sent_latency: latency,
        lateness: None,
        delivered: None,
        evidence: Evidence::default(),
        cpus: Vec::new(),
        warnings: Vec::new(),
        start_skew: Some(50_000),
    };
    LoadResult { segment: Some(Share::of(plan, "echo")), ..outcome.into_result(plan) }
}

/// Segments 1 to 3 of 3, each with a bucket of its own and one that all share.
fn three() -> Vec<(String, LoadResult)> {
    let one = |index: u32| {
        let own = 1000 * u64::from(index);
        (format!("{index}.json"), run_of(&plan(index, 3), &[(500, 2), (own, u64::from(index))]))
    };
    (1..=3).map(one).collect()
}

#[test]
fn a_sum_has_everything_of_its_segments() {
    let sum = LoadResult::merge_segments(three()).unwrap();
    assert_eq!((sum.counts.sent, sum.flows, sum.offered, sum.tps), (12, 3, Some(900.0), 12.0));
    let histogram = sum.intended_latency.unwrap().histogram;
    assert_eq!(histogram, [(500, 6), (1000, 1), (2000, 2), (3000, 3)]);
    let segments = sum.segments.unwrap();
    assert_eq!((segments.of, segments.missing.len(), segments.rows.len()), (3, 0, 3));
    let third = &segments.rows[2];
    assert_eq!((third.segment, third.name.as_str(), third.counts.sent), (3, "3.json", 5));
    let start = third.start.unwrap();
    assert_eq!((start.at_ns, start.skew_ns), (1_800_000_000_000_000_000, 50_000));
    assert_eq!((sum.segment, sum.start, sum.warnings.len()), (None, None, 0));
}

#[test]
fn a_sum_of_sums_is_the_sum_in_any_order() {
    let mut parts = three();
    let last = parts.pop().unwrap();
    let two = LoadResult::merge_segments(parts).unwrap();
    assert_eq!(two.segments.as_ref().unwrap().missing, [3]);
    assert_eq!(two.warnings, ["segment 3 of 3 missing: the sums are those of the other 2"]);
    let all = LoadResult::merge_segments(vec![last, ("two.json".into(), two)]).unwrap();
    let direct = LoadResult::merge_segments(three()).unwrap();
    assert_eq!((all.counts, &all.segments), (direct.counts, &direct.segments));
    assert_eq!(
        all.intended_latency.as_ref().unwrap().histogram,
        direct.intended_latency.as_ref().unwrap().histogram
    );
}

#[test]
fn limits_and_warnings_name_their_segments() {
    let mut parts = three();
    for at in [0, 2] {
        parts[at].1.generator.limited = true;
        parts[at].1.generator.reasons.push("no CPU time left".into());
    }
    parts[1].1.warnings.push("clock off".into());
    let sum = LoadResult::merge_segments(parts).unwrap();
    assert!(sum.generator.limited);
    assert_eq!(sum.generator.reasons, ["segments 1, 3: no CPU time left"]);
    assert_eq!(sum.warnings, ["segment 2: clock off"]);
    let limited: Vec<u32> = sum
        .segments
        .unwrap()
        .rows
        .iter()
        .filter(|row| !row.limits.is_empty())
        .map(|row| row.segment)
        .collect();
    assert_eq!(limited, [1, 3]);
}

#[test]
fn what_cannot_be_merged_is_named() {
    type Spoil = fn(&mut Vec<(String, LoadResult)>);
    let faults: &[(Spoil, &[&str])] = &[
        (Vec::clear, &["nothing to merge"]),
        (|all| all[1].1.segment = None, &["2.json is not the result of a segment", "--segment"]),
        (|all| all[2].1 = all[0].1.clone(), &["1.json and 3.json both contain segment 1"]),
        (|all| all[2].1.seed = 9, &["1.json and 3.json are of different loads: seed 1 and 9"]),
        (|all| all[1].1.arrivals = "constant, 9/s".into(), &["arrivals poisson, 900/s and constant, 9/s"]),
        (|all| all[1].1 = run_of(&plan(2, 4), &[(1, 1)]), &["segments 3 and 4"]),
        (
            |all| {
                let other = Plan { timeout: std::time::Duration::from_secs(2), ..plan(2, 3) };
                all[1].1 = run_of(&other, &[(1, 1)]);
            },
            &["1.json and 2.json are of different loads", "timeout"],
        ),
        (|all| all[0].1.counts.lost = u64::MAX, &["1.json is damaged: a count is too large"]),
        (
            |all| all[0].1.sent_latency.as_mut().unwrap().histogram.reverse(),
            &["1.json is damaged: a histogram's values do not ascend"],
        ),
        (|all| all[0].1.sent_latency.as_mut().unwrap().count += 1, &["counts do not add up"]),
    ];
    for (spoil, expected) in faults {
        let mut all = three();
        spoil(&mut all);
        let sentence = LoadResult::merge_segments(all).expect_err(expected[0]).to_string();
        for part in *expected {
            assert!(sentence.contains(part), "{sentence:?} should contain {part:?}");
        }
    }
    let mut sum = LoadResult::merge_segments(three()).unwrap();
    sum.segments.as_mut().unwrap().rows[0].segment = 4;
    let sentence = LoadResult::merge_segments(vec![("x.json".into(), sum)]).unwrap_err().to_string();
    assert!(sentence.contains("x.json is damaged: it names segments"), "{sentence}");
}

#[test]
fn runs_of_segments_are_listed_as_ranges() {
    assert_eq!(named_segments(&[7]), "segment 7");
    assert_eq!(named_segments(&[1, 2, 3, 5, 7, 8]), "segments 1-3, 5, 7-8");
}
