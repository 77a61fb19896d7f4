//! `udpath report` from the command line: output, errors, and files left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures").join(name)
}

fn udpath() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_udpath"));
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn report(arguments: &[&Path]) -> Output {
    udpath().arg("report").args(arguments).output().expect("the program starts")
}

/// The one sentence on stderr; panics if there are more, or if stdout is not empty.
fn sentence(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr.trim_end().to_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn both_kinds_of_result_become_a_page() {
    let folder = tempfile::tempdir().unwrap();
    for (name, title) in [
        ("made-up-boost.json", "<title>udpath boost: lab-7</title>"),
        ("made-up-load.json", "<title>udpath load: 10.77.0.2:7</title>"),
    ] {
        let page = folder.path().join("page.html");
        let output = report(&[&fixture(name), Path::new("-o"), &page]);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.is_empty(), "stdout is for data");
        assert!(fs::read_to_string(&page).unwrap().contains(title));
    }
    assert_eq!(names(folder.path()), ["page.html"]);
}

#[test]
fn without_a_file_the_text_goes_to_stdout_uncoloured() {
    let plain = report(&[&fixture("made-up-boost.json")]);
    let dash = report(&[&fixture("made-up-boost.json"), Path::new("-o"), Path::new("-")]);
    assert!(plain.status.success() && plain.stderr.is_empty());
    assert_eq!(plain.stdout, dash.stdout);
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(text.starts_with("869 k transactions/s: 1.52× (1.49–1.55) the first rung"), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn json_comes_back_as_it_went_in_and_from_stdin() {
    let output = udpath()
        .args(["report", "--json", "-"])
        .stdin(fs::File::open(fixture("made-up-load.json")).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success());
    let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(udpath_rig::json(&output.stdout), value(&fs::read(fixture("made-up-load.json")).unwrap()));
}

#[test]
fn a_reader_that_closes_early_is_not_an_error() {
    let mut child = udpath()
        .args(["report", "--json"])
        .arg(fixture("made-up-boost.json"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_invalid_result_gets_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let whole = fs::read(fixture("made-up-boost.json")).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (b"", "is empty: expected a result of udpath boost, load, profile or experiment"),
        (&whole[..whole.len() / 2], "is truncated at line"),
        (b"{\"schema\":\"udpath.serve/1\"}", "does not render this kind of result"),
        (b"\x7fELF", "is not JSON"),
    ];
    for (contents, expected) in cases {
        fs::write(&file, contents).unwrap();
        let page = folder.path().join("x.html");
        let said = sentence(&report(&[&file, Path::new("-o"), &page]), 3);
        assert!(said.starts_with("udpath: ") && said.contains(expected), "{said}");
        assert_eq!(names(folder.path()), ["x.json"]);
    }
    let said = sentence(&report(&[&folder.path().join("none.json")]), 3);
    assert!(
        said.contains("none.json (name a file that exists, or - for standard input): No such file"),
        "{said}"
    );
}

#[test]
fn the_result_itself_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    fs::copy(fixture("made-up-boost.json"), &file).unwrap();
    let said = sentence(&report(&[&file, Path::new("-o"), &file]), 2);
    assert!(said.contains("would overwrite the result itself"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), fs::read(fixture("made-up-boost.json")).unwrap());
}

#[test]
fn a_folder_that_takes_no_file_gets_one_sentence() {
    for (path, code, expected) in [
        ("/proc/x.html", 3, "cannot write /proc/x.html (create the folder first, or choose another): "),
        ("/dev/full", 3, "cannot write /dev/full (make room or choose another folder): No space left"),
        ("/dev", 2, "it is a folder"),
        ("/no/such/x.html", 3, "(create the folder first, or choose another): No such file"),
    ] {
        let said =
            sentence(&report(&[&fixture("made-up-boost.json"), Path::new("-o"), Path::new(path)]), code);
        assert!(said.contains(expected), "{said}");
    }
}

/// In its own mount namespace, which ends with the shell, as does the file system in it. Needs root.
#[test]
fn a_full_disk_keeps_the_old_file_and_leaves_nothing_else() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=64k none "$1" || exit 99
        echo before > "$1/x.html"
        "$2" report "$3" -o "$1/x.html"
        echo "code $?"
        ls -A "$1"
        cat "$1/x.html"
        # With room again, the same call succeeds.
        mount -o remount,size=4m "$1" || exit 99
        "$2" report "$3" -o "$1/x.html" 2> /dev/null && tail -n 1 "$1/x.html"
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(env!("CARGO_BIN_EXE_udpath"))
        .arg(fixture("made-up-boost.json"))
        .output()
        .expect("unshare (util-linux) is there");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stdout, "code 3\nx.html\nbefore\n</html>\n", "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let expected = "x.html (make room or choose another folder): No space left on device";
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(names(folder.path()).len(), 0, "the mount was private");
}
