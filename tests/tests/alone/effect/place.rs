//! A server as packaged by Debian in one machine of a lab, its clients in another, and udpath in either.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use udpath_host::Snapshot;
use udpath_host::process::{Server, Socket, find, waiting};
use udpath_lab::Lab;
use udpath_rig::{Said, TIMEOUT, awaited, client_and_server, program};

use super::settled::settled;

/// Where the server listens, in machine `server`.
pub(crate) const PORT: u16 = 5300;
/// Sockets and workers of each server, queues of each end of the link, and CPUs in use.
pub(crate) const WORKERS: usize = 2;
/// Queries of one dnsperf run, and its number of clients.
pub(crate) const QUERIES: u32 = 2000;
pub(crate) const CLIENTS: u32 = 20;
/// A query for the SOA of example.test: one question, no recursion.
const QUERY: &[u8] =
    b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x04test\x00\x00\x06\x00\x01";
const ZONE: &str = "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 10.0.0.2\n";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Nsd,
    Knot,
}

/// The environment of one test.
pub(crate) struct Place {
    pub(crate) lab: Lab,
    pub(crate) kind: Kind,
    folder: tempfile::TempDir,
    child: Child,
    /// Softnet counters cover the whole machine: one test at a time.
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Place {
    pub(crate) fn new(name: &str, kind: Kind) -> Self {
        let alone = udpath_rig::alone();
        let lab = client_and_server(name, 2);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zone"), ZONE).unwrap();
        fs::write(folder.path().join("conf"), configuration(kind, folder.path())).unwrap();
        fs::write(folder.path().join("queries"), "example.test SOA\n".repeat(QUERIES as usize)).unwrap();
        let child = spawn(&lab, kind, folder.path());
        let place = Self { lab, kind, folder, child, _alone: alone };
        place.await_server();
        place
    }

    fn await_server(&self) {
        awaited("the server's answers", TIMEOUT, || {
            let client = self.clients(1).pop()?;
            client.send(QUERY).and_then(|_| client.recv(&mut [0; 512])).ok()
        });
        awaited("the server's workers", TIMEOUT, || {
            let server = self.server();
            (server.sockets.len() == WORKERS && waiting(&server).is_ok()).then_some(())
        });
    }

    /// The server's process as started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn server(&self) -> Server {
        find(self.pid()).unwrap()
    }

