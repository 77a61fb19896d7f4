//! Socket policies as their users set them: in force at every start of an unmodified program, seen by `status`, and
//! undone. Each test has the BPF file system of its own binary's root (`scripts/fresh-root.sh`), and a cgroup that it
//! made. Needs root.

mod bad;
mod container;
mod daemons;
mod foreign;
mod kill;
mod spread;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::RwLockWriteGuard;

use serde_json::Value;
use udpath_rig::{Cgroup, Said, program};

/// Where policies are pinned.
const PINNED: &str = "/sys/fs/bpf/udpath";
/// Bytes that fit the usual `net.core.rmem_max` of 212,992 as well.
const BUFFER: &str = "200000";

/// Binds the port of its first argument, and prints what it has got; then does what each line of its input says.
const SERVER: &str = r#"
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def show():
    print(*[s.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_RCVBUF, socket.SO_REUSEPORT)], flush=True)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
    show()
except OSError as error:
    print(error, flush=True)
for line in sys.stdin:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(line))
    show()
"#;

/// A server in a cgroup.
struct Server {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(cgroup: &Cgroup, child: &str, port: u16) -> Self {
        let mut command = cgroup.command(child, "python3");
        command.args(["-c", SERVER, &port.to_string()]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, lines: BufReader::new(output).lines() }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the server goes on").unwrap()
    }

    fn set_buffer(&mut self, bytes: u32) -> String {
        writeln!(self.input, "{bytes}").unwrap();
        self.line()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// State and note of each option of a target, as `policy show` prints them.
fn effects(target: &str) -> Vec<(String, String)> {
    let shown = Command::new(program()).args(["policy", "show", target, "--json"]).output().unwrap();
    let shown = udpath_rig::json(&shown.stdout);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let options = shown["options"].as_array().unwrap();
    options.iter().map(|option| (text(&option["state"]), text(&option["note"]))).collect()
}

/// A cgroup with one `srv.service`, a journal of its own, and a free port; no other test runs while it exists. A test
/// that passes leaves no policy.
struct Scene {
    cgroup: Cgroup,
    state: tempfile::TempDir,
    port: u16,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || !Path::new(PINNED).exists(), "a policy is left");
    }
}

impl Scene {
    fn new() -> Self {
        let _alone = udpath_rig::alone();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let scene = Self { cgroup: Cgroup::new(), state: tempfile::tempdir().unwrap(), port, _alone };
        scene.cgroup.make("srv.service");
        scene
    }

    /// `policy:/.../srv.service/OPTION=VALUE`.
    fn request(&self, rest: &str) -> String {
        format!("policy:{}/{rest}", self.cgroup.name("srv.service"))
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let state = self.state.path().to_str().unwrap();
        let looks = arguments[0] == "plan" || matches!(arguments, ["policy", "list" | "show", ..]);
        let state: &[&str] = if looks { &[] } else { &["--state", state] };
        Said::from(Command::new(program()).args(arguments).args(state).output().unwrap())
    }

    fn server(&self) -> Server {
        Server::start(&self.cgroup, "srv.service", self.port)
    }

    /// States and notes of the last apply's settings.
    fn status(&self) -> Vec<(String, String)> {
        let said = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_str(&said.out).unwrap();
        let applies = status["applies"].as_array().unwrap();
        let settings = applies.last().unwrap()["settings"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        settings.iter().map(|held| (text(&held["state"]), text(&held["note"]))).collect()
    }
}

#[test]
fn a_policy_is_in_force_at_every_start_and_undone_without_a_trace() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let before = scene.server().line();
    let (buffer, reuseport) =
        (scene.request(&format!("receive-buffer={BUFFER}")), scene.request("reuseport=on"));
    let plan = scene.run(&["plan", "--set", &buffer]);
    assert!(plan.fine().out.contains("none -> 200000"), "{}", plan.out);
    assert!(!Path::new(PINNED).exists(), "a plan changes nothing");

