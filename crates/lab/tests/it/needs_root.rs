//! Tests that need root, run without it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs this test program as an unprivileged user: a test that needs root is named with the reason, and fails if all
/// are required.
#[test]
fn without_root_tests_are_skipped_or_fail_where_all_are_required() {
    const OTHER: &str = "a_link_carries_both_families_over_its_queues_and_nothing_else";
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("tests");
    // By cp: a child that another test is starting would inherit a descriptor of ours, and the exec could fail with
    // ETXTBSY.
    let cp =
        Command::new("cp").arg("--preserve=mode").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(cp.unwrap().success());
    let run = |require_all: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command
            .arg(&copy)
            .args(["--exact", OTHER, "--test-threads=2"])
            .env("UDPATH_REQUIRE_ALL", require_all)
            .current_dir("/");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run("");
    assert_eq!(
        (code, err.as_str()),
        (Some(0), &*format!("skipped: {OTHER}: needs root, in the initial user namespace\n"))
    );
    assert!(out.contains("1 passed"), "{out}");
    let (code, out, _) = run("1");
    assert_eq!(code, Some(101), "{out}");
    assert!(out.contains("UDPATH_REQUIRE_ALL forbids skipping it") && out.contains("1 failed"), "{out}");
}
