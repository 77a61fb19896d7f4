//! `udpath multiply` as its users run it: instances of unmodified servers share a port, each datagram is answered
//! exactly once, and nothing is left of them. Each test has the /run and the BPF file system of its own binary's root
//! (`scripts/fresh-root.sh`). Traffic is on loopback. Needs root and two CPUs.

mod bad;
mod killed;
mod leave;
mod restart;
mod servers;
mod signals;
mod unit;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_rig::{Cgroup, Ended, Run, Running, TIMEOUT};

/// Where policies are pinned.
const PINNED: &str = "/sys/fs/bpf/udpath";
/// Where the folders of instances are.
const FOLDERS: &str = "/run/udpath/multiply";
/// Returns each datagram with its pid at the end, so that a reply shows whose it is; with `echo`, as it is.
const SERVER: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# SO_RCVBUFFORCE: its buffer holds what comes while other programs have the CPU.
s.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)
s.bind(("127.0.0.1", int(sys.argv[1])))
mine = b"" if sys.argv[2] == "echo" else b" %d" % os.getpid()
while True:
    payload, peer = s.recvfrom(2048)
    s.sendto(payload + mine, peer)
"#;

/// A name, a port, a journal, and a server's file.
struct Scene {
    name: String,
    port: u16,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(name: &str) -> Self {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let scene = Self {
            name: format!("{name}-{}", std::process::id()),
            port,
            folder: tempfile::tempdir().unwrap(),
        };
        fs::write(scene.path("server.py"), SERVER).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `udpath multiply NAME --state ... OPTIONS -- COMMAND`
    fn run(&self, options: &[&str], command: &[&str]) -> Run {
        let state = self.text("journal");
        let fixed = ["multiply", &self.name, "--state", &state];
        Run::new(&[&fixed[..], options, &["--"], command].concat()).within(TIMEOUT * 4)
    }

    /// Instances of the Python server, once they are ready.
    fn python(&self, options: &[&str], kind: &str) -> Running {
        let (file, port) = (self.text("server.py"), self.port.to_string());
        let mut running = self.run(options, &["python3", &file, &port, kind]).start();
        running.says("ready: ");
        running
    }

    /// `udpath multiply NAME OPTIONS --json` of the running instances.
    fn ask(&self, options: &[&str]) -> Value {
        let ended = Run::new(&[&["multiply", &self.name, "--json"], options].concat()).finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        serde_json::from_str(&ended.out).unwrap()
    }

    /// The pids of the instances that serve.
    fn pids(&self) -> Vec<u32> {
        let status = self.ask(&[]);
        let serving = status["instances"].as_array().unwrap().iter().filter(|one| one["state"] == "serving");
        serving.map(|one| u32::try_from(one["pid"].as_u64().unwrap()).unwrap()).collect()
    }

    fn client(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    /// Sends numbered datagrams of many flows; each has exactly one reply. Returns how many each process has answered.
    fn answered(&self, flows: usize, each: usize) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        let clients: Vec<UdpSocket> = (0..flows).map(|_| self.client()).collect();
        for number in 0..each {
            for (flow, client) in clients.iter().enumerate() {
                client.send(format!("{flow} {number}").as_bytes()).unwrap();
            }
            for (flow, client) in clients.iter().enumerate() {
                let mut room = [0; 100];
                let len = client.recv(&mut room).unwrap();
                let reply = std::str::from_utf8(&room[..len]).unwrap();
                let (payload, pid) = reply.rsplit_once(' ').unwrap();
                assert_eq!(payload, format!("{flow} {number}"));
                *counts.entry(pid.parse().unwrap()).or_default() += 1;
            }
        }
        for client in &clients {
            client.set_nonblocking(true).unwrap();
            assert!(client.recv(&mut [0; 100]).is_err(), "a second reply");
        }
        counts
    }

    fn cgroup(&self) -> PathBuf {
        Cgroup::root().join(format!("udpath-multiply-{}", self.name))
    }

    /// Ends the instances by a signal, in order; nothing is left.
    fn end(&self, running: Running) -> Ended {
        running.signal(Signal::TERM);
        let ended = running.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        self.nothing_is_left();
        ended
    }

    fn nothing_is_left(&self) {
        assert!(!self.cgroup().exists(), "{}", self.cgroup().display());
        assert!(!Path::new(PINNED).exists(), "a policy");
        let left: Vec<_> =
            fs::read_dir(FOLDERS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn two_instances_answer_each_datagram_once_and_leave_nothing() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("echo");
    let running = scene.python(&["-n", "2", "--json"], "pid");
    let counts = scene.answered(64, 5);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), {
        let mut pids = scene.pids();
        pids.sort_unstable();
        pids
    });
    // By a keyed hash of 64 flows: fewer than 8 at one of two is less likely than 1 in 10^9.
    assert!(counts.values().all(|count| *count >= 8 * 5), "{counts:?}");
    let status = scene.ask(&[]);
    assert_eq!(status["addresses"], serde_json::json!([format!("127.0.0.1:{}", scene.port)]));
    let cpus: Vec<u64> =
        status["instances"].as_array().unwrap().iter().map(|one| one["cpu"].as_u64().unwrap()).collect();
    assert_ne!(cpus[0], cpus[1]);
    for (pid, cpu) in scene.pids().into_iter().zip(cpus) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
    }
    let list = Run::new(&["multiply", "--list"]).finish();
    assert!(
        list.out.starts_with(&format!("{}: 2 instances at 127.0.0.1:{}", scene.name, scene.port)),
        "{}",
        list.out
    );
    let ended = scene.end(running);
    let last: Value = serde_json::from_str(&ended.out).unwrap();
    let given: u64 =
        last["instances"].as_array().unwrap().iter().map(|one| one["datagrams"].as_u64().unwrap()).sum();
    assert_eq!((given, &last["schema"]), (64 * 5, &"udpath.multiply/1".into()));
}

#[test]
fn instances_added_and_removed_under_load_lose_nothing() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("load");
    let running = scene.python(&["-n", "1"], "echo");
    let target = format!("127.0.0.1:{}", scene.port);
    // A tenth of what one instance answers here: whatever is lost is lost to the changes.
    let load =
        ["load", "echo", &target, "--rate", "4k", "--flows", "64", "-d", "8s", "--timeout", "3s", "--json"];
    let load = Run::new(&load).start();
    for count in ["2", "1", "2", "1", "2"] {
        std::thread::sleep(Duration::from_millis(500));
        let status = scene.ask(&["-n", count]);
        assert_eq!(status["instances"].as_array().unwrap().len().to_string(), count, "{status}");
    }
    let ended = load.finish();
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert!(counts["sent"].as_u64().unwrap() > 20_000, "{counts}");
    assert_eq!(counts["sent"], counts["ok"], "{counts}");
    assert_eq!(counts["duplicate"], 0, "{counts}");
    let ended = scene.end(running);
    assert!(!ended.err.contains("warning"), "{}", ended.err);
}

#[test]
fn instances_are_chosen_by_the_receiving_cpu() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("cpu");
    let running = scene.python(&["-n", "2", "--choose", "cpu"], "pid");
    let pids = scene.pids();
    for (cpu, pid) in pids.iter().enumerate() {
        let only = [cpu as u32].into_iter().collect();
        // On loopback a datagram is received on the CPU that sends it.
        let counts = udpath_lab::confined(&only, || scene.answered(16, 2)).unwrap();
        assert_eq!(counts, BTreeMap::from([(*pid, 32)]));
    }
    scene.end(running);
}
