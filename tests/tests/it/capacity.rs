//! `udpath capacity` as its users run it: descriptions, sweeps, captures, JSON, bad input. Calibration has a test in
//! `alone`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use udpath_model::Costs;
use udpath_rig::{Ended, Run, one_sentence};

const SERVER: &str = r#"
cores = 4
queues = 4
workers = 4
io = "shared"
link_gbps = 10
flows = 256
"#;

/// A folder with a description and costs that this test knows.
struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("server.toml"), SERVER).unwrap();
        let costs = serde_json::to_string(&Costs::default()).unwrap();
        fs::write(folder.path().join("costs.json"), costs).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.folder.path().join(name), text).unwrap();
        self.path(name)
    }

    /// `udpath capacity` with these arguments and the known costs.
    fn run(&self, arguments: &[&str]) -> Ended {
        let costs = self.path("costs.json");
        Run::new(&[&["capacity"], arguments, &["--costs", &costs]].concat()).finish()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ended.code(), Some(0), "{}: {}", ended.shown, ended.err);
        let document: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(document["schema"], "udpath.capacity/1");
        document
    }
}

#[test]
fn a_description_becomes_a_rate_with_its_limit_and_the_next_step() {
    let bed = Bed::new();
    let server = bed.path("server.toml");
    let ended = bed.run(&[&server, "--extrapolate"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].contains("server.toml would carry "), "{}", ended.out);
    assert!(lines[2..4].iter().any(|line| line.starts_with("Next: ")), "{}", ended.out);
    assert!(ended.out.contains("extrapolated: 4 CPUs, calibrated with 2"), "{}", ended.out);

    let document = bed.json(&[&server, "--extrapolate"]);
    let outcome = &document["outcome"];
    let limit = if outcome["saturated"].is_null() { "Nothing is saturated: " } else { "Limited by " };
    assert!(lines[1].starts_with(limit), "{}", ended.out);
    let figure = |name: &str| outcome[name].as_f64().unwrap();
    assert!(figure("low") < figure("tps") && figure("tps") < figure("high"));
    let names: Vec<&str> = document["configurations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["shared", "rps", "reuseport", "rps+reuseport", "percpu", "reuseport, batched"]);
    let tps = |name: &str| {
        let all = document["configurations"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap()["outcome"]["tps"].as_f64().unwrap()
    };
    // Four CPUs contend for the one socket.
    assert!(tps("reuseport") > 1.2 * tps("shared"), "{} {}", tps("reuseport"), tps("shared"));
    // The same question has the same answer.
    assert_eq!(document, bed.json(&[&server, "--extrapolate"]));
}

#[test]
fn values_are_set_and_swept() {
    let bed = Bed::new();
    let server = bed.path("server.toml");
    let document = bed.json(&[
        &server,
        "--extrapolate",
        "--set",
        "io=percpu",
        "--set",
        "kernel=6.12",
        "--sweep",
        "cores=1,2,4",
    ]);
    assert_eq!(document["description"]["io"], "percpu");
    assert_eq!(document["description"]["kernel"], "6.12");
    let points = document["sweep"]["points"].as_array().unwrap();
    let tps: Vec<f64> = points.iter().map(|point| point["outcome"]["tps"].as_f64().unwrap()).collect();
    assert_eq!(tps.len(), 3);
    assert!(tps[0] < tps[1] && tps[1] < tps[2], "{tps:?}");
    let help = bed.run(&["--set", "help"]);
    assert!(help.out.lines().any(|key| key == "moderation_us"), "{}", help.out);
    let plot = bed.run(&[&server, "--extrapolate", "--sweep", "batch=1,8,32"]);
    assert!(
        plot.out.contains('┤') && plot.out.lines().any(|line| line.trim_start().starts_with("batch ")),
        "{}",
        plot.out
    );
}

#[test]
fn beyond_the_calibration_it_refuses() {
    let bed = Bed::new();
    let ended = bed.run(&[&bed.path("server.toml")]);
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    one_sentence("beyond", &ended.err);
    for part in ["4 CPUs, calibrated with 2", "4 queues, calibrated with 2", "--extrapolate"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    // Within it, nothing has to be asked for; a card is said.
    let small = bed.file("small.toml", "cores = 2\nqueues = 2\nworkers = 2");
    let ended = bed.run(&[&small]);
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.out.contains("extrapolated: a card's driver"), "{}", ended.out);
    // A point of a sweep counts like a description.
    let ended = bed.run(&[&small, "--sweep", "cores=1..8"]);
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("8 CPUs"), "{}", ended.err);
}

#[test]
fn bad_input_is_one_sentence_each() {
    let bed = Bed::new();
    let server = bed.path("server.toml");
    let empty_profile = bed.file("profile.json", "{\"schema\":\"udpath.load/1\"}");
    let not_costs = bed.file("wrong.json", "{}");
    let mut negative = Costs::default();
    negative.terms.line = -58.0;
    let negative = bed.file("negative.json", &serde_json::to_string(&negative).unwrap());
    let capture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/host/tests/fixtures/captured/firecracker-2-cpus.tar.gz"
    );
    let set = |what: &'static str| -> Vec<String> { vec![server.clone(), "--set".into(), what.into()] };
    let file = |name: &str, text: &str| vec![bed.file(name, text)];
    let cases: Vec<(Vec<String>, &str)> = vec![
        (vec!["/no/such.toml".into()], "/no/such.toml"),
        (file("a.toml", "cores = "), "line 1"),
        (file("b.toml", "coers = 4"), "unknown field `coers`"),
        (file("c.toml", "cores = 4\nqueues = 8"), "queues is 8, but there are 4 CPUs"),
        (file("d.toml", "cores = 0"), "cores is 0: expected 1 to 128"),
        (file("e.toml", "cores = 1000000"), "cores is 1000000: expected 1 to 128"),
        (file("f.toml", "io = \"xdp\""), "unknown variant `xdp`"),
        (file("g.toml", "inflight = 10\nrate = 1e6"), "inflight and rate exclude each other"),
        (set("cores"), "is not KEY=VALUE"),
        (set("coers=4"), "there is no key \"coers\""),
        (set("cores=many"), "invalid value \"many\" of cores"),
        (set("nodes=3"), "cannot be divided evenly over 3 nodes"),
        (set("workers=0"), "workers is 0"),
        (set("rate=-1"), "rate is -1"),
        (vec![server.clone(), "--sweep".into(), "cores=4..1".into()], "invalid sweep"),
        (vec![server.clone(), "--sweep".into(), "cores=100,200".into()], "at 200: cores is 200"),
        (vec![server.clone(), "--sweep".into(), "io=1,2".into()], "invalid value \"1\" of io"),
        (vec![server.clone(), "--profile".into(), empty_profile], "schema"),
        (vec!["--sysroot".into(), capture.into(), "--interface".into(), "no0".into()], "no0"),
    ];
    for (arguments, expected) in cases {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = bed.run(&words);
        assert!(matches!(ended.code(), Some(2 | 3)), "{words:?}: {:?} {}", ended.code(), ended.err);
        let shown = ended.err.lines().next().unwrap_or_default();
        assert!(ended.err.contains(expected), "{words:?}: {} ≠ {expected}", ended.err);
        // clap's own errors have a usage line behind them.
        if !shown.starts_with("error:") {
            one_sentence(&format!("{words:?}"), &ended.err);
        }
    }
    for (costs, expected) in [
        (not_costs, "has no costs"),
        (negative, "line is -58: expected 0 to"),
        ("/no.json".into(), "/no.json"),
    ] {
        let ended = Run::new(&["capacity", &server, "--costs", &costs]).finish();
        assert!(matches!(ended.code(), Some(2 | 3)), "{}", ended.err);
        assert!(ended.err.contains(expected), "{}", ended.err);
        one_sentence(&costs, &ended.err);
    }
}

#[test]
fn a_capture_needs_costs_or_a_profile() {
    let bed = Bed::new();
    let capture = bed.path("capture");
    let taken = Run::new(&["support", "--output", &capture]).finish();
    assert_eq!(taken.code(), Some(0), "{}", taken.err);
    assert!(Path::new(&capture).is_dir());
    let ended = Run::new(&["capacity", "--sysroot", &capture]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    one_sentence("capture", &ended.err);
    assert!(ended.err.contains("a capture has no profile"), "{}", ended.err);
    let document = bed.json(&["--sysroot", &capture, "--extrapolate"]);
    assert!(document["source"].as_str().unwrap().starts_with("the machine captured in "));
    assert!(document["outcome"]["tps"].as_f64().unwrap() > 1000.0);
}
