//! A private systemd in a lab machine: the real one, as pid 1 of a container that cannot change this machine. Its
//! root is read-only except for one directory, its only units are those below, its cgroups are one subtree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use udpath_rig::{Said, TIMEOUT, awaited, program};

use super::place::Place;

/// Empty targets: a unit's default dependencies refer to them.
const TARGETS: [&str; 4] = ["default", "sysinit", "basic", "shutdown"];

/// Runs as the init of new namespaces; `$1` is the directory that stays writable.
const INIT: &str = r#"
    mount --bind "$1" "$1"
    mount -o remount,bind,ro /
    mount -t tmpfs tmpfs /run; mkdir -p /run/lock /run/units
    mount -t proc proc /proc; mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys
    mount -t tmpfs tmpfs /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
    for target in $TARGETS; do printf '[Unit]\nDefaultDependencies=no\n' > /run/units/$target.target; done
    export container=udpath SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/run/none
    exec /lib/systemd/systemd --system --unit=default.target --log-target=null --show-status=0"#;

/// A running instance; dropping it kills everything that runs in it.
pub(crate) struct Systemd<'a> {
    place: &'a Place,
    unshare: Child,
    cgroup: PathBuf,
    pid: u32,
}

impl<'a> Systemd<'a> {
    pub(crate) fn start(place: &'a Place) -> Self {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let unified = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        });
        let unified = unified.expect("a cgroup2 hierarchy is mounted");
        remove_stale(&unified);
        let cgroup = unified.join(format!("udpath-systemd-{}", std::process::id()));
        fs::create_dir(&cgroup).unwrap();
        let lines = "echo $$ > $CGROUP/cgroup.procs; exec unshare --pid --mount --uts --ipc --cgroup --fork \
                     --kill-child --propagation private sh -e -c \"$INIT\" sh \"$S\"";
        let mut command = place.command("sh");
        command.args(["-e", "-c", lines]).env("CGROUP", &cgroup).env("INIT", INIT);
        command.env("TARGETS", TARGETS.join(" ")).env("S", place.state.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let unshare = place.lab.spawn(command).unwrap();
        let mut this = Self { place, unshare, cgroup, pid: 0 };
        this.pid = awaited("systemd as pid 1 of its container", TIMEOUT, || this.init());
        awaited("systemd to run", TIMEOUT, || {
            (this.command("systemctl").arg("is-system-running").output().ok()?.stdout == b"running\n")
                .then_some(())
        });
        this
    }

    /// The host pid of the container's pid 1.
    fn init(&self) -> Option<u32> {
        let parent = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let pid: u32 = children.split_whitespace().next()?.parse().ok()?;
        (fs::read_to_string(format!("/proc/{pid}/comm")).ok()? == "systemd\n").then_some(pid)
    }

    /// A command that runs `program` in the container.
    fn command(&self, program: &str) -> Command {
        let mut command = self.place.command("nsenter");
        command.args(["-t", &self.pid.to_string(), "-m", "-p", "-C", "-u", program]);
        command
    }

    /// Runs udpath as a unit of its own: when it ends, systemd kills everything else in its cgroup.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.command("systemd-run");
        command.args(["--quiet", "--collect", "--service-type=oneshot"]).arg(program());
        command.args(arguments).arg("--state").arg(self.place.state.path());
        Said::from(command.output().unwrap())
    }

    /// Starts udpath as a unit of this name, which gets SIGTERM and SIGHUP when it is stopped.
    pub(crate) fn start_unit(&self, unit: &str, arguments: &[String], state: &Path) {
        let mut command = self.command("systemd-run");
        command.args(["--quiet", "--service-type=exec", "-p", "SendSIGHUP=yes", &format!("--unit={unit}")]);
        command.arg(program()).args(arguments).arg("--state").arg(state);
        Said::from(command.output().unwrap()).fine();
    }

    /// Stops a unit. Returns the exit code of its process, or the signal that ended it; `None` if it is not loaded any
    /// more.
    pub(crate) fn stop(&self, unit: &str) -> Option<i32> {
        let control = |arguments: &[&str]| {
            let output = self.command("systemctl").args(arguments).arg(unit).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        control(&["stop"]);
        // A unit that ended with 0 is unloaded, and shows 0 as well.
        let status = control(&["show", "-p", "ExecMainStatus", "--value"]).parse().ok();
        control(&["reset-failed"]);
        status
    }

    /// Names of the units waiting to revert.
    pub(crate) fn units(&self) -> String {
        let mut command = self.command("systemctl");
        command.args(["list-units", "--no-legend", "--plain", "udpath-revert-*"]);
        Said::from(command.output().unwrap()).fine().out.clone()
    }
}

/// Removes cgroups of killed test runs.
fn remove_stale(unified: &Path) {
    for entry in fs::read_dir(unified).unwrap().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix("udpath-systemd-"));
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove_tree(&entry.path());
        }
    }
}

/// Removes a cgroup and its descendants, where empty.
fn remove_tree(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(cgroup);
}

impl Drop for Systemd<'_> {
    fn drop(&mut self) {
        // Killing it also kills its child, a pid 1, and with that everything in its namespace.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        awaited("the container's cgroups to be empty", TIMEOUT, || {
            remove_tree(&self.cgroup);
            (!self.cgroup.exists()).then_some(())
        });
    }
}
