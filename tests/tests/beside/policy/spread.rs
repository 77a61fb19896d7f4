//! `spread`: the datagrams of one flow over the sockets of a unit's programs, set after each start.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use udpath_rig::{Installed, Said, program};

use super::Scene;

/// Binds a port by three sockets, after the time of its second argument; prints how many datagrams each has, and reads
/// them, for each line of its input.
const SERVER: &str = r#"
import socket, sys, time
time.sleep(float(sys.argv[2]))
sockets = []
for _ in range(3):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.setblocking(False)
    sockets.append(s)
print("bound", flush=True)
def read(s):
    count = 0
    try:
        while True:
            s.recv(2048)
            count += 1
    except BlockingIOError:
        return count
for line in sys.stdin:
    print(*[read(s) for s in sockets], flush=True)
"#;

/// The server, in the scene's `srv.service`.
struct Server {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Server {
    fn start(scene: &Scene, delay: &str) -> Self {
        let mut command = scene.cgroup.command("srv.service", "python3");
        command.args(["-c", SERVER, &scene.port.to_string(), delay]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, lines: BufReader::new(output).lines(), port: scene.port }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the server goes on").unwrap()
    }

    /// What each socket gets of 30 datagrams of one flow.
    fn of_one_flow(&mut self) -> Vec<u32> {
        let flow = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..30 {
            assert_eq!(flow.send_to(b"datagram", ("127.0.0.1", self.port)).unwrap(), 8);
        }
        let mut counts = vec![0; 3];
        // They arrive while they are sent, unless the CPU is busy.
        udpath_rig::awaited("30 datagrams", udpath_rig::TIMEOUT, || {
            writeln!(self.input).unwrap();
            let line = self.line();
            counts
                .iter_mut()
                .zip(line.split(' '))
                .for_each(|(count, more)| *count += more.parse::<u32>().unwrap());
            (counts.iter().sum::<u32>() == 30).then_some(())
        });
        counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_spread(counts: &[u32]) -> bool {
    // A datagram more or less on each CPU.
    counts.iter().all(|count| (7..=13).contains(count))
}

fn spread(arguments: &[&str]) -> Said {
    Said::from(Command::new(program()).args(["policy", "spread"]).args(arguments).output().unwrap())
}

#[test]
fn groups_are_spread_once_they_are_bound_also_without_systemd() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let target = format!("{}:{}", scene.cgroup.name("srv.service"), scene.port);
    spread(&[&target, "datagram", "--wait", "0s"]).refused(3, "have no reuseport group on port");
    spread(&[&target, "by-cpu"]).refused(2, "datagram (round-robin), least-loaded, or field:OFFSET+LENGTH");

    // The program has not bound its sockets when it is run.
    let mut server = Server::start(&scene, "0.5");
    let said = spread(&[&target, "datagram"]);
    assert!(said.fine().err.contains("3 sockets, round-robin"), "{}", said.err);
    assert!(said.err.contains("gives up the order of datagrams within a flow"), "{}", said.err);
    assert_eq!(server.line(), "bound");
    let counts = server.of_one_flow();
    assert!(is_spread(&counts), "{counts:?}");
    // Another rule takes its place, of the same cgroup by any port.
    spread(&[&scene.cgroup.name("srv.service"), "field:0+4"]).fine();
    let counts = server.of_one_flow();
    assert!(counts.contains(&30), "{counts:?}");
    // Groups of other cgroups are not its business.
    spread(&[&scene.cgroup.name("other"), "datagram", "--wait", "0s"]).refused(3, "have no reuseport group");
}

/// A `systemctl` that knows the scene's unit and counts what it is asked to read again.
struct FakeSystemd {
    folder: tempfile::TempDir,
    installed: Installed,
}

impl FakeSystemd {
    const RUNS: &str = "/run/systemd/system";

    fn new(scene: &Scene) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\ncase $1 in\nshow) echo LoadState=loaded; echo ControlGroup={};;\n\
             daemon-reload) echo >> {}/reloads;;\nesac\n",
            scene.cgroup.name("srv.service"),
            folder.path().display()
        );
        let path = folder.path().join("systemctl");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(Self::RUNS).unwrap();
        Self { folder, installed: Installed::new() }
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Said {
        let mut path = OsString::from(self.folder.path());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        Said::from(Command::new(program).args(arguments).env("PATH", path).output().unwrap())
    }

    fn reloads(&self) -> usize {
        fs::read_to_string(self.folder.path().join("reloads")).unwrap_or_default().lines().count()
    }
}

impl Drop for FakeSystemd {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Self::RUNS);
    }
}

#[test]
fn a_unit_gets_a_drop_in_that_spreads_after_each_start() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let name = format!("srv.service:{}", scene.port);
    let request = format!("policy:{name}/spread=datagram");
    scene.run(&["apply", "--set", &request]).refused(3, "is not running; name the cgroup by its path");
    let of_cgroup = scene.request("spread=datagram");
    scene
        .run(&["apply", "--set", &of_cgroup])
        .refused(2, "only a service of systemd runs something after each start");

    let systemd = FakeSystemd::new(&scene);
    let state = scene.state.path().to_str().unwrap();
    let drop_in =
        PathBuf::from(format!("/etc/systemd/system/srv.service.d/udpath-spread-{}.conf", scene.port));
    let policy = |arguments: &[&str]| {
        systemd.run(&systemd.installed.program(), &[&["policy"][..], arguments].concat())
    };
    let said = policy(&["set", &name, "spread=by-cpu", "--state", state]);
    said.refused(2, "datagram (round-robin), least-loaded");
    let said = policy(&["set", &name, "spread=datagram", "--state", state]);
    assert!(said.fine().out.contains("none -> round-robin"), "{}", said.out);
    assert!(said.err.contains("gives up the order of datagrams within a flow"), "{}", said.err);
    assert_eq!(systemd.reloads(), 1);
    let listed = || policy(&["list"]).fine().out.clone();
    assert!(
        listed().contains("srv.service has no reuseport group now; in effect after its next start"),
        "{}",
        listed()
    );

    // What systemd does at each start.
    let text = fs::read_to_string(&drop_in).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStartPost=-+")).unwrap().to_owned();
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[1..], ["policy", "spread", &name, "round-robin"], "{text}");
    for _start in 0..2 {
        let mut server = Server::start(&scene, "0");
        assert_eq!(server.line(), "bound");
        assert!(listed().contains("is by-flow, as its program was started before"), "{}", listed());
        systemd.run(Path::new(words[0]), &words[1..]).fine();
        let counts = server.of_one_flow();
        assert!(is_spread(&counts), "{counts:?}");
        assert!(listed().ends_with("round-robin  in effect\n"), "{}", listed());
        systemd.run(&program(), &["status", "--state", state]).fine();
    }

    // Somebody else's file of that name is left alone.
    policy(&["remove", &name, "--state", state]).fine();
    assert!(!drop_in.exists() && !drop_in.parent().unwrap().exists());
    assert_eq!(systemd.reloads(), 2);
    fs::create_dir_all(drop_in.parent().unwrap()).unwrap();
    fs::write(&drop_in, "[Service]\nExecStartPost=/bin/true\n").unwrap();
    let said = policy(&["set", &name, "spread=datagram", "--state", state]);
    said.refused(3, "has no `policy spread` of udpath; remove or rename it");
    fs::remove_dir_all(drop_in.parent().unwrap()).unwrap();
}
