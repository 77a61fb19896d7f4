//! `udpath profile` on unusual processes: of an unprivileged user, with short-lived threads, in namespaces of their
//! own, and after exec of another program halfway. Needs root, cc and setpriv.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use udpath_rig::{Ended, Run, Running, TIMEOUT, awaited, one_sentence, program};

/// A world-readable directory with the spinner and `udpath`.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/target/spinner.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-fno-omit-frame-pointer", "-pthread", "-o"])
            .arg(folder.path().join("spinner"))
            .arg(source);
        assert!(cc.status().expect("cc can be run").success(), "the spinner cannot be compiled");
        udpath_rig::copy_program(&program(), &folder.path().join("udpath"));
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts the spinner as user nobody, and waits until it does its work.
    fn spinner_as_nobody(&self, what: &str) -> Running {
        let spinner = Run::unprivileged(&self.path("spinner"), &[what]).within(TIMEOUT * 2).start();
        // setpriv execs it.
        let comm = format!("/proc/{}/comm", spinner.pid());
        awaited("the spinner", TIMEOUT, || (fs::read_to_string(&comm).ok()? == "spinner\n").then_some(()));
        spinner
    }
}

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Nanoseconds in stacks with this frame.
fn ns_of(profile: &Value, frame: &str) -> u64 {
    let stacks = profile["stacks"].as_array().unwrap().iter();
    let has = |stack: &&Value| stack["frames"].as_array().unwrap().iter().any(|found| found == frame);
    stacks.filter(has).map(|stack| stack["ns"].as_u64().unwrap()).sum()
}

