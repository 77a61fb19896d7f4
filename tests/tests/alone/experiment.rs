//! `udpath experiment`: each experiment with the least effort in its own labs, and every way it can be refused. Needs
//! root.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_rig::{Host, Run, alone, one_sentence, together};

/// An experiment with the least effort finishes within this on any usable machine.
const LEAST: Duration = Duration::from_secs(240);

/// Runs one experiment; its outcome, after checks that hold for each.
fn outcome(name: &str) -> Value {
    let _alone = alone();
    let host = Host::now();
    let folder = tempfile::tempdir().unwrap();
    let page_file = folder.path().join("page.html");
    let page_name = page_file.to_str().unwrap();
    let ended = Run::new(&["experiment", name, "--effort", "least", "--json", "--report", page_name])
        .within(LEAST)
        .finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.err.contains(&format!("[1/1] {name} 1/")), "no progress: {}", ended.err);
    host.is_as_before(&[ended.pid]);
    let result: Value = serde_json::from_str(&ended.out).expect("stdout is one JSON document");
    assert_eq!(result["schema"], "udpath.experiment/1");
    let page = fs::read_to_string(&page_file).unwrap();
    let outcome = result["experiments"][0].clone();
    assert_eq!(outcome["name"], name);
    for case in outcome["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        assert!(page.contains(&format!("<code>{id}</code>")), "{id} is not on the page");
        if case["measured"].is_null() {
            let reason = case["not_measured"].as_str();
            assert!(reason.is_some_and(|reason| reason.len() > 10), "{id}: neither a figure nor a reason");
        } else {
            assert!(case["measured"]["trials"].as_u64().unwrap() > 0, "{case}");
            let cpu = case["measured_cpu"].as_f64();
            assert!(cpu.is_none_or(|cpu| (0.0..=1.0).contains(&cpu)), "{case}");
        }
    }
    for of in outcome["comparisons"].as_array().unwrap() {
        if !of["measured"].is_null() {
            let figure = |field: &str| of["measured"][field].as_f64().unwrap();
            assert!(figure("low") <= figure("ratio") && figure("ratio") <= figure("high"), "{of}");
            assert_ne!(of["verdict"], "not-measured", "{of}");
        }
    }
    outcome
}

