//! What others do: a service manager that has not started the unit or removes its cgroup, an operator who lowers a
//! limit, a program of their own at the same hook.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use udpath_rig::{BindWitness, Cgroup, Said, SysctlGuard, program};

use super::{BUFFER, PINNED, Scene, effects};

/// Answers as systemctl of systemd 252 does: one unit is stopped, and there is no other.
const SYSTEMCTL: &str = r#"#!/bin/sh
for unit; do :; done
case $unit in
    stopped.service) printf 'LoadState=loaded\nControlGroup=\nSlice=udpathtest.slice\n' ;;
    hanged.service) echo 'Failed to get properties: Connection timed out' >&2; exit 1 ;;
    *) printf 'LoadState=not-found\nControlGroup=\nSlice=\n' ;;
esac
"#;

/// Where systemd would start the unit.
const STOPPED: &str = "/udpathtest.slice/stopped.service";

#[test]
fn a_unit_that_does_not_run_gets_its_policy_at_its_start() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let folder = tempfile::tempdir().unwrap();
    let systemctl = folder.path().join("systemctl");
    fs::write(&systemctl, SYSTEMCTL).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    // With a /run of its own, as of a machine with systemd.
    let run = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount -t tmpfs none /run && mkdir -p /run/systemd/system && PATH=$0:$PATH exec \"$@\"");
        command.arg(folder.path()).arg(program()).args(arguments);
        Said::from(command.output().unwrap())
    };
    let state = scene.state.path().display().to_string();
    let set =
        |unit: &str| run(&["policy", "set", unit, &format!("receive-buffer={BUFFER}"), "--state", &state]);
    set("nosuch.service").refused(3, "systemd has no unit nosuch.service that could be started");
    set("nosuch").refused(3, "write the whole name, as in nosuch.service");
    set("hanged.service").refused(3, "Connection timed out");
    assert!(!Path::new(PINNED).exists());

    let said = set("stopped.service");
    let later = format!("nothing runs in {STOPPED} now; in effect when it starts");
    assert!(said.fine().out.contains(&later), "{}", said.out);
    assert_eq!(effects(STOPPED), [("later".to_owned(), later)]);
    run(&["policy", "list"]).fine();
    run(&["policy", "remove", "stopped.service", "--state", &state]).fine();
    assert!(!Path::new(PINNED).exists());
    run(&["policy", "remove", "stopped.service", "--state", &state]).refused(3, "has no policy");
}

#[test]
fn a_cgroup_that_vanishes_between_plan_and_apply_gets_its_policy_when_it_is_back() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let before = scene.server().line();
    let plan = scene.run(&["plan", "--set", &scene.request(&format!("receive-buffer={BUFFER}")), "--json"]);
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("plan.json");
    fs::write(&file, &plan.fine().out).unwrap();
    scene.cgroup.remove("srv.service");
    let applied = scene.run(&["apply", file.to_str().unwrap()]);
    assert!(applied.fine().out.contains("in effect when it starts"), "{}", applied.out);
    scene.cgroup.make("srv.service");
    assert_eq!(scene.server().line(), format!("{BUFFER} 0"));
    scene.run(&["undo"]).fine();
    assert_eq!(scene.server().line(), before);
}

#[test]
fn a_limit_that_somebody_lowers_is_reported_and_stays_as_they_want_it() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let limit = SysctlGuard::new("net/core/rmem_max");
    let was: u32 = limit.was().parse().unwrap();
    let (raised, buffer) = (was + 65_536, 2 * (was + 65_536));
    let unit = scene.cgroup.name("srv.service");
    scene.run(&["policy", "set", &unit, &format!("receive-buffer={buffer}")]).fine();
    // No further than needed.
    assert_eq!(limit.now(), raised.to_string());
    assert_eq!(scene.server().line(), format!("{buffer} 0"));

    limit.restore();
    let clamped = format!("{} 0", 2 * was);
    assert_eq!(scene.server().line(), clamped, "the kernel clamps it");
    let says =
        format!("net.core.rmem_max is {was}, so a socket bound now gets {}; raise it to {raised}", 2 * was);
    assert_eq!(effects(&unit), [("broken".to_owned(), says)]);
    scene.run(&["policy", "list"]).refused(1, "1 option does not have its effect");
    scene.run(&["status"]).refused(1, "2 settings are not at their applied value");
    scene.run(&["policy", "remove", &unit]).fine();
    assert_eq!(limit.now(), limit.was());
}

#[test]
fn a_program_of_others_at_the_hook_keeps_running_and_is_shown() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let unit = scene.cgroup.name("srv.service");
    // At the same cgroup as the policies' program, and at a deeper one.
    let (beside, within) =
        (BindWitness::attach(&Cgroup::root()), BindWitness::attach(&scene.cgroup.path("srv.service")));
    let before = scene.server().line();
    let shown = || {
        let said = scene.run(&["policy", "show", &unit]);
        for witness in [&beside, &within] {
            let line = format!("also at bind4: BPF program {} (bind_witness)\n", witness.id());
            assert!(said.fine().out.contains(&line), "{}", said.out);
        }
    };
    // One more each time: other programs of the machine bind as well.
    let mut binds = [0, 0];
    let mut each_has_run = |line: &str| {
        assert_eq!(scene.server().line(), line);
        let now = [beside.binds(), within.binds()];
        assert!(now[0] > binds[0] && now[1] > binds[1], "{now:?} after {binds:?}");
        binds = now;
    };
    each_has_run(&before);
    shown();
    scene.run(&["policy", "set", &unit, &format!("receive-buffer={BUFFER}")]).fine();
    each_has_run(&format!("{BUFFER} 0"));
    shown();
    scene.run(&["policy", "remove", &unit]).fine();
    each_has_run(&before);
    shown();
}
