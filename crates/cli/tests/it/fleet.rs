//! `udpath fleet report` from the command line: text, JSON, page, and folders that have no captures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn captured(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/fixtures/captured").join(name)
}

fn udpath(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_udpath"));
    command.env_remove("NO_COLOR").stdin(Stdio::null()).args(arguments);
    command.output().expect("the program starts")
}

fn fleet(folder: &Path, more: &[&str]) -> Output {
    udpath(&[&["fleet", "report", folder.to_str().unwrap()], more].concat())
}

/// The one sentence on stderr, without anything on stdout.
fn sentence(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

/// A folder with four machines: three alike, of which one is there twice and one only as JSON of `show`; and a foreign
/// file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["dns1.tar.gz", "dns2.tar.gz", "dns2-2026-11-24.tar.gz"] {
        fs::copy(captured("firecracker-2-cpus.tar.gz"), at(name)).unwrap();
    }
    fs::copy(captured("emulated-20-cpus.tar.gz"), at("dns4.tar.gz")).unwrap();
    let facts = udpath(&["show", "--json", "--sysroot", at("dns1.tar.gz").to_str().unwrap()]);
    assert!(facts.status.success());
    fs::write(at("dns3.json"), facts.stdout).unwrap();
    fs::write(at("notes.txt"), "hello").unwrap();
    folder
}

#[test]
fn machines_that_differ_are_named_in_text_json_and_on_the_page() {
    let folder = folder();
    let elsewhere = tempfile::tempdir().unwrap();
    let page = elsewhere.path().join("fleet.html");
    let output = fleet(folder.path(), &["--report", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("3 of 4 machines are alike; 1 has "), "{text}");
    for line in ["1 machine: dns4", "  cpus", "20", "2 (3 of 4)", "not read: notes.txt: it is neither"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(html.contains("<h1>3 of 4 machines are alike</h1>") && html.contains("dns4"), "{html}");

    let output = fleet(folder.path(), &["--json"]);
    let json: Value = udpath_rig::json(&output.stdout);
    assert_eq!(json["schema"], "udpath.fleet/1");
    assert_eq!((json["alike"].as_u64(), json["machines"].as_array().unwrap().len()), (Some(3), 4));
    assert_eq!(json["machines"][2]["source"], "map");
    let variations = json["groups"][0]["variations"].as_array().unwrap();
    let cpus = variations.iter().find(|one| one["what"] == "cpus").unwrap();
    assert_eq!(cpus["reported"], 4, "the JSON of show has the number of CPUs");
    assert_eq!((&cpus["value"], &cpus["norm"]), (&"20".into(), &"2".into()));
    assert_eq!(json["older"].as_array().unwrap().len(), 1);
    assert_eq!(json["unread"][0]["file"], "notes.txt");
    let with = |id: &str| {
        let found = json["findings"].as_array().unwrap().iter().find(|found| found["id"] == id);
        found.unwrap_or_else(|| panic!("{id}: {}", json["findings"]))["machines"].as_array().unwrap().len()
    };
    // What `show` finds in one of the captures, all three copies have.
    let shown = udpath(&["show", "--json", "--sysroot", folder.path().join("dns1.tar.gz").to_str().unwrap()]);
    let shown: Value = udpath_rig::json(&shown.stdout);
    for finding in shown["findings"].as_array().unwrap() {
        assert!(with(finding["id"].as_str().unwrap()) >= 3);
    }
    assert!(!shown["findings"].as_array().unwrap().is_empty());
}

#[test]
fn the_report_of_the_same_files_is_the_same() {
    let folder = folder();
    let [one, two] = [(); 2].map(|()| fleet(folder.path(), &["--json"]).stdout);
    assert!(!one.is_empty());
    assert_eq!(one, two);
}

#[test]
fn a_folder_without_captures_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let said = sentence(&fleet(folder.path(), &[]), 2);
    assert!(said.contains("contains no capture: expected files of `udpath support`"), "{said}");
    let file = folder.path().join("cut.tar.gz");
    let whole = fs::read(captured("emulated-20-cpus.tar.gz")).unwrap();
    fs::write(&file, &whole[..5000]).unwrap();
    let said = sentence(&fleet(folder.path(), &[]), 2);
    assert!(said.contains("cut.tar.gz: cannot read it"), "{said}");
    let said = sentence(&fleet(&file, &[]), 2);
    assert!(said.contains("cut.tar.gz is not a folder"), "{said}");
    let said = sentence(&fleet(&folder.path().join("gone"), &[]), 3);
    assert!(said.contains("cannot list") && said.contains("No such file"), "{said}");
    let said = sentence(&fleet(folder.path(), &["--report", "/nowhere/x.html"]), 3);
    assert!(said.contains("/nowhere/x.html"), "{said}");
}
