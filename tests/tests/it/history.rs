//! `udpath history` and `--record` as their users run them. Needs root for the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use udpath_rig::{Ended, Run, one_sentence, program};

use crate::results::{measured, steady, written};

/// A history in a folder of its own.
struct Kept {
    folder: tempfile::TempDir,
    store: PathBuf,
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("new/history.db");
        Self { folder, store }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Run::new(&[&["history"], arguments, &["--store", self.store.to_str().unwrap()]].concat()).finish()
    }

    fn out(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code(), Some(0), "{}: {}", ended.shown, ended.err);
        ended.out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.out(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn add(&self, result: &Value) -> Ended {
        let path = written(self.folder.path(), "result.json", result);
        self.run(&["add", path.to_str().unwrap()])
    }
}

fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), Some(code), "{}: {}", ended.shown, ended.err);
    one_sentence(&ended.shown, &ended.err);
    assert_eq!(ended.out, "");
    for part in parts {
        assert!(ended.err.contains(part), "no {part:?} in {}", ended.err);
    }
}

#[test]
fn a_load_is_kept_only_if_asked_for() {
    udpath_lab::needs_root!();
    let kept = Kept::new();
    let of_the_machine = || fs::metadata("/var/lib/udpath/history.db").and_then(|file| file.modified()).ok();
    let before = of_the_machine();
    measured();
    refused(&kept.run(&[]), 3, &["there is no history in", "--record"]);
    assert_eq!((kept.store.exists(), of_the_machine()), (false, before));
    let store = kept.store.to_str().unwrap();
    let arguments = ["load", "echo", "--lab", "-d", "1s", "--json", "--record=nightly", "--store", store];
    let ended = Run::new(&arguments).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.err.contains(&format!("kept as run 1 in {store}")), "{}", ended.err);
    let listing = kept.json(&[]);
    let series = &listing["series"][0];
    let printed: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&listing["schema"], &series["name"]), (&"udpath.history/1".into(), &"nightly".into()));
    assert_eq!(
        (&series["runs"][0]["tps"], &series["runs"][0]["origin"]),
        (&printed["tps"], &printed["origin"])
    );
    assert_eq!(series["machine"].as_str().map(str::len), Some(if has_identity() { 16 } else { 0 }));
    // Digit by digit what was printed.
    assert_eq!(kept.out(&["export", "--bare", "1"]), ended.out);
    assert!(
        kept.out(&["export"])
            .starts_with("{\"id\":1,\"name\":\"nightly\",\"result\":{\"schema\":\"udpath.load/1\"")
    );
    // The same result from a file is known again.
    let file = kept.folder.path().join("printed.json");
    fs::write(&file, &ended.out).unwrap();
    refused(&kept.run(&["add", file.to_str().unwrap()]), 3, &["it is run 1"]);
    let text = kept.out(&[]);
    assert!(
        text.starts_with("load 'nightly': echo rr over udp to ") && text.contains("no change is shown"),
        "{text}"
    );
    assert_eq!(kept.out(&["remove", "1"]), "");
    assert_eq!(kept.out(&[]), "No runs.\n");
}

fn has_identity() -> bool {
    fs::read_to_string("/etc/machine-id").is_ok_and(|id| !id.trim().is_empty())
}

