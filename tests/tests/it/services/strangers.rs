//! Configurations, programs and folders that a user other than root controls: nothing of root's is shown or changed by
//! them, nothing of theirs runs as root, and nothing of theirs keeps root waiting.

mod checkers;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use udpath_lab::Lab;
use udpath_rig::{Ended, TIMEOUT, awaited, client_and_server};

use super::{Nsd, ROOTS, ended};
use crate::inside::{start, udpath};

/// A user that has no account.
const USER: u32 = 47_011;
/// What root's files have, and nobody else may see.
const SECRET: &str = "s3cret-of-root";
/// Everything that an apply may be allowed.
const ALLOWED: [&str; 8] =
    ["--restart", "true", "--allow", "config", "--allow", "restart", "--allow", "security"];

/// `setpriv` that runs its further arguments as the user.
fn as_user(mut setpriv: Command) -> Command {
    setpriv.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", "--"]);
    setpriv
}

/// A lab, a folder of root's, and a folder of the user's.
struct Place {
    lab: Lab,
    root: tempfile::TempDir,
    theirs: tempfile::TempDir,
}

impl Place {
    fn new(name: &str) -> Self {
        let place = Self {
            lab: client_and_server(name, 1),
            root: tempfile::tempdir_in(ROOTS).unwrap(),
            theirs: tempfile::tempdir().unwrap(),
        };
        for folder in [&place.root, &place.theirs] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        chown(place.theirs.path(), Some(USER), Some(USER)).unwrap();
        place
    }

