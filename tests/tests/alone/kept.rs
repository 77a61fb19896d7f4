//! `boost --keep` ends in a policy, and `diagnose` begins with one: what helps holds at the server's next start as
//! well.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Cgroup, Run, Said, TIMEOUT, client_and_server, program};

const PORT: u16 = 7000;
/// An echo server that answers what is queued, 32 at most, every 5 ms, and has room for a datagram or two: what else
/// comes meanwhile is lost. It prints its buffer once it is bound.
const SERVER: &str = r#"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1152)
s.bind(("0.0.0.0", 7000))
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), flush=True)
s.setblocking(False)
while True:
    time.sleep(0.005)
    try:
        for _ in range(32):
            s.sendto(*s.recvfrom(2048))
    except BlockingIOError:
        pass
"#;

/// Bursts to ADDRESS, each longer than the server's buffer and soon read, for 20 s.
const BURSTS: &str = r#"
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7000))
print("ready", file=sys.stderr, flush=True)
for _ in range(100):
    for _ in range(50):
        s.send(b"x" * 100)
    time.sleep(0.2)
"#;

/// The server, in `srv.service` of a cgroup and in the lab's machine.
struct Server(Child);

impl Server {
    /// Starts it as a service manager does, in a new cgroup; returns its buffer as well.
    fn start(lab: &Lab, cgroup: &Cgroup) -> (Self, u32) {
        cgroup.make("srv.service");
        let namespace = lab.machine("server").unwrap().namespace();
        let mut command = cgroup.command("srv.service", "ip");
        command.args(["netns", "exec", namespace, "python3", "-c", SERVER]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_buffer_that_helps_is_there_at_the_next_start() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    // A program that takes the CPUs makes trials differ by more than a buffer does.
    udpath_rig::judged("a buffer that helps is kept", a_buffer_is_kept);
}

fn a_buffer_is_kept() {
    let lab = client_and_server("boost-policy", 2);
    let (cgroup, state) = (Cgroup::new(), tempfile::tempdir().unwrap());
    let [client, server] = ["client", "server"].map(|name| lab.machine(name).unwrap().namespace());
    let state = state.path().to_str().unwrap();
    let (found, small) = Server::start(&lab, &cgroup);
    assert!(small < 10_000, "{small}");

    let address = lab.address_of("server", "client").unwrap().ipv4;
    let (pid, target) = (found.0.id().to_string(), format!("{address}:{PORT}"));
    let mut command = Command::new(program());
    command.args(["boost", "--pid", &pid, "--from", client, "--state", state, "--json", "--no-profile"]);
    command.args(["--duration", "200ms", "--bound", "10", "--blocks", "6", "--budget", "20s", "--keep"]);
    command.args(["--load", "echo", &target, "--flows", "16", "--inflight", "2", "--timeout", "50ms"]);
    let ended = Run::of(command, "boost").within(TIMEOUT * 4).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let running = serde_json::from_str::<Value>(&ended.out).unwrap()["running"].take();
    let kept = running["kept"].to_string();
    assert!(kept.contains("port:7000:receive-buffer="), "{running:#}");
    // It outlasts the server, unlike other options of its sockets; a boot does not know this namespace.
    for fleeting in running["fleeting"].as_array().unwrap() {
        let buffer = fleeting["settings"].to_string().contains("receive-buffer");
        assert!(!buffer || fleeting["until"] == "boot", "{fleeting}");
    }
    drop(found);
    let (next, large) = Server::start(&lab, &cgroup);
    assert!(large > 100_000, "{large} with {kept}");
    drop(next);

    let undo = Command::new(program()).args(["undo", "--netns", server, "--state", state]).output().unwrap();
    Said::from(undo).fine();
    assert_eq!(Server::start(&lab, &cgroup).1, small);
}

#[test]
fn a_lost_burst_is_told_with_the_policy_that_mends_it() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let lab = client_and_server("burst-policy", 2);
    let (cgroup, state) = (Cgroup::new(), tempfile::tempdir().unwrap());
    let [client, server] = ["client", "server"].map(|name| lab.machine(name).unwrap().namespace());
    let state = state.path().to_str().unwrap();
    let (found, small) = Server::start(&lab, &cgroup);

    let address = lab.address_of("server", "client").unwrap().ipv4.to_string();
    let mut bursts = Command::new("ip");
    bursts.args(["netns", "exec", client, "python3", "-c", BURSTS, &address]);
    let mut bursts = Run::of(bursts, "bursts").start();
    bursts.says("ready");
    let diagnose = Run::new(&["diagnose", "7000", "--netns", server, "-d", "2s", "--json"]).finish();
    drop(bursts);
    let diagnosis: Value = serde_json::from_str(&diagnose.out).unwrap();
    let first = &diagnosis["findings"][0];
    assert_eq!(first["id"], "receive-buffer-small", "{diagnosis}");
    let commands: Vec<&str> =
        first["commands"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let policy = commands.iter().find_map(|one| one.strip_prefix("udpath policy set ")).unwrap();

    // As it is printed, with another journal.
    let line = format!("{} policy set {policy} --state {state}", program().display());
    Said::from(Command::new("sh").args(["-c", &line]).output().unwrap()).fine();
    drop(found);
    let (next, large) = Server::start(&lab, &cgroup);
    assert_eq!(large, small * 4, "{commands:?}");
    drop(next);
    let undo = Command::new(program()).args(["undo", "--state", state]).output().unwrap();
    Said::from(undo).fine();
    assert_eq!(Server::start(&lab, &cgroup).1, small);
}
