//! `unit:NAME/instances`, the setting of `udpath multiply UNIT`: its drop-in, and when systemd is asked for what. A
//! `systemctl` of this test records that; systemd itself is in `tests/boots`.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use udpath_rig::{Installed, Said, program};

use super::*;

const UNIT: &str = "udpath-test.service";
const DROP_IN: &str = "/etc/systemd/system/udpath-test.service.d/udpath-instances.conf";
const RUNS: &str = "/run/systemd/system";
/// Writes each command to `calls`, with `instances` if the drop-in is there. A restart into instances fails while there
/// is a file `fails`.
const SYSTEMCTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit
[ "$1" != --no-ask-password ] || shift
case "$1 $2" in
*LoadState*) echo LoadState=loaded; echo "FragmentPath=$PWD/unit" ;;
*ActiveState*) echo "ActiveState=$(cat state)" ;;
*StatusText*) echo "StatusText=instance 1 did not bind a UDP port" ;;
*MainPID*) echo MainPID=0 ;;
"restart "* | "daemon-reload "*)
    [ -e "$DROP_IN" ] && now=' instances' || now=
    echo "$1$now" >> calls
    [ "$1$now" != 'restart instances' ] || [ ! -e fails ] || exit 1 ;;
esac
"#;

/// Its folder, and the program that units run.
struct FakeSystemd(tempfile::TempDir, Installed);

impl FakeSystemd {
    fn new() -> Self {
        let fake = Self(tempfile::tempdir().unwrap(), Installed::new());
        fake.write("systemctl", SYSTEMCTL);
        fs::set_permissions(fake.0.path().join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        fake.write("unit", "[Service]\nUser=nobody\nExecStart=/usr/bin/server $OPTIONS\n");
        fake.write("state", "active");
        fs::create_dir_all(RUNS).unwrap();
        fake
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// What it was asked for since the last look.
    fn calls(&self) -> Vec<String> {
        let path = self.0.path().join("calls");
        let calls = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        calls.lines().map(str::to_owned).collect()
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut path = OsString::from(self.0.path());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let state = self.0.path().join("journal");
        let mut command = Command::new(self.1.program());
        command.args(arguments).arg("--state").arg(state).env("PATH", path).env("DROP_IN", DROP_IN);
        Said::from(command.output().unwrap())
    }
}

impl Drop for FakeSystemd {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(RUNS);
        let _ = fs::remove_dir_all(Path::new(DROP_IN).parent().unwrap());
    }
}

fn set(value: &str) -> String {
    format!("unit:{UNIT}/instances={value}")
}

#[test]
fn a_drop_in_and_one_restart_and_the_same_back() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let systemd = FakeSystemd::new();
    let refused = systemd.run(&["apply", "--set", &set("2 --choose cpu")]);
    refused.refused(2, "--allow restart");
    assert_eq!(systemd.calls(), [""; 0]);
    let said = systemd.run(&["apply", "--allow", "restart", "--set", &set("2 --choose cpu")]);
    assert!(said.fine().out.contains("none -> 2 --choose cpu"), "{}", said.out);
    assert_eq!(systemd.calls(), ["daemon-reload instances", "restart instances"]);
    let text = fs::read_to_string(DROP_IN).unwrap();
    let program = systemd.1.program();
    let line = format!(
        "ExecStart=\nExecStart=+{} multiply {UNIT} --unit -n 2 --choose cpu -- /usr/bin/server $OPTIONS\n",
        program.display()
    );
    assert!(text.contains(&line), "{text}");
    // No instance has a cgroup here.
    let status = systemd.run(&["status"]);
    assert!(status.out.contains(&format!("in effect when {UNIT} is restarted")), "{}", status.out);
    // Again, nothing is to be done.
    systemd.run(&["apply", "--allow", "restart", "--set", &set("2 --choose cpu")]).fine();
    assert_eq!(systemd.calls(), [""; 0]);
    systemd.run(&["undo"]).fine();
    assert_eq!(systemd.calls(), ["daemon-reload", "restart"]);
    assert!(!Path::new(DROP_IN).parent().unwrap().exists());
}

#[test]
fn a_unit_that_does_not_start_in_instances_runs_as_before() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let systemd = FakeSystemd::new();
    systemd.write("fails", "");
    let said = systemd.run(&["apply", "--allow", "restart", "--set", &set("2")]);
    said.refused(3, "instance 1 did not bind a UDP port");
    assert_eq!(systemd.calls(), ["daemon-reload instances", "restart instances", "daemon-reload", "restart"]);
    assert!(!Path::new(DROP_IN).exists());
    // One that does not run is not started, and `multiply` says so before it writes anything.
    systemd.write("state", "inactive");
    systemd.run(&["multiply", UNIT, "-n", "1"]).refused(3, &format!("{UNIT} does not run; start it first"));
    assert_eq!(systemd.calls(), [""; 0]);
    systemd.run(&["apply", "--allow", "restart", "--set", &set("2")]).fine();
    assert_eq!(systemd.calls(), ["daemon-reload instances"]);
    systemd.run(&["multiply", UNIT, "--stop"]).fine();
    assert_eq!(systemd.calls(), ["daemon-reload"]);
    assert!(!Path::new(DROP_IN).exists());
}

#[test]
fn units_that_cannot_be_multiplied_are_left_alone() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let refused = |code, unit: &str, says: &str| {
        Said::from(Command::new(program()).args(["multiply", unit, "-n", "1"]).output().unwrap())
            .refused(code, says);
    };
    refused(3, UNIT, "is not running");
    refused(2, "user.slice", "only a service has a program");
    let systemd = FakeSystemd::new();
    systemd.write("unit", "[Service]\nType=forking\nExecStart=/usr/bin/server\n");
    for arguments in
        [&["multiply", UNIT, "-n", "1"][..], &["apply", "--allow", "restart", "--set", &set("1")]]
    {
        systemd.run(arguments).refused(3, "it goes to the background (Type=forking)");
    }
    systemd.run(&["multiply", UNIT]).refused(3, "is not multiplied");
    systemd.run(&["multiply", UNIT, "--stop"]).refused(3, "is not multiplied");
    // Somebody else's file of that name.
    fs::create_dir_all(Path::new(DROP_IN).parent().unwrap()).unwrap();
    fs::write(DROP_IN, "[Service]\nExecStart=/bin/true\n").unwrap();
    systemd
        .run(&["apply", "--allow", "restart", "--set", &set("1")])
        .refused(3, "has no `udpath multiply`; remove or rename it");
    assert_eq!(systemd.calls(), [""; 0]);
}
