//! Instances that a restart command starts: `service:PORT:instances=N` of chronyd, which no unit runs.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::Lab;
use udpath_rig::{DaemonProgram, Ended, Run, TIMEOUT, awaited, client_and_server};

const SERVER: DaemonProgram = DaemonProgram::Chronyd;
const NAME: &str = "chrony-123";

struct Chronyd {
    lab: Lab,
    folder: tempfile::TempDir,
}

impl Chronyd {
    /// Its restart command has what is to run the server, or is one that knows nothing of it. In a folder that only
    /// root can change, as root's servers have.
    fn start(name: &str, variable: &str) -> Self {
        let chronyd = Self { lab: client_and_server(name, 2), folder: tempfile::tempdir_in("/run").unwrap() };
        let here = chronyd.folder.path().display();
        let command = SERVER.prepare(chronyd.folder.path(), 0).unwrap().join(" ");
        let script = format!(
            "#!/bin/sh\ncd {here}\npid=$(cat pid 2>/dev/null) && kill $pid\n\
             while [ -n \"$pid\" ] && readlink /proc/$pid/exe > /dev/null 2>&1; do sleep 0.02; done\n\
             setsid {variable} {command} >> log 2>&1 < /dev/null &\necho $! > pid\n"
        );
        fs::write(chronyd.path("restart"), script).unwrap();
        fs::set_permissions(chronyd.path("restart"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut first = chronyd.lab.machine("server").unwrap().command(chronyd.path("restart"));
        assert!(first.status().unwrap().success());
        awaited("chronyd to answer", TIMEOUT, || chronyd.answers().then_some(()));
        chronyd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn udpath(&self, arguments: &[&str]) -> Run {
        let server = self.lab.machine("server").unwrap().namespace().to_owned();
        let state = self.path("state").display().to_string();
        let state = if arguments[0] == "plan" { vec![] } else { vec!["--state", &state] };
        Run::new(&[arguments, &["--netns", &server], &state].concat()).within(TIMEOUT * 4)
    }

    fn apply(&self) -> Ended {
        // Without the mark of a run of udpath, since the server outlives it.
        let restart = format!("exec env -u UDPATH_TEST_RUN {}", self.path("restart").display());
        let set = ["apply", "--set", "service:123:instances=2", "--restart", &restart];
        self.udpath(&[&set[..], &["--allow", "restart"]].concat()).finish()
    }

    /// Whether it answers an NTP request of mode 3.
    fn answers(&self) -> bool {
        let ask = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            socket.connect(("127.0.0.1", SERVER.port()))?;
            let mut request = [0; 48];
            request[0] = 0x23;
            socket.send(&request)?;
            socket.recv(&mut request)
        };
        self.lab.machine("server").unwrap().run(ask).unwrap().is_ok()
    }

    /// How many sockets are bound to its port.
    fn sockets(&self) -> usize {
        let listed = || fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let listed = self.lab.machine("server").unwrap().run(listed).unwrap();
        let end = format!(":{:04X}", SERVER.port());
        let is_bound =
            |line: &&str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end));
        listed.lines().filter(is_bound).count()
    }
}

impl Drop for Chronyd {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.path("pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        awaited("chronyd to end", TIMEOUT, || (self.sockets() == 0).then_some(()));
    }
}

#[test]
fn a_restart_command_starts_instances_and_undo_one_process() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let chronyd = Chronyd::start("instances", "$UDPATH_RUN");
    assert_eq!(chronyd.sockets(), 1);

    let planned = chronyd.udpath(&["plan", "--set", "service:123:instances=9"]).finish();
    assert_eq!(planned.code(), Some(2), "{}", planned.err);
    assert!(
        planned.err.contains("instances cannot be \"9\"; expected a number from 1 to"),
        "{}",
        planned.err
    );

    let applied = chronyd.apply();
    let log = fs::read_to_string(chronyd.path("log")).unwrap();
    assert_eq!(applied.code(), Some(0), "{}{log}", applied.err);
    assert_eq!(chronyd.sockets(), 2);
    assert!(chronyd.answers(), "{log}");
    let listed = Run::new(&["multiply", "--list"]).finish();
    assert!(listed.out.contains(NAME), "{}{}", listed.out, listed.err);

    let undone = chronyd.udpath(&["undo"]).finish();
    assert_eq!(undone.code(), Some(0), "{}", undone.err);
    assert!(chronyd.sockets() == 1 && chronyd.answers());
    let listed = Run::new(&["multiply", "--list"]).finish();
    assert!(!listed.out.contains(NAME), "{}", listed.out);
}

#[test]
fn a_restart_command_that_starts_one_process_is_noticed_and_taken_back() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let chronyd = Chronyd::start("no-instances", "");
    let applied = chronyd.apply();
    assert_eq!(applied.code(), Some(3), "{}", applied.err);
    assert!(applied.err.contains("$UDPATH_RUN before the server's program"), "{}", applied.err);
    assert!(chronyd.sockets() == 1 && chronyd.answers());
}