    /// Its sockets, in the order of their group.
    pub(crate) fn sockets(&self) -> Vec<Socket> {
        self.server().sockets
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.address_of("server", "client").unwrap().ipv4.into(), PORT)
    }

    pub(crate) fn command(&self, machine: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.lab.machine(machine).unwrap().command(program);
        command.stdin(Stdio::null());
        command
    }

    /// A udpath command in a machine; verbs that have a journal use the test's own.
    pub(crate) fn udpath(&self, machine: &str, arguments: &[&str]) -> Said {
        let state = self.folder.path().join("journal").join(machine);
        let state: &[&str] = match arguments[0] {
            "apply" | "undo" | "status" | "predict" => &["--state", state.to_str().unwrap()],
            _ => &[],
        };
        Said::from(self.command(machine, program()).args(arguments).args(state).output().unwrap())
    }

    pub(crate) fn apply(&self, machine: &str, requests: &[&str]) -> Said {
        let mut arguments = vec!["apply"];
        requests.iter().for_each(|request| arguments.extend(["--set", request]));
        self.udpath(machine, &arguments)
    }

    pub(crate) fn snapshot(&self, machine: &str) -> Snapshot {
        serde_json::from_str(&self.udpath(machine, &["show", "--snapshot"]).fine().out).unwrap()
    }

    /// All settings of a machine and of the server, as bytes.
    pub(crate) fn settled(&self, machine: &str) -> String {
        let mut text = settled(&self.snapshot(machine));
        // Options that sock_diag does not report.
        for socket in self.sockets() {
            let _ = writeln!(text, "{} {:?}", socket.id.inode, socket.values);
        }
        text
    }

    /// Runs `effect` before the requests are applied in a machine, while they are in effect, and after they are
    /// undone. Undone settings must be byte for byte as before; applied ones must read back.
    pub(crate) fn proven<T>(
        &self,
        machine: &str,
        requests: &[&str],
        mut effect: impl FnMut(&Self) -> T,
    ) -> [T; 3] {
        let before = (self.settled(machine), effect(self));
        let applied = self.apply(machine, requests);
        applied.fine();
        for request in
            requests.iter().filter(|request| !request.contains('*') && !request.starts_with("port:"))
        {
            assert!(applied.out.contains(request.split('=').next().unwrap()), "{request}: {}", applied.out);
        }
        // Read back by another run, which must find every setting in effect.
        self.udpath(machine, &["status"]).fine();
        assert_ne!(self.settled(machine), before.0, "{requests:?}");
        let during = effect(self);
        self.udpath(machine, &["undo"]).fine();
        assert_eq!(self.settled(machine), before.0, "{requests:?}");
        [before.1, during, effect(self)]
    }

    /// Runs [`QUERIES`] of dnsperf, all answered, sent and received on one CPU: on a veth the server receives them
    /// there, too.
    pub(crate) fn dnsperf(&self, cpu: u32) {
        let address = self.address();
        let mut command = self.command("client", "taskset");
        command.args(["-c", &cpu.to_string(), "dnsperf", "-n", "1", "-q", "40", "-t", "5"]);
        command.args(["-s", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-c", &CLIENTS.to_string(), "-d"]).arg(self.folder.path().join("queries"));
        let said = Said::from(command.output().unwrap());
        let all = format!("Queries completed:    {QUERIES} (100.00%)");
        assert!(said.out.contains(&all), "{}{}", said.out, said.err);
    }

    /// Opens `count` sockets in machine `client`, each with its own port, connected to the server.
    pub(crate) fn clients(&self, count: u32) -> Vec<UdpSocket> {
        let open = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(self.address()).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket
        };
        self.lab.machine("client").unwrap().run(|| (0..count).map(|_| open()).collect()).unwrap()
    }

    /// Sends `rounds` queries from each client, one after another, on one CPU: sent, answered and read there.
    pub(crate) fn asked(&self, cpu: u32, clients: &[UdpSocket], rounds: u32) {
        on_cpu(cpu, || {
            for client in (0..rounds).flat_map(|_| clients) {
                client.send(QUERY).unwrap();
                assert!(client.recv(&mut [0; 512]).unwrap() > QUERY.len());
            }
        });
    }

    /// Sends `rounds` queries from each of `clients` clients on one CPU while the server is stopped, and returns what
    /// is queued at each socket and what was dropped. The server answers them afterwards.
    pub(crate) fn burst(&self, cpu: u32, clients: u32, rounds: u32) -> Burst {
        let clients = self.clients(clients);
        awaited("earlier queries to be read", TIMEOUT, || {
            self.sockets().iter().all(|socket| socket.queued == 0).then_some(())
        });
        let before = self.sockets();
        self.stop();
        on_cpu(cpu, || {
            (0..rounds).flat_map(|_| &clients).for_each(|client| assert!(client.send(QUERY).is_ok()));
        });
        let after = self.sockets();
        self.signal(Signal::CONT);
        Burst {
            queued: after.iter().map(|socket| socket.queued).collect(),
            dropped: after.iter().zip(&before).map(|(now, then)| now.drops.wrapping_sub(then.drops)).sum(),
        }
    }

    fn signal(&self, signal: Signal) {
        for pid in self.server().processes {
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
        }
    }

    /// Stops the server: when this returns, none of its threads runs.
    fn stop(&self) {
        self.signal(Signal::STOP);
        awaited("the server to stop", TIMEOUT, || {
            let stopped = |pid: u32, tid: u32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
                stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
            };
            self.server().threads.iter().all(|thread| stopped(thread.id.pid, thread.id.tid)).then_some(())
        });
    }

    /// Makes nsd reload a changed zone: with new workers, and the same sockets.
    pub(crate) fn reload(&self) {
        fs::write(self.folder.path().join("zone"), ZONE.replace("host 1", "host 2")).unwrap();
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Ends the server, and restarts it with the same configuration.
    pub(crate) fn restart(&mut self) {
        self.end();
        self.child = spawn(&self.lab, self.kind, self.folder.path());
        self.await_server();
    }

    /// Ends the server, and waits for its workers, which may outlive it briefly.
    pub(crate) fn end(&mut self) {
        let all = self.server().processes;
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
        let ended = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" Z"))
        };
        awaited("the server's workers to end", TIMEOUT, || all.iter().all(ended).then_some(()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Processes it started end with the lab.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The outcome of unread datagrams.
#[derive(Debug)]
pub(crate) struct Burst {
    /// Bytes queued at each socket, by the kernel's accounting.
    pub(crate) queued: Vec<u32>,
    /// Datagrams dropped, over all sockets.
    pub(crate) dropped: u32,
}

fn spawn(lab: &Lab, kind: Kind, folder: &Path) -> Child {
    let (program, foreground) = match kind {
        Kind::Nsd => ("nsd", Some("-d")),
        Kind::Knot => ("knotd", None),
    };
    let mut command = lab.machine("server").unwrap().command(program);
    command.args(foreground).arg("-c").arg(folder.join("conf")).current_dir(folder);
    let log = fs::File::create(folder.join("log")).unwrap();
    // A process group of its own: a terminal's ^C must reach only the test.
    command.stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
    lab.spawn(command).unwrap_or_else(|error| panic!("{error:?}; scripts/setup.sh installs it"))
}

fn configuration(kind: Kind, folder: &Path) -> String {
    let here = folder.display();
    match kind {
        Kind::Nsd => format!(
            "server:\n server-count: {WORKERS}\n reuseport: yes\n ip-address: 10.0.0.2\n port: {PORT}\n rrl-ratelimit: 0\n username: \"\"\n \
             chroot: \"\"\n zonesdir: {here}\n database: \"\"\n pidfile: {here}/pid\n xfrdfile: {here}/xfrd\n \
             zonelistfile: {here}/list\n xfrdir: {here}\nremote-control:\n control-enable: no\nzone:\n \
             name: example.test\n zonefile: zone\n"
        ),
        Kind::Knot => format!(
            "server:\n  rundir: {here}\n  listen: 10.0.0.2@{PORT}\n  udp-workers: {WORKERS}\n  tcp-workers: 1\n  \
             background-workers: 1\ndatabase:\n  storage: {here}\nlog:\n  - target: stderr\n    any: info\nzone:\n  \
             - domain: example.test\n    storage: {here}\n    file: zone\n"
        ),
    }
}

/// Runs `work` on a thread pinned to this CPU.
fn on_cpu(cpu: u32, work: impl FnOnce() + Send) {
    let work = || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
        work();
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}
