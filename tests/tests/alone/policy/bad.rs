//! What cannot be: each one sentence, and nothing is changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use udpath_rig::{Run, Said, program};

use super::{BUFFER, PINNED, Scene};

#[test]
fn what_no_policy_can_do_is_refused_with_what_can() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new();
    let limit = "sysctl:net.core.rmem_max=100000";
    for (requests, code, says) in [
        (vec![scene.request("incoming-cpu=1")], 2, "set port:PORT:incoming-cpu once the server runs"),
        (vec![scene.request("busy-poll=50")], 2, "bpf_setsockopt has no SO_BUSY_POLL"),
        (vec![scene.request("receive-buffer=100")], 2, "4608 to 2147483646"),
        (vec![scene.request("reuseport=maybe")], 2, "on, off or none"),
        (
            vec!["policy:srv.service/receive-buffer=8M".into()],
            3,
            "is not running; name the cgroup by its path",
        ),
        (
            vec![scene.request(&format!("receive-buffer={BUFFER}")), scene.request("receive-buffer=8M")],
            2,
            "cannot be both",
        ),
        (vec![scene.request("receive-buffer=8M"), limit.into()], 2, "too low for it; it needs 4194304"),
        (vec![format!("policy:{}/mark=1", "/x".repeat(17))], 3, "at most 16 levels"),
        (vec![format!("policy:/{}/mark=1", "x".repeat(256))], 3, "at most 255 bytes"),
    ] {
        let sets = requests.iter().flat_map(|request| ["--set", request]);
        let arguments: Vec<&str> = ["apply"].into_iter().chain(sets).collect();
        scene.run(&arguments).refused(code, says);
    }
    assert!(!Path::new(PINNED).exists());
}

#[test]
fn without_root_nothing_is_set() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new();
    // Where anybody can read it.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("udpath");
    fs::copy(program(), &copy).unwrap();
    Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status().unwrap();
    let said = Run::unprivileged(&copy, &["plan", "--set", &scene.request("mark=1")]).finish();
    assert_eq!(said.code(), Some(0), "there is no policy, which anybody can see: {}", said.err);
    scene.run(&["apply", "--set", &scene.request("mark=1")]).fine();
    let said = Run::unprivileged(&copy, &["plan", "--set", &scene.request("mark=2")]).finish();
    assert_eq!(said.code(), Some(3), "{}{}", said.out, said.err);
    assert!(said.err.contains("run as root"), "{}", said.err);
    scene.run(&["undo"]).fine();
}

/// In mount namespaces of its own, with what the machine lacks.
#[test]
fn a_machine_without_cgroup_v2_or_a_bpf_file_system_says_so() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new();
    let root = udpath_rig::Cgroup::root();
    for (without, says) in [
        (root.to_str().unwrap(), "no cgroup v2 mounted, only version 1"),
        ("/sys/fs/bpf", "mount it with mount -t bpf bpf /sys/fs/bpf"),
    ] {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "umount -l \"$0\" && exec \"$@\"",
            without,
        ]);
        command
            .arg(program())
            .args(["apply", "--set", &scene.request("mark=1"), "--state"])
            .arg(scene.state.path());
        Said::from(command.output().unwrap()).refused(3, says);
    }
    assert!(!Path::new(PINNED).exists());
}

/// Every step of an apply, cut short: the kernel has the old policy or the new one, and undo restores what was.
#[test]
fn a_kill_at_any_moment_leaves_what_was_or_what_was_asked() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new();
    let (before, buffer) = (scene.server().line(), scene.request(&format!("receive-buffer={BUFFER}")));
    let mut both = [false; 2];
    for turn in 0..udpath_rig::campaign::rounds(12, 100) {
        let mut apply = Command::new(program());
        apply.args(["apply", "--set", &buffer, "--state"]).arg(scene.state.path());
        let mut apply =
            apply.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        // Spread over its run time, of some 20 ms here.
        std::thread::sleep(std::time::Duration::from_millis(turn as u64 * 5 % 60));
        let _ = apply.kill();
        apply.wait().unwrap();
        let now = scene.server().line();
        assert!(now == before || now == "200000 0", "{now}");
        both[usize::from(now != before)] = true;
        let undone = scene.run(&["undo"]);
        // Killed before its first change.
        assert!(undone.code == Some(0) || undone.err.contains("nothing to undo"), "{}", undone.err);
        assert_eq!(scene.server().line(), before, "{}", undone.err);
        if undone.code == Some(0) {
            scene.run(&["apply", "--set", &buffer]).fine();
            scene.run(&["undo"]).fine();
        }
        assert!(!Path::new(PINNED).exists());
    }
    assert!(both[0], "no kill came early enough");
}
