//! `udpath compare` as its users run it. Needs root for the lab.

use std::fs;
use std::path::Path;

use serde_json::Value;
use udpath_rig::{Ended, Run, one_sentence};

use crate::results::{measured, steady, written};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/report/tests/fixtures");

fn compare(a: &Path, b: &Path, more: &[&str]) -> Ended {
    let files = [a, b].map(|path| path.to_str().unwrap());
    Run::new(&[&["compare"], &files[..], more].concat()).finish()
}

fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), Some(code), "{}", ended.err);
    one_sentence(&ended.shown, &ended.err);
    assert_eq!(ended.out, "");
    for part in parts {
        assert!(ended.err.contains(part), "no {part:?} in {}", ended.err);
    }
}

#[test]
fn a_slower_run_is_worse_and_a_faster_one_better() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let before = written(folder.path(), "before.json", &steady(1e5, 1_000, "6.1"));
    let after = written(folder.path(), "after.json", &steady(0.8e5, 2_000, "6.2"));
    let page = folder.path().join("page.html");
    let worse = compare(&before, &after, &["--report", page.to_str().unwrap()]);
    assert_eq!(worse.code(), Some(1), "{}", worse.err);
    assert!(worse.err.ends_with("udpath: B is shown to be worse than A\n"), "{}", worse.err);
    assert!(worse.out.starts_with("B is worse than A: transactions/s 0.800× (0.79"), "{}", worse.out);
    let kernel = worse.out.lines().find(|line| line.starts_with("kernel")).unwrap_or_default();
    assert!(kernel.contains("6.1") && kernel.contains("6.2"), "{}", worse.out);
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("<h1>B is worse than A</h1>") && page.contains("<svg") && !page.contains("<script")
    );
    let better = compare(&after, &before, &["--json"]);
    assert_eq!(better.code(), Some(0), "{}", better.err);
    let better: Value = serde_json::from_str(&better.out).unwrap();
    assert_eq!((&better["schema"], &better["verdict"]), (&"udpath.compare/1".into(), &"better".into()));
    let rate = &better["figures"][0];
    let interval = ["low", "ratio", "high"].map(|end| rate["interval"][end].as_f64().unwrap());
    assert!(
        interval[0] < interval[1] && interval[1] < interval[2] && (interval[1] - 1.25).abs() < 0.01,
        "{rate}"
    );
}

#[test]
fn a_real_run_is_not_worse_than_itself() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let result = written(folder.path(), "a.json", measured());
    let same = compare(&result, &result, &[]);
    assert_eq!(same.code(), Some(0), "{}", same.err);
    assert!(!same.out.contains("also different") && !same.out.contains("worse than A:"), "{}", same.out);
    // A second does not show how the rate varied.
    assert!(same.out.contains("run the load for 5 s or longer"), "{}", same.out);
    for line in same.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn unlike_loads_are_refused_by_what_differs() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let a = written(folder.path(), "a.json", &steady(1e5, 1_000, "6.1"));
    let mut other = steady(0.5e5, 1_000, "6.1");
    other["flows"] = 64.into();
    other["size"] = 512.into();
    let b = written(folder.path(), "b.json", &other);
    let ended = compare(&a, &b, &[]);
    refused(
        &ended,
        2,
        &["flows (1 and 64), size (100 and 512)", "give two results of one load, or --anyway"],
    );
    let anyway = compare(&a, &b, &["--anyway"]);
    assert_eq!(anyway.code(), Some(0), "{}", anyway.err);
    assert!(
        anyway.out.starts_with("Not a fair comparison: the loads differ in flows (1 and 64)"),
        "{}",
        anyway.out
    );
}

#[test]
fn every_kind_is_compared_with_its_own() {
    let fixture = |name: &str| Path::new(FIXTURES).join(name);
    let (climb, load, profile) =
        (fixture("made-up-boost.json"), fixture("made-up-load.json"), fixture("profile.json"));
    for same in [&climb, &load, &profile] {
        let ended = compare(same, same, &["--json"]);
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        let result: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(result["verdict"], "not_shown", "{}", same.display());
        assert!(result["figures"].as_array().unwrap().len() > 3);
    }
    let both = "give two results of the same verb";
    refused(&compare(&climb, &load, &[]), 2, &["is a result of boost and", "of load", both]);
    refused(&compare(&load, &profile, &["--anyway"]), 2, &["is a result of load and", "of profile", both]);
}

#[test]
fn files_that_are_no_results_are_refused() {
    let fixture = Path::new(FIXTURES).join("made-up-load.json");
    refused(
        &compare(&fixture, Path::new("/nonexistent.json"), &[]),
        3,
        &["cannot read", "name a file that exists"],
    );
    refused(&compare(Path::new("-"), Path::new("-"), &[]), 2, &["name a file for A or for B"]);
    refused(&compare(&fixture, Path::new("-"), &[]), 3, &["is empty"]);
    let nowhere = ["--report", "/nonexistent/page.html"];
    refused(&compare(&fixture, &fixture, &nowhere), 3, &["cannot write /nonexistent/page.html"]);
}
