//! `deploy/` matches the program's output: promtool's own checks pass, and every metric named there is exported.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use udpath_rig::Run;

/// Where `scripts/setup.sh` puts it.
const PROMTOOL: &str = "/var/cache/udpath/promtool";
/// Exported only where there is something to count, so possibly not here.
const SOMETIMES: [&str; 2] = [
    // Needs a driver that counts drops by queue.
    "udpath_queue_receive_drops_total",
    // Needs a device with interrupts.
    "udpath_queue_interrupts_total",
];

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap()
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROMTOOL)
        .args(arguments)
        .current_dir(deploy("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{PROMTOOL}: {error}; run scripts/setup.sh"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn sound(arguments: &[&str], input: &str) {
    let done = promtool(arguments, input);
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "promtool {}: {said}", arguments.join(" "));
}

/// Metrics exported here, including those of a socket opened for this.
fn exported() -> String {
    let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let ended = Run::new(&["export", "--once", "--queues"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.out
}

/// Words in a text that are names of udpath metrics.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("udpath_")).map(str::to_owned).collect()
}

#[test]
fn promtool_takes_the_rules_their_tests_and_the_metrics() {
    sound(&["check", "rules", "udpath.rules.yml"], "");
    sound(&["test", "rules", "udpath.rules.test.yml"], "");
    sound(&["check", "metrics"], &exported());
    // The checks can fail.
    assert!(!promtool(&["check", "metrics"], "udpath_x{ 1\n").status.success());
}

#[test]
fn every_rule_has_a_test() {
    let (rules, tests) = (read("prometheus/udpath.rules.yml"), read("prometheus/udpath.rules.test.yml"));
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let fires =
            [format!("alertname=\"{name}\", alertstate=\"firing\", severity"), format!("alertname: {name}")];
        assert!(fires.iter().any(|text| tests.contains(text)), "{name} never fires in a test");
    }
}

#[test]
fn every_metric_that_is_named_is_exported() {
    let here = exported();
    let samples: BTreeSet<&str> = here
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for file in ["prometheus/udpath.rules.yml", "prometheus/udpath.rules.test.yml", "grafana/udpath.json"] {
        for name in metrics(&read(file)) {
            assert!(
                samples.contains(name.as_str()) || SOMETIMES.contains(&name.as_str()),
                "{file} names {name}, which is not exported"
            );
        }
    }
    // The exceptions are metrics that the readme explains.
    let told = metrics(&read("README.md"));
    for name in SOMETIMES.into_iter().chain(samples) {
        assert!(told.contains(name), "deploy/README.md does not explain {name}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let board: Value = serde_json::from_str(&read("grafana/udpath.json")).unwrap();
    let variables: Vec<&str> = board["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "instance", "device"]);
    let panels = board["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let (title, kind) = (panel["title"].as_str().unwrap(), panel["type"].as_str().unwrap());
        assert!(["row", "stat", "timeseries", "table"].contains(&kind), "{title}: {kind} is no core panel");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        let place = |what: &str| panel["gridPos"][what].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is out of the grid");
        for (x, y) in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(taken.insert((place("x") + x, place("y") + y)), "{title} lies over another");
        }
        if kind != "row" {
            let targets = panel["targets"].as_array().unwrap();
            assert!(
                targets.iter().all(|target| target["expr"].as_str().unwrap().contains("$instance")),
                "{title}"
            );
        }
    }
}

/// Prometheus understands every query of the dashboard, with the variables filled in.
#[test]
fn the_dashboards_queries_are_understood() {
    let board: Value = serde_json::from_str(&read("grafana/udpath.json")).unwrap();
    let targets = board["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<String> = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m"))
        .collect();
    assert!(queries.len() > 20);
    let rules: String = queries
        .iter()
        .enumerate()
        .map(|(at, query)| format!("      - {{record: 'q:{at}', expr: '{query}'}}\n"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.yml");
    fs::write(&file, format!("groups:\n  - name: dashboard\n    rules:\n{rules}")).unwrap();
    sound(&["check", "rules", file.to_str().unwrap()], "");
}

#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("udpath-export.service");
    // The program is next to this test's binary.
    let program = udpath_rig::program();
    let start = format!("ExecStart={}", program.display());
    let text = read("systemd/udpath-export.service").replace("ExecStart=udpath", &start);
    fs::write(&unit, &text).unwrap();
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{said}");
    // Tenths of its scale, on which 100 is a service without any restriction.
    let security = ["security", "--offline=true", "--no-pager", "--threshold=30"];
    let done = Command::new("systemd-analyze").args(security).arg(&unit).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));

    // As another user and with only the rights granted by the unit, it sees everything that root sees.
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert_eq!(line("AmbientCapabilities="), line("CapabilityBoundingSet="));
    let kept: String = line("AmbientCapabilities=")
        .split(' ')
        .map(|right| format!(",+{}", right.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let kept = kept.trim_start_matches(',');
    let mut bounded = Command::new("setpriv");
    bounded.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    bounded.args([format!("--bounding-set=-all,{kept}"), format!("--inh-caps=-all,{kept}")]);
    bounded.arg(format!("--ambient-caps=-all,{kept}"));
    bounded.arg(program).args(["show", "--json"]);
    let ended = Run::of(bounded, "show with the unit's rights").finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let map: Value = serde_json::from_str(&ended.out).unwrap();
    let all: Value = serde_json::from_str(&Run::new(&["show", "--json"]).finish().out).unwrap();
    assert_eq!(map["missing"], all["missing"]);
}