fn notes(profile: &Value) -> String {
    profile["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| note.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

fn paranoid() -> i32 {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap()
}

/// Profiles as user nobody, as far as this machine allows; none if it allows nothing.
fn as_nobody(folder: &Folder, run: impl FnOnce(&Path) -> Run) -> Option<Value> {
    let ended = run(&folder.path("udpath")).finish();
    if paranoid() > 2 {
        assert_eq!(ended.code(), Some(3), "{}", ended.out);
        one_sentence("nobody", &ended.err);
        assert!(ended.err.contains("set kernel.perf_event_paranoid to 2 or less"), "{}", ended.err);
        return None;
    }
    let profile = json(&ended);
    let sight = match paranoid() {
        ..=0 => "machine",
        1 => "process",
        _ => "process-user",
    };
    assert_eq!(profile["sight"], sight);
    Some(profile)
}

#[test]
fn threads_that_come_and_go_are_seen_without_rights() {
    udpath_lab::needs_root!();
    let folder = Folder::new();
    let spinner = folder.spinner_as_nobody("threads");
    let pid = spinner.pid().to_string();
    let arguments = ["profile", "--pid", &pid, "-d", "2s", "--json"];
    let Some(profile) = as_nobody(&folder, |udpath| Run::unprivileged(udpath, &arguments)) else { return };
    let busy: u64 =
        profile["classes"].as_array().unwrap().iter().map(|share| share["ns"].as_u64().unwrap()).sum();
    let late = ns_of(&profile, "in_a_late_thread [spinner]");
    assert!(late > 0 && (profile["sight"] == "machine" || late > busy / 2), "{late} of {busy} ns");
    // Each lives for 50 ms: only one of them existed when sampling began.
    let first = &profile["processes"][0];
    assert_eq!(first["pid"], spinner.pid());
    let threads = first["threads"].as_array().unwrap().len();
    assert!(threads >= 3, "{first}");
}

#[test]
fn too_many_threads_are_reported_and_the_busiest_is_sampled() {
    udpath_lab::needs_root!();
    let folder = Folder::new();
    let spinner = folder.spinner_as_nobody("many");
    let tasks = format!("/proc/{}/task", spinner.pid());
    awaited("its threads", TIMEOUT, || (fs::read_dir(&tasks).ok()?.count() == 66).then_some(()));
    // The remaining descriptors do not suffice for all threads on two CPUs.
    let pid = spinner.pid().to_string();
    let profile = as_nobody(&folder, |udpath| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command.args(["prlimit", "--nofile=400:400"]).arg(udpath).current_dir("/");
        command.args(["profile", "--pid", &pid, "-d", "1s", "--json"]);
        Run::of(command, "profile with few descriptors")
    });
    let Some(profile) = profile else { return };
    assert!(ns_of(&profile, "in_the_last_thread [spinner]") > 0, "{}", profile["stacks"]);
    if profile["sight"] != "machine" {
        assert!(notes(&profile).contains(" threads were not sampled"), "{}", notes(&profile));
    }
}

#[test]
fn another_users_process_needs_permission() {
    udpath_lab::needs_root!();
    let folder = Folder::new();
    let udpath = folder.path("udpath");
    let ended = Run::unprivileged(&udpath, &["profile", "--pid", "1", "-d", "1s"]).finish();
    if paranoid() <= 0 {
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        return;
    }
    assert_eq!(ended.code(), Some(3), "{}", ended.out);
    one_sentence("somebody else's", &ended.err);
    let told = if paranoid() > 2 { "perf_event_paranoid is" } else { "it belongs to another user" };
    assert!(ended.err.contains(told), "{}", ended.err);
}

/// Like a container's: its file does not exist outside, and nowhere after it has exited.
#[test]
fn a_program_that_only_its_own_namespaces_know_has_names() {
    udpath_lab::needs_root!();
    let folder = Folder::new();
    let inside = folder.path("inside");
    fs::create_dir(&inside).unwrap();
    let script =
        "mount -t tmpfs none \"$1\" && cp \"$2\" \"$1/only-here\" && exec \"$1/only-here\" spin \"$3\"";
    let start = |seconds: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        command.arg(&inside).arg(folder.path("spinner")).arg(seconds);
        let running = Run::of(command, "spinner in namespaces").within(TIMEOUT * 2).start();
        let children = format!("/proc/{0}/task/{0}/children", running.pid());
        let pid = awaited("the spinner in namespaces", TIMEOUT, || {
            let child: u32 = fs::read_to_string(&children).ok()?.split(' ').next()?.parse().ok()?;
            let comm = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
            (comm == "only-here\n").then_some(child)
        });
        (running, pid)
    };
    let named = "in_the_main_thread [only-here]";
    // While it lives: found by its host pid, in its own network namespace.
    let (running, pid) = start("60");
    assert!(!inside.join("only-here").exists(), "the file is visible outside");
    let ended = Run::new(&["profile", "--pid", &pid.to_string(), "-d", "1s", "--json"]).finish();
    let profile = json(&ended);
    assert_eq!(profile["processes"][0]["pid"], pid);
    assert!(ns_of(&profile, named) > 0, "{}", profile["processes"][0]);
    drop(running);
    // And if it exits before the profile ends: the file is held open.
    let (running, pid) = start("1.5");
    let profile = json(&Run::new(&["profile", "--pid", &pid.to_string(), "-d", "4s", "--json"]).finish());
    assert_eq!(running.finish().code(), Some(0));
    assert!(!Path::new(&format!("/proc/{pid}/comm")).exists(), "it still runs");
    assert!(ns_of(&profile, named) > 0, "{}", profile["processes"][0]);
}

/// Its file was replaced while it ran, as by an upgrade: symbols come from the file it runs.
#[test]
fn a_program_whose_file_is_gone_has_names() {
    udpath_lab::needs_root!();
    let folder = Folder::new();
    let file = folder.path("upgraded");
    udpath_rig::copy_program(&folder.path("spinner"), &file);
    let mut command = Command::new(&file);
    command.args(["spin", "60"]);
    let running = Run::of(command, "upgraded").within(TIMEOUT * 2).start();
    fs::remove_file(&file).unwrap();
    udpath_rig::copy_program(Path::new("/bin/sh"), &file);
    let pid = running.pid().to_string();
    let profile = json(&Run::new(&["profile", "--pid", &pid, "-d", "1s", "--json"]).finish());
    assert!(ns_of(&profile, "in_the_main_thread [upgraded]") > 0, "{}", profile["stacks"]);
}

#[test]
fn programs_executed_later_have_names() {
    let folder = Folder::new();
    let mut command = Command::new(folder.path("spinner"));
    command.args(["exec", "1.5"]);
    let running = Run::of(command, "spinner that runs another program").within(TIMEOUT * 2).start();
    let pid = running.pid().to_string();
    let profile = json(&Run::new(&["profile", "--pid", &pid, "-d", "4s", "--json"]).finish());
    assert!(ns_of(&profile, "in_the_next_program [spinner]") > 0, "{}", profile["processes"][0]);
}
