//! Debian's daemons under a policy that they know nothing of: in force after every restart, removed without a trace.
//!
//! ```text
//! host: udpath policy ──▸ cgroup .../daemon.service: made anew at each start, as systemd does
//!                             └─ the daemon, in a network namespace of its own       ss: SO_RCVBUF of each of its sockets
//! ```
//! nsd, coturn, and with their own options unbound, rsyslogd and FreeRADIUS set SO_RCVBUF before their bind: the policy
//! wins. named sets it after the bind, if configured to: named wins, which is reported.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::{Lab, LabBuilder};
use udpath_rig::campaign::{record, rounds};
use udpath_rig::{Cgroup, DaemonProgram, Said, TIMEOUT, awaited, program};

use super::{PINNED, effects};

/// Below twice the kernel's usual `net.core.rmem_max` of 212,992, and no daemon's own choice.
const BUFFER: u32 = 300_000;
/// The cgroup that stands for the daemon's unit.
const UNIT: &str = "daemon.service";
/// A daemon that has the same sockets for so long has bound them all.
const SETTLED: Duration = Duration::from_millis(200);
/// How long a daemon may take to end after SIGTERM, as systemd's TimeoutStopSec.
const STOP: Duration = Duration::from_secs(5);

/// A daemon's configuration, its cgroup and its network namespace.
struct Place {
    lab: Lab,
    cgroup: Cgroup,
    folder: tempfile::TempDir,
    daemon: DaemonProgram,
    command: Vec<String>,
}

impl Place {
    fn new(daemon: DaemonProgram) -> Self {
        let lab = LabBuilder::new(format!("policy-{}", daemon.name())).machine("server");
        let lab = lab.up().unwrap_or_else(|error| panic!("{error:?}"));
        let folder = tempfile::tempdir().unwrap();
        let command = daemon.prepare(folder.path(), 1).unwrap();
        Self { lab, cgroup: Cgroup::new(), folder, daemon, command }
    }

    /// The policy's target.
    fn unit(&self) -> String {
        self.cgroup.name(UNIT)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// udpath, outside of the daemon's network namespace.
    fn run(&self, arguments: &[&str]) -> Said {
        Said::from(Command::new(program()).args(arguments).output().unwrap())
    }

    /// The same with the test's journal.
    fn change(&self, arguments: &[&str]) -> Said {
        let state = self.path("state").display().to_string();
        self.run(&[arguments, &["--state", &state]].concat())
    }

    /// Starts it in a new cgroup, and waits until it has bound its sockets.
    fn start(&self) -> Running<'_> {
        self.cgroup.make(UNIT);
        let [shell, words @ ..] = self.cgroup.words(UNIT);
        let log = File::create(self.path("log")).unwrap();
        let mut command = self.lab.machine("server").unwrap().command(shell);
        command.args(words).args(&self.command);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let running = Running { place: self, child: self.lab.spawn(command).unwrap() };
        let mut last = Vec::new();
        let name = self.daemon.name();
        awaited(&format!("{name} to bind its port ({})", self.path("log").display()), TIMEOUT, || {
            let now = running.buffers();
            let settled = !now.is_empty() && now == last;
            last = now;
            std::thread::sleep(SETTLED);
            settled.then_some(())
        });
        running
    }
}

/// A running daemon; stopped as systemd does when dropped.
struct Running<'a> {
    place: &'a Place,
    child: Child,
}

impl Running<'_> {
    /// The receive buffer of each of its sockets at the port, smallest first, as `ss` shows it.
    fn buffers(&self) -> Vec<u32> {
        let mut ss = self.place.lab.machine("server").unwrap().command("ss");
        ss.args(["-Huamn", &format!("sport = :{}", self.place.daemon.port())]);
        let shown = String::from_utf8(ss.output().unwrap().stdout).unwrap();
        let words = shown.split([',', '(']).filter_map(|word| word.strip_prefix("rb"));
        let mut buffers: Vec<u32> = words.map(|bytes| bytes.parse().unwrap()).collect();
        buffers.sort_unstable();
        buffers
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = std::time::Instant::now() + STOP;
        while matches!(self.child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.place.cgroup.kill(UNIT);
        let _ = self.child.wait();
    }
}

/// What `policy show` prints of an option that every socket has.
fn in_effect() -> (String, String) {
    ("in-effect".to_owned(), String::new())
}

