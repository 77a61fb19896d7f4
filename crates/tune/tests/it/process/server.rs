//! A server as packaged by Debian, in a lab's machine, and its clients.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use udpath_host::process::{Server, Socket, Thread, find};
use udpath_lab::{Lab, LabBuilder, LinkSpec};

/// Long enough for everything here on a machine that also runs other tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const PORT: u16 = 5300;
/// Sockets and workers of each server.
pub(crate) const WORKERS: usize = 2;
/// Datagrams per count.
pub(crate) const COUNT: u32 = 40;
/// A query for the SOA of example.test: one question, no recursion.
pub(crate) const QUERY: &[u8] =
    b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x04test\x00\x00\x06\x00\x01";
pub(crate) const ZONE: &str =
    "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 10.0.0.2\n";

/// A running server, in a machine that ends with the test.
pub(crate) struct Running {
    lab: Lab,
    pub(crate) folder: TempDir,
    pub(crate) kind: Kind,
    pub(crate) child: Child,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Nsd,
    Knot,
}

impl Kind {
    pub(crate) fn processes(self) -> usize {
        match self {
            // The main process, which handles transfers, the one that starts workers, and the workers.
            Self::Nsd => 2 + WORKERS,
            Self::Knot => 1,
        }
    }
}

impl Running {
    pub(crate) fn start(kind: Kind, name: &str) -> Self {
        let builder = LabBuilder::new(name).machine("client").machine("server");
        let lab = builder.link("client", "server", &LinkSpec::with_queues(2)).up().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zone"), ZONE).unwrap();
        fs::write(folder.path().join("conf"), configuration(kind, folder.path())).unwrap();
        let child = spawn(&lab, kind, folder.path());
        let running = Self { lab, folder, kind, child };
        running.await_answer();
        // The first worker may answer before the last one is running.
        let deadline = Instant::now() + TIMEOUT;
        while running.found().processes.len() < kind.processes() {
            assert!(Instant::now() < deadline, "{:?}", running.found());
            std::thread::sleep(Duration::from_millis(1));
        }
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn found(&self) -> Server {
        find(self.pid()).unwrap()
    }

    /// Its sockets on the queried port, which form one group.
    pub(crate) fn sockets(&self) -> Vec<Socket> {
        let server = self.found();
        let group = server.groups.iter().find(|group| group.address == self.address()).expect("a group");
        group.members.iter().map(|&at| server.sockets[at].clone()).collect()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.address_of("server", "client").unwrap().ipv4.into(), PORT)
    }

    /// `count` sockets, each with a port of its own.
    pub(crate) fn clients(&self, count: u32) -> Vec<UdpSocket> {
        let open = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(self.address()).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket
        };
        self.lab.machine("client").unwrap().run(|| (0..count).map(|_| open()).collect()).unwrap()
    }

    /// How many of [`COUNT`] queries are answered.
    pub(crate) fn answered(&self) -> usize {
        let clients = self.clients(COUNT);
        // Connection refused: no socket is listening at this moment.
        clients.iter().for_each(|client| drop(client.send(QUERY)));
        clients.iter().filter(|client| matches!(client.recv(&mut [0; 512]), Ok(12..))).count()
    }

    pub(crate) fn await_answer(&self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let client = &self.clients(1)[0];
            if client.send(QUERY).is_ok() && client.recv(&mut [0; 512]).is_ok() {
                return;
            }
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{:?} does not answer: {}", self.kind, log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.found().processes {
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
        }
    }

    /// Stops it: on return, none of its threads is running.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + TIMEOUT;
        let runs = |thread: &Thread| {
            let stat = format!("/proc/{}/task/{}/stat", thread.id.pid, thread.id.tid);
            !fs::read_to_string(stat).unwrap().rsplit_once(')').unwrap().1.starts_with(" T")
        };
        while self.found().threads.iter().any(runs) {
            assert!(Instant::now() < deadline, "{:?} does not stop", self.kind);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many of [`COUNT`] datagrams, all sent by `cpu`, are queued at each socket. The server answers them
    /// afterwards.
    pub(crate) fn counted(&self, cpu: u32) -> Vec<u32> {
        let clients = self.clients(COUNT);
        let queued = || self.sockets().iter().map(|socket| socket.queued).collect::<Vec<_>>();
        let deadline = Instant::now() + TIMEOUT;
        while queued().iter().any(|bytes| *bytes > 0) {
            assert!(Instant::now() < deadline, "earlier queries stay unread: {:?}", queued());
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop();
        on_cpu(cpu, || assert!(clients.iter().all(|client| client.send(QUERY).is_ok())));
        // All have the same length, so each is charged the same.
        let queued = queued();
        let each = queued.iter().sum::<u32>() / COUNT;
        assert!(each > 0, "nothing arrived: {queued:?}");
        self.signal(Signal::CONT);
        assert!(
            clients.iter().all(|client| client.recv(&mut [0; 512]).is_ok()),
            "all are answered in the end"
        );
        queued.iter().map(|bytes| bytes / each).collect()
    }

    /// Ends it and starts it again with the same configuration.
    pub(crate) fn restart(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.lab, self.kind, self.folder.path());
        self.await_answer();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its child processes end with the lab.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(lab: &Lab, kind: Kind, folder: &Path) -> Child {
    let (program, foreground) = match kind {
        Kind::Nsd => ("nsd", Some("-d")),
        Kind::Knot => ("knotd", None),
    };
    let mut command = lab.machine("server").unwrap().command(program);
    command.args(foreground).arg("-c").arg(folder.join("conf")).current_dir(folder);
    let log = fs::File::create(folder.join("log")).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    lab.spawn(command).unwrap_or_else(|error| panic!("{error:?}; scripts/setup.sh installs it"))
}

fn configuration(kind: Kind, folder: &Path) -> String {
    let here = folder.display();
    let mut text = String::new();
    let written = match kind {
        Kind::Nsd => write!(
            text,
            "server:\n server-count: {WORKERS}\n reuseport: yes\n ip-address: 10.0.0.2\n port: {PORT}\n username: \"\"\n \
             chroot: \"\"\n zonesdir: {here}\n database: \"\"\n pidfile: {here}/pid\n xfrdfile: {here}/xfrd\n \
             zonelistfile: {here}/list\n xfrdir: {here}\nremote-control:\n control-enable: no\nzone:\n \
             name: example.test\n zonefile: zone\n"
        ),
        Kind::Knot => write!(
            text,
            "server:\n  rundir: {here}\n  listen: 10.0.0.2@{PORT}\n  udp-workers: {WORKERS}\n  tcp-workers: 1\n  \
             background-workers: 1\ndatabase:\n  storage: {here}\nlog:\n  - target: stderr\n    any: info\nzone:\n  \
             - domain: example.test\n    storage: {here}\n    file: zone\n"
        ),
    };
    written.unwrap();
    text
}

/// Runs `work` on a thread pinned to this CPU. On a veth that CPU also receives what it sends.
pub(crate) fn on_cpu(cpu: u32, work: impl FnOnce() + Send) {
    let work = || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
        work();
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}
