//! Experiments: their text, their page, their files of the book, and that these are those of the committed result.

use std::fs;
use std::path::Path;

use udpath_experiment::ExperimentResult;
use udpath_report::{Document, Render, Style, experiment_docs, parse};

const TEXT: &str = include_str!("../fixtures/made-up-experiment.json");

pub(crate) fn made_up() -> ExperimentResult {
    match parse(TEXT.as_bytes(), "made-up-experiment.json").expect("the fixture is a result") {
        Document::Experiment(result) => result,
        _ => panic!("the fixture is of experiments"),
    }
}

#[test]
fn experiments_on_a_hundred_columns() {
    let text = made_up().terminal(&Style { colour: false, width: 100 });
    insta::assert_snapshot!("experiment_100", text);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns");
}

#[test]
fn a_narrow_terminal_has_no_labels() {
    let text = made_up().terminal(&Style { colour: false, width: 60 });
    assert!(text.contains("flood-spread") && !text.contains("+ softirqs"), "{text}");
}

#[test]
fn a_result_comes_back_as_it_went() {
    let result = made_up();
    assert_eq!(parse(result.json().as_bytes(), "x").unwrap(), Document::Experiment(result));
}

#[test]
fn a_wrong_verdict_is_named() {
    let wrong = TEXT.replacen("\"same-order\"", "\"alike\"", 1);
    let error = parse(wrong.as_bytes(), "x.json").unwrap_err().to_string();
    assert!(
        error.starts_with("x.json does not match its schema udpath.experiment/1: unknown variant `alike`"),
        "{error}"
    );
}

#[test]
fn the_plot_has_a_mark_for_each_figure() {
    let page = made_up().html();
    // One published and one modelled ratio besides the first case's 1, twice: for a page and for a phone; and the
    // legend.
    for (mark, figures) in [("mark-published", 3), ("mark-measured", 4), ("mark-modelled", 3 * 2)] {
        let legend = if mark == "mark-modelled" { 2 } else { 1 };
        assert_eq!(page.matches(&format!("class=\"{mark}\"")).count(), 2 * (figures + legend), "{mark}");
    }
    assert!(page.contains(">Rates over receive queues</title>"), "no plot of the sweep");
}

#[test]
fn pages_of_the_book_escape_what_a_file_contains() {
    let mut result = made_up();
    result.experiments[0].notes = vec!["a | b <script> `c`\nd".to_owned()];
    let files = experiment_docs(&result, "{}");
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        ["experiments.md", "experiments/ladder.md", "experiments/ladder.svg", "experiments/ladder-1.svg"]
    );
    assert!(files[1].contents.contains("- a \\| b \\<script\\> \\`c\\` d\n"), "{}", files[1].contents);
    assert!(!files[1].contents.contains(&result.machine.hostname), "a host name in the book");
    assert!(files[2].contents.starts_with("<svg ") && files[2].contents.contains("xmlns="));
    result.experiments[0].name = "../../etc".to_owned();
    assert_eq!(experiment_docs(&result, "{}").len(), 1);
}

#[test]
fn the_book_has_the_pages_of_the_committed_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("benches/results/experiments.json");
    let (Document::Experiment(result), text) = udpath_report::read_with_text(&file).unwrap() else {
        panic!("benches/results/experiments.json is not a result of experiment");
    };
    assert_eq!(result.machine.hostname, "", "a host name in the repository; make experiment-docs removes it");
    let files = experiment_docs(&result, &text);
    for file in &files {
        let there = fs::read_to_string(root.join("docs").join(&file.path)).unwrap_or_default();
        assert!(
            there == file.contents,
            "docs/{} is not that of the result; run make experiment-docs",
            file.path
        );
    }
    for entry in fs::read_dir(root.join("docs/experiments")).unwrap().flatten() {
        let path = format!("experiments/{}", entry.file_name().to_string_lossy());
        assert!(files.iter().any(|file| file.path == path), "docs/{path} belongs to no experiment");
    }
}