    fn root(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn theirs(&self, name: &str) -> PathBuf {
        self.theirs.path().join(name)
    }

    /// A file of root's.
    fn put_root(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.root(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A file of the user's.
    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.theirs(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        for path in path.ancestors().take_while(|path| *path != self.theirs.path()) {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        path
    }

    /// A process of the user's that looks like chronyd with this configuration.
    fn chronyd(&self, config: &Path) -> Fake {
        // Each its own: a running program cannot be replaced. Copied by another program: a descriptor that is open for
        // writing here would be inherited by the children of other tests, and keep it from being started.
        let folder = tempfile::tempdir_in(self.theirs.path()).unwrap().keep();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.join("chronyd");
        assert!(Command::new("cp").arg("/bin/bash").arg(&program).status().unwrap().success());
        // A chronyd's own arguments, to bash: no file name patterns, and a script, before which it reads this one.
        let script = self.put("sleeps", "while :; do sleep 300; done\n");
        let mut command = as_user(self.lab.machine("server").unwrap().command("setpriv"));
        command.arg(&program).arg("-f").arg(config).env("BASH_ENV", script);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        awaited("the fake chronyd", TIMEOUT, || {
            fs::read_link(&exe).is_ok_and(|now| now == program).then_some(())
        });
        Fake(child)
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        udpath(&self.lab, "server", arguments).finish()
    }

    fn plan(&self, fake: &Fake, more: &[&str]) -> Ended {
        self.run(&[&["plan", "--service", &fake.name()], more].concat())
    }

    /// An apply that is allowed everything. It must leave the journal unlocked and empty.
    fn apply(&self, fake: &Fake) -> Ended {
        let set = format!("service:{}:noclientlog=yes", fake.name());
        let state = self.root("state").display().to_string();
        let applied = self.run(&[&["apply", "--set", &set, "--state", &state], &ALLOWED[..]].concat());
        ended(&self.run(&["undo", "--state", &state]), 3, "nothing to undo");
        applied
    }

    /// Every way to show a plan.
    fn shown(&self, fake: &Fake) -> String {
        let all = [&[][..], &["--json"], &["--shell"]].map(|more| self.plan(fake, more));
        all.map(|ended| format!("{:?} {}{}", ended.code(), ended.out, ended.err)).concat()
    }
}

/// A process of the user's; ended when dropped.
struct Fake(Child);

impl Fake {
    fn name(&self) -> String {
        format!("pid/{}", self.0.id())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Its sleep ends by itself; it has nothing of the lab's but the namespace.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn files_that_only_root_reads_are_neither_shown_nor_changed() {
    udpath_lab::needs_root!();
    let place = Place::new("strange-link");
    let text = format!("clientloglimit 7\n# {SECRET}\nport {SECRET}\n");
    let sudoers = place.put_root("sudoers", &text, 0o440);
    let link = place.theirs("link.conf");
    symlink(&sudoers, &link).unwrap();
    let including =
        place.put("including.conf", &format!("clientloglimit 1\ninclude {}\n", sudoers.display()));
    for config in [&link, &sudoers, &including] {
        let fake = place.chronyd(config);
        let shown = place.shown(&fake);
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains("ermission denied") || config == &including, "{shown}");
        let applied = place.apply(&fake);
        assert_eq!(applied.code(), Some(3), "{}{}", applied.out, applied.err);
        assert!(!format!("{}{}", applied.out, applied.err).contains(SECRET), "{}", applied.err);
    }
    let about = fs::metadata(&sudoers).unwrap();
    assert_eq!((fs::read_to_string(&sudoers).unwrap(), about.mode() & 0o7777, about.uid()), (text, 0o440, 0));
}

#[test]
fn files_that_never_end_or_never_begin_end_a_plan() {
    udpath_lab::needs_root!();
    let place = Place::new("strange-wait");
    let fifo = place.theirs("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    chown(&fifo, Some(USER), Some(USER)).unwrap();
    for (config, says) in [
        (fifo.clone(), "is a FIFO"),
        ("/dev/zero".into(), "is a device"),
        ("/proc/kmsg".into(), "not a file on disk"),
        ("/proc/self/mem".into(), "not a file on disk"),
    ] {
        let fake = place.chronyd(&config);
        ended(&place.plan(&fake, &[]), 3, says);
        ended(&place.apply(&fake), 3, says);
    }
    for include in [fifo.display().to_string(), "/proc/kmsg".into(), "/**".into(), "/*/*/*/*/*/*".into()] {
        let config = place.put("include.conf", &format!("clientloglimit 1\ninclude {include}\n"));
        let fake = place.chronyd(&config);
        let plan = place.plan(&fake, &[]);
        assert!(plan.code() == Some(0) && plan.out.contains("clientloglimit"), "{include}: {}", plan.err);
        assert_eq!(place.apply(&fake).code(), Some(3));
    }
}

#[test]
fn a_users_configuration_does_not_say_what_root_writes() {
    udpath_lab::needs_root!();
    let place = Place::new("strange-write");
    place.put_root("modprobe.d/real.conf", "# of root\n", 0o644);
    let modprobe = place.root("modprobe.d").display().to_string();
    let shadow = place.put_root("shadow", SECRET, 0o600);
    let before = fs::metadata(&shadow).unwrap();

    // A drop-in in a folder of root's choice.
    let named = place.put("confdir.conf", &format!("clientloglimit 1\nconfdir {modprobe}\n"));
    let fake = place.chronyd(&named);
    assert!(!place.shown(&fake).contains("modprobe.d/udpath.conf"));
    ended(&place.apply(&fake), 3, "others than root can change it");
    // A file of root's that happens to include a folder.
    let of_root = place.put_root("ld.so.conf", &format!("include {modprobe}/*.conf\n"), 0o644);
    ended(&place.apply(&place.chronyd(&of_root)), 3, "is not in /etc/chrony");
    assert_eq!(fs::read_dir(place.root("modprobe.d")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&of_root).unwrap(), format!("include {modprobe}/*.conf\n"));

    // A folder of the user's, with traps where root's new file might go.
    let own = place.put("conf.d/own.conf", "clientloglimit 1\n");
    let config = place.put("own.conf", &format!("confdir {}\n", own.parent().unwrap().display()));
    let trap = place.theirs("conf.d/.udpath.conf.udpath-new");
    for kind in ["link", "fifo"] {
        // Made by the user: root's own links are not what fs.protected_symlinks is about.
        let mut command = as_user(Command::new("setpriv"));
        match kind {
            "link" => command.args(["ln", "-s"]).arg(&shadow).arg(&trap),
            _ => command.arg("mkfifo").arg(&trap),
        };
        assert!(command.status().unwrap().success());
        ended(&place.apply(&place.chronyd(&config)), 3, "others than root can change it");
        fs::remove_file(&trap).unwrap();
    }
    let after = fs::metadata(&shadow).unwrap();
    assert_eq!((before.uid(), before.ino()), (after.uid(), after.ino()));
    assert_eq!(fs::read_to_string(&shadow).unwrap(), SECRET);
}

/// Any user can start a program of a known server's name at another address of its port.
#[test]
fn who_has_the_port_elsewhere_does_not_keep_root_from_changing_a_server() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("strange-port");
    let theirs = tempfile::tempdir().unwrap();
    fs::set_permissions(theirs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, config) = (theirs.path().join("nsd"), theirs.path().join("nsd.conf"));
    assert!(Command::new("cp").args(["-L", "/usr/bin/python3"]).arg(&program).status().unwrap().success());
    fs::write(&config, "server:\n  server-count: 1\n").unwrap();
    for path in [theirs.path(), &program, &config] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let serves = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.3', 5300)); \
                  print(flush=True)\nwhile True: s.recv(99)";
    let mut command = nsd.lab.machine("server").unwrap().command("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", "--"]);
    command.arg(&program).args(["-c", serves]).arg("-c").arg(&config).env("PYTHONHOME", "/usr");
    let mut fake = Fake(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(fake.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let plan = nsd.run(&["plan", "--set", "service:5300:server-count=2"]);
    assert_eq!(plan.code(), Some(0), "{}", plan.err);
    assert!(plan.out.contains("127.0.0.3:5300 belongs to"), "{} {}", plan.out, plan.err);
    let restart = nsd.restart();
    let apply = [
        "apply",
        "--set",
        "service:5300:server-count=2",
        "--restart",
        &restart,
        "--allow",
        "config",
        "--allow",
        "restart",
    ];
    let applied = nsd.run(&apply);
    assert_eq!(applied.code(), Some(0), "{}", applied.err);
    assert!(fs::read_to_string(nsd.drop_in()).unwrap().contains("server-count: 2"));
    assert_eq!(fs::read_to_string(&config).unwrap(), "server:\n  server-count: 1\n");
    ended(&nsd.run(&["undo"]), 0, "");
    // By its own name it is refused, as before.
    let theirs = format!("service:pid/{}:server-count=2", fake.0.id());
    ended(
        &nsd.run(&[
            "apply",
            "--set",
            &theirs,
            "--restart",
            "true",
            "--allow",
            "config",
            "--allow",
            "restart",
        ]),
        3,
        "can be read but not changed",
    );
}