    let mut early = scene.server();
    early.line();
    scene.run(&["apply", "--set", &buffer, "--set", &reuseport]).fine();
    // Of a server that runs already, nothing is changed.
    let later = format!("port {} of python3 (pid {}) was bound before", scene.port, early.child.id());
    for (state, note) in scene.status() {
        assert!(state == "holds" && note.contains(&later), "{state}: {note}");
    }
    drop(early);
    for _restart in 0..3 {
        // As systemd does.
        scene.cgroup.make("srv.service");
        let (mut one, mut two) = (scene.server(), scene.server());
        assert_eq!((one.line(), two.line()), ("200000 1".into(), "200000 1".into()));
        assert_eq!(scene.status(), [("holds".into(), "".into()), ("holds".into(), "".into())]);
    }
    assert!(scene.run(&["apply", "--set", &buffer]).fine().err.contains("nothing to do"));

    scene.run(&["undo"]).fine();
    assert!(!Path::new(PINNED).exists());
    assert_eq!(scene.server().line(), before);
    let mut one = scene.server();
    assert_eq!(one.line(), before);
    let refused = scene.server().line();
    assert!(refused.contains("Address already in use"), "{refused}");
}

#[test]
fn status_reports_what_no_longer_has_its_effect() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let buffer = scene.request(&format!("receive-buffer={BUFFER}"));
    let applied = scene.run(&["apply", "--set", &buffer]);
    applied.fine();
    // Not for a cgroup that is there, and has nothing bound yet.
    assert_eq!(scene.status(), [("holds".into(), "".into())]);
    scene.cgroup.remove("srv.service");
    let [(state, note)] = <[_; 1]>::try_from(scene.status()).unwrap();
    assert!(state == "holds" && note.ends_with("in effect when it starts"), "{note}");
    scene.run(&["status"]).fine();

    // The program sets it itself after its bind, and wins.
    scene.cgroup.make("srv.service");
    let mut server = scene.server();
    server.line();
    assert_eq!(server.set_buffer(20_000), "40000 0");
    let [(state, note)] = <[_; 1]>::try_from(scene.status()).unwrap();
    let says = format!(
        "port {} of python3 (pid {}) has 40000: the program itself set it",
        scene.port,
        server.child.id()
    );
    assert!(state == "drifted" && note.starts_with(&says), "{note}");
    scene.run(&["status"]).refused(1, "1 setting is not at its applied value");
    drop(server);
    assert_eq!(scene.status(), [("holds".into(), "".into())]);

    // Somebody removes a link; then everything.
    fs::remove_file(format!("{PINNED}/policy/bind4")).unwrap();
    let [(state, note)] = <[_; 1]>::try_from(scene.status()).unwrap();
    assert!(state == "drifted" && note.starts_with("nothing runs at bind4"), "{note}");
    scene.run(&["undo"]).fine();
    assert!(!Path::new(PINNED).exists());
    scene.run(&["apply", "--set", &buffer]).fine();
    fs::remove_dir_all(PINNED).unwrap();
    let [(state, _)] = <[_; 1]>::try_from(scene.status()).unwrap();
    assert_eq!(state, "drifted");
    scene.run(&["undo"]).fine();
}

#[test]
fn policies_of_several_applies_are_undone_one_by_one() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let of_port = format!("policy:{}:{}/receive-buffer=100000", scene.cgroup.name("srv.service"), scene.port);
    scene.run(&["apply", "--set", &scene.request(&format!("receive-buffer={BUFFER}"))]).fine();
    scene.run(&["apply", "--set", &of_port]).fine();
    // The port's wins, and the other one is not blamed for it.
    let mut server = scene.server();
    assert_eq!(server.line(), "100000 0");
    assert_eq!(scene.status(), [("holds".into(), "".into())]);
    scene.run(&["status"]).fine();
    scene.run(&["undo", "1"]).fine();
    assert!(Path::new(PINNED).exists());
    drop(server);
    assert_eq!(scene.server().line(), "100000 0");
    scene.run(&["undo", "2"]).fine();
}