/// Ids of the cases that were measured and answered something.
fn answered(outcome: &Value) -> Vec<&str> {
    let cases = outcome["cases"].as_array().unwrap().iter();
    cases
        .filter(|case| case["measured"]["high"].as_f64().is_some_and(|high| high > 0.0))
        .map(|case| case["id"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "in make soak: a minute and a half, for rungs that boost:: climbs in make test"]
fn ladder() {
    udpath_lab::needs_root!();
    let outcome = outcome("ladder");
    let answered = answered(&outcome);
    for rung in [
        "one-queue",
        "rss",
        "spread",
        "reuseport",
        "by-cpu",
        "pinned",
        "rps-off",
        "netfilter",
        "conntrack",
        "gro",
    ] {
        assert!(answered.contains(&rung), "{rung} answered nothing: {outcome}");
    }
    let published: Vec<f64> =
        outcome["cases"].as_array().unwrap().iter().filter_map(|case| case["published"].as_f64()).collect();
    assert_eq!(published, [270_000.0, 17_000.0, 2_540_000.0]);
}

#[test]
#[ignore = "in make soak: a minute, for what receive shows of experiments in make test"]
fn rps() {
    udpath_lab::needs_root!();
    let outcome = outcome("rps");
    let answered = answered(&outcome);
    for case in [
        "e1000e-off",
        "e1000e-on",
        "bnx2x-8q",
        "udp-off",
        "udp-on",
        "heavy-on",
        "light-on",
        "tcp-rfs",
        "xdp-steered",
    ] {
        assert!(answered.contains(&case), "{case} answered nothing: {outcome}");
    }
    // Cases of several published machines that stand for one here have one figure.
    let figure = |id: &str| {
        let case = outcome["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
        case["measured"]["median"].as_f64()
    };
    assert_eq!(figure("e1000e-off"), figure("forcedeth-off"));
    let reordering = &outcome["tables"][0]["rows"];
    let count = |row: usize, column: usize| reordering[row][column].as_str().unwrap().parse::<u64>().unwrap();
    assert!(count(0, 1) > 0 && count(1, 1) > 0, "{reordering}");
    // With a constant mask a flow has one backlog, one socket and one worker: nothing can overtake.
    assert_eq!(count(0, 2), 0, "{reordering}");
}

/// The shares in a table of classes: of each row, they are all of its time.
fn shares_add_up(outcome: &Value) {
    let tables = outcome["tables"].as_array().unwrap().iter();
    let classes = tables.filter(|table| table["title"].as_str().unwrap().contains("by class"));
    let mut rows = classes.flat_map(|table| table["rows"].as_array().unwrap()).peekable();
    assert!(rows.peek().is_some(), "no table of classes: {}", outcome["notes"]);
    for row in rows {
        let shares = row.as_array().unwrap()[2..].iter();
        let sum: f64 =
            shares.map(|cell| cell.as_str().unwrap().trim_end_matches(" %").parse::<f64>().unwrap()).sum();
        // Eight figures with one decimal each; nothing at all of a process that got no sample.
        assert!((sum - 100.0).abs() < 0.5 || sum == 0.0, "{row}");
    }
}

#[test]
fn receive() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let outcome = outcome("receive");
    let answered = answered(&outcome);
    // In memory, a trial of some milliseconds may see nothing on a busy machine.
    for case in
        ["one-queue", "two-rx-queues", "four-rx-queues", "recvfrom", "recvmmsg", "bare-recvfrom", "bare-read"]
    {
        assert!(answered.contains(&case), "{case} received nothing: {outcome}");
    }
    shares_add_up(&outcome);
}

#[test]
fn epochs() {
    udpath_lab::needs_root!();
    let outcome = outcome("epochs");
    let stages = ["one-ring", "rings", "interfaces", "address", "neighbours", "sockets"];
    assert_eq!(answered(&outcome), stages);
    assert_eq!(outcome["tables"][1]["rows"].as_array().unwrap().len(), 12, "four tables, three protections");
}

#[test]
#[ignore = "in make soak: three quarters of a minute, for what receive shows of experiments in make test"]
fn overheads() {
    udpath_lab::needs_root!();
    let outcome = outcome("overheads");
    let answered = answered(&outcome);
    for case in ["no-offloads", "gso-gro", "jumbo", "rfs", "single"] {
        assert!(answered.contains(&case), "{case} delivered nothing: {outcome}");
    }
    shares_add_up(&outcome);
}

#[test]
fn an_interrupted_experiment_leaves_nothing() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let mut running = Run::new(&["experiment", "ladder", "--effort", "least"]).within(LEAST).start();
    running.says("[1/1] ladder 2/");
    running.signal(Signal::INT);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    let last = ended.err.lines().last();
    assert_eq!((last, &*ended.out), (Some("udpath: interrupted; the labs have been removed"), ""));
    host.is_as_before(&[ended.pid]);
}

#[test]
fn experiments_are_listed_and_unknown_ones_refused() {
    let _turn = together();
    let ended = Run::new(&["experiment", "--list"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    for name in ["ladder", "rps", "receive", "epochs", "overheads"] {
        assert!(ended.out.lines().any(|line| line.starts_with(&format!("{name} "))), "{}", ended.out);
    }
    for (arguments, part) in [
        (
            &["ladders"][..],
            "unknown experiment \"ladders\"; the experiments are ladder, rps, receive, epochs, overheads",
        ),
        (&["--effort", "most"], "invalid value 'most' for '--effort <EFFORT>'"),
        (&["--list", "ladder"], "cannot be used with"),
        (&["ladder", "--report", "/proc"], "--report: cannot write /proc: it is a folder"),
    ] {
        let ended = Run::new(&[&["experiment"], arguments].concat()).finish();
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.err);
        one_sentence(&format!("{arguments:?}"), &ended.err);
        assert!(ended.err.contains(part), "{arguments:?}: {}", ended.err);
    }
}