fn in_force_after_restarts(daemon: DaemonProgram) {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let (place, name) = (Place::new(daemon), daemon.name());
    let before = place.start().buffers();
    assert!(!before.contains(&BUFFER), "{name} has it without a policy: {before:?}");

    place.change(&["policy", "set", &place.unit(), &format!("receive-buffer={BUFFER}")]).fine();
    let restarts = rounds(2, 20);
    let mut in_force = 0;
    for restart in 1..=restarts {
        let running = place.start();
        let (buffers, effects) = (running.buffers(), effects(&place.unit()));
        let every = buffers.len() >= before.len() && buffers.iter().all(|buffer| *buffer == BUFFER);
        if every && effects == [in_effect()] {
            in_force += 1;
        } else {
            println!("{name}, restart {restart}: {buffers:?}, {effects:?}");
        }
    }
    record(&format!("policy in force after restarts of {name}"), &format!("{in_force} of {restarts}"));
    assert_eq!(in_force, restarts);
    // Seen from within its network namespace as well.
    let running = place.start();
    let namespace = place.lab.machine("server").unwrap().namespace().to_owned();
    place.change(&["status", "--netns", &namespace]).fine();
    drop(running);

    place.change(&["policy", "remove", &place.unit()]).fine();
    assert!(!Path::new(PINNED).exists());
    assert_eq!(place.start().buffers(), before, "{name}");
}

#[test]
fn restarts_of_nsd_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Nsd);
}

#[test]
fn restarts_of_knotd_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Knotd);
}

#[test]
fn restarts_of_unbound_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Unbound);
}

#[test]
fn restarts_of_named_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Named);
}

#[test]
fn restarts_of_freeradius_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Freeradius);
}

#[test]
fn restarts_of_chronyd_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Chronyd);
}

#[test]
fn restarts_of_rsyslogd_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Rsyslogd);
}

#[test]
fn restarts_of_turnserver_keep_its_policy() {
    in_force_after_restarts(DaemonProgram::Turnserver);
}

/// Changes a text of the daemon's configuration.
fn configured(place: &Place, from: &str, to: &str) {
    let path = place.path(place.daemon.conf());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_daemon_that_sets_its_buffer_after_its_bind_wins_and_is_named() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let place = Place::new(DaemonProgram::Named);
    configured(&place, "pid-file none;", "pid-file none;\n\tudp-receive-buffer 131072;");
    place.change(&["policy", "set", &place.unit(), &format!("receive-buffer={BUFFER}")]).fine();
    let running = place.start();
    assert!(running.buffers().iter().all(|buffer| *buffer == 262_144), "{:?}", running.buffers());
    let says = format!(
        "port {} of named (pid {}) has 262144: the program itself set it after its bind, and wins",
        place.daemon.port(),
        running.child.id()
    );
    assert_eq!(effects(&place.unit()), [("broken".to_owned(), says)]);
    place.run(&["policy", "list"]).refused(1, "1 option does not have its effect");
    place.change(&["policy", "remove", &place.unit()]).fine();
}

#[test]
fn daemons_that_set_their_buffer_before_their_bind_lose() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    for (daemon, from, to, without) in [
        (DaemonProgram::Unbound, "  pidfile:", "  so-rcvbuf: 65536\n  pidfile:", 131_072),
        (DaemonProgram::Rsyslogd, "port=\"5140\"", "port=\"5140\" rcvbufSize=\"65536\"", 131_072),
        (DaemonProgram::Freeradius, "port = 1812", "port = 1812\n\t\trecv_buff = 65536", 131_072),
    ] {
        let (place, name) = (Place::new(daemon), daemon.name());
        configured(&place, from, to);
        let before = place.start().buffers();
        assert!(before.contains(&without), "{name}: {before:?}");
        place.change(&["policy", "set", &place.unit(), &format!("receive-buffer={BUFFER}")]).fine();
        let running = place.start();
        assert!(running.buffers().iter().all(|buffer| *buffer == BUFFER), "{name}: {:?}", running.buffers());
        assert_eq!(effects(&place.unit()), [in_effect()], "{name}");
        drop(running);
        place.change(&["policy", "remove", &place.unit()]).fine();
    }
    assert!(!Path::new(PINNED).exists());
}
