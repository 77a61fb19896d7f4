//! Bad input to any verb: one sentence, the right exit code, nothing left behind. Needs root. These tests measure
//! nothing, and what they compare excludes other processes' labs and programs: they run at the same time.

mod arguments;
mod load;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use udpath_lab::LabBuilder;
use udpath_rig::{Ended, Host, Run, one_sentence, program};

/// Arguments, exit code, and two parts of the sentence: what is wrong and where, then what would be right.
type Case<'a> = (&'a [&'a str], i32, &'a str, &'a str);

/// Nothing listens there (discard, RFC 863), and nothing is sent: the arguments are rejected first.
const TO: &str = "127.0.0.1:9";

/// What differs from the expected refusal; `None` if nothing does.
fn difference(ended: &Ended, code: i32, wrong: &str, right: &str) -> Option<String> {
    let Ended { shown, err, .. } = ended;
    if ended.code() != Some(code) {
        return Some(format!("{shown}: {:?}, not {code}: {err}", ended.code()));
    }
    one_sentence(shown, err);
    assert_eq!(ended.out, "", "{shown}");
    match err.find(wrong) {
        None => Some(format!("{shown}: no {wrong:?} in {err}")),
        Some(what) if !err[what..].contains(right) => {
            Some(format!("{shown}: no {right:?} after that in {err}"))
        }
        Some(_) => None,
    }
}

fn refused(ended: &Ended, code: i32, wrong: &str, right: &str) {
    assert_eq!(difference(ended, code, wrong, right), None);
}

/// Runs every case, and compares the machine before and after.
fn all_refused(verb: &[&str], cases: &[Case<'_>]) {
    let host = Host::now();
    let (mut pids, mut differences) = (Vec::new(), Vec::new());
    for (arguments, code, wrong, right) in cases {
        let ended = Run::new(&[verb, arguments].concat()).finish();
        differences.extend(difference(&ended, *code, wrong, right));
        pids.push(ended.pid);
    }
    assert!(differences.is_empty(), "{}", differences.concat());
    host.is_as_before(&pids);
}

/// The target is unreachable. Runs in a lab machine, so that nothing can leave the host.
#[test]
fn no_way_to_the_target() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let host = Host::now();
    let lab = LabBuilder::new("no-way").machine("alone").up().unwrap();
    let mut pids = Vec::new();
    for (arguments, part) in [
        (&["load", "echo", "192.0.2.1:7", "-d", "1s"][..], "192.0.2.1"),
        (&["load", "echo", "[2001:db8::1]:7", "-d", "1s"], "2001:db8::1"),
        (&["load", "echo", "192.0.2.1:7", "-d", "1s", "--engine", "kernel"], "192.0.2.1"),
        (&["load", "echo", "192.0.2.1:7", "-d", "1s", "--engine", "xdp"], "192.0.2.1"),
    ] {
        let mut inside = lab.machine("alone").unwrap().command(program());
        inside.args(arguments);
        let ended = Run::of(inside, &arguments.join(" ")).start_with(|command| lab.spawn(command)).finish();
        refused(&ended, 3, part, "add a route to it");
        pids.push(ended.pid);
    }
    lab.down().unwrap();
    host.is_as_before(&pids);
}

/// A copy of the program that any user can run, wherever the build directory is.
fn for_everybody(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    copy
}

#[test]
fn without_permission_it_says_what_is_missing() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let host = Host::now();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    let mut pids = Vec::new();
    let cases: &[Case<'_>] = &[
        (
            &["boost", "--lab", "--engine", "kernel"],
            3,
            "--engine kernel needs CAP_BPF",
            "run as root, or use --engine socket",
        ),
        (
            &["load", "echo", "--lab", "--engine", "kernel", "-d", "1s"],
            3,
            "cannot load BPF program",
            "run as root, or with CAP_BPF",
        ),
        (
            &["load", "echo", "--lab", "--engine", "xdp", "-d", "1s"],
            3,
            "cannot load BPF program",
            "run as root, or with CAP_BPF",
        ),
        (
            &["lab", "up", "no-permission"],
            3,
            " the record /run/udpath/lab/",
            "run as root: CAP_SYS_ADMIN and CAP_NET_ADMIN are needed",
        ),
        (
            &["boost", "--lab", "--report", "/etc/x.html"],
            3,
            "cannot write /etc/x.html",
            "choose a folder you may write to): Permission denied",
        ),
    ];
    for (arguments, code, wrong, right) in cases {
        let ended = Run::unprivileged(&copy, arguments).finish();
        refused(&ended, *code, wrong, right);
        pids.push(ended.pid);
    }
    host.is_as_before(&pids);
}

/// Without root, the climb runs in a user namespace with the socket engine. Rungs that need root are left out, each
/// with the reason.
#[test]
fn without_permission_the_climb_goes_as_far_as_it_can() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let host = Host::now();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    let arguments = [
        "boost",
        "--lab",
        "--json",
        "--seconds",
        "0.05",
        "--blocks",
        "3",
        "--bound",
        "20",
        "--queues",
        "2",
        "--io",
        "shared,reuseport",
    ];
    let ended = Run::unprivileged(&copy, &arguments).within(udpath_rig::TIMEOUT * 4).finish();
    // Asked of another program: whether this machine lets user nobody enter a user namespace.
    let mut namespaces = Command::new("setpriv");
    namespaces.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
    let allowed =
        namespaces.args(["unshare", "--user", "--map-root-user", "--net", "true"]).output().unwrap();
    if allowed.status.success() {
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        let result: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(result["load"]["engine"], "socket");
        let warnings = result["warnings"].to_string();
        assert!(warnings.contains("not root: the socket engine sends the load"), "{warnings}");
        let rungs = result["rungs"].as_array().unwrap();
        let names: Vec<_> = rungs.iter().map(|rung| rung["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["one-queue", "shared", "reuseport", "pinned", "batched", "gso", "together"]);
        for rung in rungs {
            assert!(rung["verdict"] != "failed" && rung["tps"].as_f64().unwrap() > 0.0, "{rung}");
        }
        let left_out = result["left_out"].as_array().unwrap();
        let names: Vec<_> = left_out.iter().map(|rung| rung["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["rps", "rps+reuseport", "rfs"]);
        for rung in left_out {
            let reason = rung["reason"].as_str().unwrap();
            assert!(reason.contains("RPS") && reason.contains("run as root"), "{reason}");
        }
        let profiles = &result["profiles"];
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        if paranoid.trim().parse::<i32>().unwrap() > 0 {
            let absent = profiles["absent"].as_str().unwrap();
            assert!(absent.starts_with("one-queue: cannot sample CPU"), "{absent}");
            assert!(profiles["first"].is_null() && profiles["best"].is_null(), "{absent}");
        } else {
            assert!(profiles["first"]["samples"]["taken"].as_u64().unwrap() > 0);
        }
    } else {
        refused(&ended, 3, "enter a user namespace", "run as root");
    }
    host.is_as_before(&[ended.pid]);
}

/// Where user namespaces are not allowed, the message says how to allow them.
#[test]
fn without_user_namespaces_it_says_how_to_get_them() {
    let _turn = udpath_rig::together();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    // The limit belongs to the outer user namespace and ends with it.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" boost --lab";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(copy);
    let ended = Run::of(command, "boost without user namespaces").finish();
    let wrong = "the limit user.max_user_namespaces is reached";
    refused(&ended, 3, wrong, "run as root, or raise it: sysctl user.max_user_namespaces=");
}
