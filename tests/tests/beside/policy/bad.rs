//! What cannot be: each one sentence, and nothing is changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use udpath_rig::{Run, Said, one_sentence, program};

use super::{BUFFER, PINNED, Scene};

#[test]
fn what_no_policy_can_do_is_refused_with_what_can() {
    udpath_lab::needs_root!();
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
        (vec![format!("policy:{}/priority=1", "/x".repeat(17))], 3, "at most 16 levels"),
        (vec![format!("policy:/{}/priority=1", "x".repeat(256))], 3, "at most 255 bytes"),
    ] {
        let sets = requests.iter().flat_map(|request| ["--set", request]);
        let arguments: Vec<&str> = ["apply"].into_iter().chain(sets).collect();
        scene.run(&arguments).refused(code, says);
    }
}

#[test]
fn without_root_nothing_is_set() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    // Where anybody can read it.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    Command::new("chown").arg("65534").arg(&state).status().unwrap();
    let (unit, state) = (scene.cgroup.name("srv.service"), state.display().to_string());
    let (one, two) = (scene.request("priority=1"), scene.request("priority=2"));
    let refused = |arguments: &[&str]| {
        let said = Run::unprivileged(&copy, arguments).finish();
        assert_eq!(said.code(), Some(3), "{arguments:?}: {}{}", said.out, said.err);
        one_sentence(&arguments.join(" "), &said.err);
        assert!(said.err.contains("as root"), "{arguments:?}: {}", said.err);
    };
    let said = Run::unprivileged(&copy, &["plan", "--set", &one]).finish();
    assert_eq!(said.code(), Some(0), "there is no policy, which anybody can see: {}", said.err);
    refused(&["policy", "set", &unit, "priority=1", "--state", &state]);
    assert!(!Path::new(PINNED).exists());

    scene.run(&["apply", "--set", &one]).fine();
    refused(&["plan", "--set", &two]);
    refused(&["policy", "list"]);
    refused(&["policy", "show", &unit]);
    refused(&["policy", "remove", &unit, "--state", &state]);
    assert!(scene.run(&["policy", "list"]).fine().out.contains("priority  1"));
    scene.run(&["undo"]).fine();
}

/// In mount namespaces of its own, with what the machine lacks.
#[test]
fn a_machine_without_cgroup_v2_or_a_bpf_file_system_says_so() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let (root, unit) = (udpath_rig::Cgroup::root(), scene.cgroup.name("srv.service"));
    let (state, request) = (scene.state.path().display().to_string(), scene.request("priority=1"));
    for (without, says) in [
        (root.to_str().unwrap(), "no cgroup v2 mounted, only version 1"),
        ("/sys/fs/bpf", "mount it with mount -t bpf bpf /sys/fs/bpf"),
    ] {
        for arguments in [
            &["apply", "--set", &request, "--state", &state][..],
            &["policy", "set", &unit, "priority=1", "--state", &state],
            &["policy", "list"],
            &["policy", "show", &unit],
            &["policy", "remove", &unit, "--state", &state],
        ] {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c"]);
            command.args(["umount -l \"$0\" && exec \"$@\"", without]).arg(program()).args(arguments);
            Said::from(command.output().unwrap()).refused(3, says);
        }
    }
}