#[test]
fn a_change_is_dated_and_named_with_what_changed() {
    udpath_lab::needs_root!();
    let kept = Kept::new();
    let day = 86_400;
    for run in 0..20 {
        let wobble = 1.0 + 0.004 * ((run * 7 % 5) as f64 - 2.0);
        let (tps, kernel) = if run < 10 { (1e5, "6.1.0") } else { (0.97e5, "6.2.0") };
        let ended = kept.add(&steady(tps * wobble, 1_767_225_600 + run * day, kernel));
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    let listing = kept.json(&[]);
    let shifts = listing["series"][0]["shifts"].as_array().unwrap();
    assert_eq!(shifts.len(), 1, "{shifts:?}");
    assert_eq!((&shifts[0]["before"], &shifts[0]["after"]), (&10.into(), &11.into()));
    assert_eq!((&shifts[0]["verdict"], &shifts[0]["p"]), (&"worse".into(), &0.001.into()));
    let ratio = shifts[0]["ratio"]["ratio"].as_f64().unwrap();
    assert!((ratio - 0.97).abs() < 0.006, "{ratio}");
    let text = kept.out(&["--plot"]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "between 2026-01-10 00:00 UTC (run 10) and 2026-01-11 00:00 UTC (run 11): rate 0.97",
        "worse, p = 0.001 or less; changed with it: kernel 6.1.0 → 6.2.0",
    ] {
        assert!(words.contains(part), "{text}");
    }
    assert!(text.contains('┊') && text.contains('┤'), "{text}");
    // From the change on, there is none.
    let later = kept.json(&["--since", "2026-01-11"]);
    assert_eq!(later["series"][0]["runs"].as_array().unwrap().len(), 10);
    assert_eq!(later["series"][0]["shifts"], serde_json::json!([]));
    // The latency is the same in all of them.
    assert_eq!(kept.json(&["--metric", "p99"])["series"][0]["shifts"], serde_json::json!([]));
}

#[test]
fn two_processes_add_at_the_same_time() {
    udpath_lab::needs_root!();
    let kept = Kept::new();
    let running: Vec<_> = (0..12)
        .map(|run| {
            let path = written(kept.folder.path(), &format!("{run}.json"), &steady(1e5, run, "6.1"));
            let store = kept.store.to_str().unwrap();
            Run::new(&["history", "add", path.to_str().unwrap(), "--store", store]).start()
        })
        .collect();
    for one in running {
        let ended = one.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    let lines = kept.out(&["export"]);
    assert_eq!(lines.lines().count(), 12);
    assert_eq!(kept.json(&[])["series"][0]["runs"].as_array().unwrap().len(), 12);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    udpath_lab::needs_root!();
    let kept = Kept::new();
    let result = steady(1e5, 5, "6.1");
    assert_eq!(kept.add(&result).code(), Some(0));
    refused(&kept.add(&result), 3, &["the history has this result already: it is run 1"]);
    let mut anonymous = result.clone();
    anonymous.as_object_mut().unwrap().remove("origin");
    refused(&kept.add(&anonymous), 2, &["does not say when and on which machine", "--at"]);
    let path = kept.folder.path().join("result.json");
    let path = path.to_str().unwrap();
    assert_eq!(kept.out(&["add", path, "--at", "2026-01-02 03:04"]), "");
    assert_eq!(kept.json(&["--since", "2026-01-02"])["series"][0]["runs"][0]["origin"]["at"], 1_767_323_040);
    refused(&kept.run(&["add", path, "--at", "yesterday"]), 2, &["invalid date `yesterday`", "YYYY-MM-DD"]);
    refused(&kept.run(&["add", path, "--name", "a\nb"]), 2, &["invalid name 'a\\nb'", "expected at most 64"]);
    refused(&kept.run(&["add", "/dev/null"]), 3, &["is empty"]);
    refused(&kept.run(&["remove", "77"]), 2, &["no run 77", "udpath history lists the runs"]);
    refused(&kept.run(&["export", "77"]), 2, &["no run 77"]);
    refused(&kept.run(&["--metric", "speed"]), 2, &["tps, p99, cpu"]);
    let searched =
        Run::new(&["load", "echo", "127.0.0.1:9", "--find-max", "--rate", "1k", "--record"]).finish();
    refused(&searched, 2, &["--find-max", "cannot be used with '--record"]);
}

#[test]
fn stores_that_are_none_are_refused_before_a_load_is_sent() {
    udpath_lab::needs_root!();
    let kept = Kept::new();
    let bad = kept.folder.path().join("bad.db");
    fs::write(&bad, "no database: ".repeat(100)).unwrap();
    let cases = [
        (bad.as_path(), 3, "is damaged"),
        (kept.folder.path(), 2, "is not a file"),
        (Path::new("/proc/nowhere/history.db"), 3, "cannot create the folder /proc/nowhere"),
    ];
    for (store, code, part) in cases {
        let store = store.to_str().unwrap();
        let load = ["load", "echo", "127.0.0.1:9", "-d", "60s", "--record", "--store", store];
        refused(&Run::new(&load).finish(), code, &[part]);
        let list = Run::new(&["history", "--store", store]).finish();
        assert_eq!(list.code(), Some(if part.contains("create") { 3 } else { code }), "{}", list.err);
    }
}

/// An ordinary user's history is in the state folder.
#[test]
fn a_user_has_a_history_of_its_own() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (home, copy) = (folder.path().join("home"), folder.path().join("udpath"));
    udpath_rig::copy_program(&program(), &copy);
    fs::create_dir(&home).unwrap();
    for path in [folder.path(), &home] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(path, mode).unwrap();
    }
    let result = written(folder.path(), "result.json", &steady(1e5, 5, "6.1"));
    let user = |variable: &str, value: &Path, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(&copy).args(arguments).current_dir("/").env_remove("XDG_STATE_HOME").env_remove("HOME");
        command.env(variable, value);
        Run::of(command, &arguments.join(" ")).finish()
    };
    let add = ["history", "add", result.to_str().unwrap()];
    for (variable, store) in
        [("HOME", ".local/state/udpath/history.db"), ("XDG_STATE_HOME", "udpath/history.db")]
    {
        let ended = user(variable, &home, &add);
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        assert!(home.join(store).is_file(), "{}", ended.err);
        assert!(user(variable, &home, &["history"]).out.contains("100 k"));
    }
    refused(&user("HOME", Path::new("relative"), &add), 2, &["name the history with --store"]);
    refused(&user("HOME", Path::new("/proc"), &add), 3, &["cannot create the folder"]);
}
