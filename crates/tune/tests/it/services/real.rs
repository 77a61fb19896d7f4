//! A server of Debian with a copy of its package's configuration, in a lab's machine.

mod kind;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use udpath_host::process::{SocketSetting, SocketValue, serving};
use udpath_host::source::Folder;
use udpath_lab::Lab;

use crate::lab::lab;

pub(super) use kind::Kind;

/// Long enough for a server to start on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A server that has the same processes and sockets for so long has started.
const SETTLED: Duration = Duration::from_millis(400);

/// A folder in which only root can change anything, as it must be for a configuration that root changes.
const ROOTS: &str = "/run";

/// Numbers the labs: several tests have the same server.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A running server, ended when dropped.
pub(super) struct Real {
    kind: Kind,
    folder: TempDir,
    lab: Lab,
}

/// What a configuration makes of a server, as the kernel and its clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// Processes or threads; for rsyslog, those that read UDP; 0 where the number varies by itself.
    workers: usize,
    /// Sockets bound to the port.
    sockets: usize,
    /// The receive buffer of each of them, as the kernel counts it.
    buffer: u32,
    /// Whether NTP's interleaved mode is offered, which needs a record of clients.
    interleaved: bool,
}

impl Real {
    /// Starts it, and waits until it serves.
    pub(super) fn start(kind: Kind) -> Self {
        Self::start_as(kind, |_, command| command.to_owned())
    }

    /// Starts it in a mount namespace where its configuration is another one: with `server-count: 2`.
    pub(super) fn start_in_a_container(kind: Kind) -> Self {
        Self::start_as(kind, |root, command| {
            let here = root.display();
            assert!(
                Command::new("cp")
                    .arg("-a")
                    .arg(root.join("etc"))
                    .arg(root.join("other"))
                    .status()
                    .unwrap()
                    .success()
            );
            let conf = root.join("other/nsd/nsd.conf");
            let text = fs::read_to_string(&conf).unwrap();
            fs::write(&conf, text.replacen("server:\n", "server:\n  server-count: 2\n", 1)).unwrap();
            let inside = format!("mount --bind {here}/other {here}/etc && exec {command}");
            format!("unshare --mount --propagation private -- sh -c '{inside}'")
        })
    }

    /// Starts `named -t`, whose root is the folder: its paths begin there.
    pub(super) fn start_in_a_folder() -> Self {
        Self::start_as(Kind::Bind, |root, command| {
            let here = root.display().to_string();
            for path in files(&root.join("etc")) {
                let text = fs::read_to_string(&path).unwrap();
                let inside = text.replace(&format!("{here}/"), "/").replace(&here, "/");
                fs::write(&path, inside).unwrap();
            }
            // A resolver's, which the package has elsewhere.
            fs::create_dir_all(root.join("usr/share/dns")).unwrap();
            fs::copy("/usr/share/dns/root.hints", root.join("usr/share/dns/root.hints")).unwrap();
            command.replace(&here, "").replace("named ", &format!("named -t {here} "))
        })
    }

    /// Starts NSD or Unbound, which change their root to the folder once they have read their configuration.
    pub(super) fn start_with_chroot(kind: Kind) -> Self {
        Self::start_as(kind, |root, command| {
            if kind == Kind::Freeradius {
                radius_in(root);
                return command.to_owned();
            }
            let none = "chroot: \"\"\n";
            let own = match kind {
                Kind::Nsd => "etc/nsd/nsd.conf.d/own.conf",
                _ => "etc/unbound/unbound.conf.d/zz-own.conf",
            };
            let path = root.join(own);
            let text = fs::read_to_string(&path).unwrap().replace(none, "");
            let chroot = format!("server:\n  chroot: \"{}\"\n", root.display());
            fs::write(&path, text.replacen("server:\n", &chroot, 1)).unwrap();
            command.to_owned()
        })
    }

    fn start_as(kind: Kind, wrapped: impl Fn(&Path, &str) -> String) -> Self {
        let real = Self {
            kind,
            folder: tempfile::tempdir_in(ROOTS).unwrap(),
            lab: lab(&format!("sv-{}-{}", kind.name(), NEXT.fetch_add(1, Ordering::Relaxed)), 1),
        };
        let root = real.folder.path();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services").join(kind.name());
        // Not -a: what root alone may change must not belong to whoever has cloned the repository.
        assert!(Command::new("cp").arg("-R").arg(fixture.join(".")).arg(root).status().unwrap().success());
        // What the files say about /etc holds in the copy.
        for path in files(&root.join("etc")) {
            let text = fs::read_to_string(&path).unwrap();
            let moved = ["nsd", "unbound", "bind/named", "chrony"].iter().fold(text, |text, name| {
                text.replace(&format!("/etc/{name}"), &format!("{}/etc/{name}", root.display()))
            });
            fs::write(&path, moved).unwrap();
        }
        let command = wrapped(root, &kind.prepare(root));
        // Modes that the undo must bring back.
        for path in files(&root.join("etc")) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
        }
        let script = format!(
            "cd {here}\n\
             pid=$(cat pid 2>/dev/null) && kill $pid\n\
             while [ -n \"$pid\" ] && [ -e /proc/$pid/exe ]; do sleep 0.02; done\n\
             while [ -n \"$pid\" ] && pgrep -g $pid -r R,S,D > gone; do sleep 0.02; done\n\
             if [ -s refuse ] && find etc -name \"$(cat refuse)\" | grep -q .; then\n\
             echo not with this configuration >&2; exit 1; fi\n\
             setsid {command} >> log 2>&1 < /dev/null &\n\
             echo $! > pid\n",
            here = root.display()
        );
        fs::write(root.join("run"), script).unwrap();
        real.inside(|| {
            let started = Command::new("/bin/sh").arg(root.join("run")).status().unwrap();
            assert!(started.success());
            let until = Instant::now() + TIMEOUT;
            while serving(&Folder::live(), kind.port()).is_err() {
                let log = fs::read_to_string(root.join("log")).unwrap_or_default();
                assert!(Instant::now() < until, "{kind:?} does not start: {log}");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        real
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Runs `work` in the server's network namespace.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.lab.machine("here").unwrap().run(work).unwrap()
    }

    pub(super) fn port(&self) -> u16 {
        self.kind.port()
    }

    /// The command that ends the server and starts it again.
    pub(super) fn restart(&self) -> String {
        format!("/bin/sh {}", self.folder.path().join("run").display())
    }

    /// Its first process.
    pub(super) fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.folder.path().join("pid")).unwrap();
        text.trim().parse().unwrap()
    }

    /// From now on it does not start while its configuration has a file of this name.
    pub(super) fn refuse_with(&self, name: &str) {
        fs::write(self.folder.path().join("refuse"), name).unwrap();
    }

    pub(super) fn accept(&self) {
        fs::remove_file(self.folder.path().join("refuse")).unwrap();
    }

    /// Every file of its configuration: mode, owner and bytes.
    pub(super) fn tree(&self) -> BTreeMap<PathBuf, (u32, u32, u32, Vec<u8>)> {
        let each = files(&self.folder.path().join("etc")).into_iter().map(|path| {
            let about = fs::metadata(&path).unwrap();
            let text = fs::read(&path).unwrap();
            (path, (about.mode(), about.uid(), about.gid(), text))
        });
        each.collect()
    }

    /// What the kernel and clients see of it, once it has started all that it starts.
    pub(super) fn shape(&self) -> Shape {
        let until = Instant::now() + TIMEOUT;
        let mut shape = self.look();
        loop {
            std::thread::sleep(SETTLED);
            let again = self.look();
            if again == shape {
                return shape;
            }
            assert!(Instant::now() < until, "{:?} does not settle: {again:?}", self.kind);
            shape = again;
        }
    }

    fn look(&self) -> Shape {
        let server = serving(&Folder::live(), self.port()).unwrap().remove(0);
        let workers = match self.kind {
            Kind::Nsd => server.processes.len(),
            Kind::Bind | Kind::Freeradius | Kind::Chrony => 0,
            Kind::Rsyslog => server.threads.iter().filter(|thread| thread.name.contains("imudp")).count(),
            _ => server.threads.len(),
        };
        let buffers: Vec<u32> = server
            .sockets
            .iter()
            .filter_map(|socket| match socket.value(SocketSetting::ReceiveBuffer) {
                Some(SocketValue::ReceiveBuffer(bytes)) => Some(bytes),
                _ => None,
            })
            .collect();
        assert!(buffers.iter().all(|bytes| *bytes == buffers[0]), "{buffers:?}");
        let interleaved = self.kind == Kind::Chrony && interleaved();
        Shape { workers, sockets: server.sockets.len(), buffer: buffers[0], interleaved }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let Ok(pid) = fs::read_to_string(self.folder.path().join("pid")) else { return };
        let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let until = Instant::now() + Duration::from_secs(5);
            while fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).is_ok()
                && Instant::now() < until
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            if Instant::now() >= until {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// The regular files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let about = entry.file_type().unwrap();
        if about.is_dir() {
            found.extend(files(&entry.path()));
        } else if about.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Whether the server answers a second request in interleaved mode (RFC 9769): with the receive timestamp of the
/// request, not its transmit timestamp, as the origin.
fn interleaved() -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect("127.0.0.1:123").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let ask = |origin: &[u8], receive: &[u8], transmit: &[u8]| {
        let mut request = [0; 48];
        request[0] = 0x23;
        request[24..32].copy_from_slice(origin);
        request[32..40].copy_from_slice(receive);
        request[40..48].copy_from_slice(transmit);
        socket.send(&request).unwrap();
        let mut reply = [0; 48];
        assert_eq!(socket.recv(&mut reply).unwrap(), 48);
        reply
    };
    let first = ask(&[0; 8], &[0; 8], &[1; 8]);
    assert_eq!(first[24..32], [1; 8]);
    let second = ask(&first[32..40], &[2; 8], &[3; 8]);
    second[24..32] == [2; 8]
}

/// FreeRADIUS in this folder: it opens all but its configuration in there, its modules and /dev/null among it.
fn radius_in(root: &Path) {
    let (here, libraries) = (root.display(), "/var/cache/udpath/freeradius/usr/lib/freeradius");
    fs::create_dir_all(root.join("usr/lib")).unwrap();
    assert!(Command::new("cp").args(["-R", libraries]).arg(root.join("usr/lib")).status().unwrap().success());
    fs::create_dir(root.join("dev")).unwrap();
    fs::write(root.join("dev/null"), "").unwrap();
    let path = root.join("etc/freeradius/3.0/radiusd.conf");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace(libraries, "/usr/lib/freeradius").replace(&format!("{here}/"), "/");
    let text = text.replace(&format!("= {here}\n"), "= /\n");
    let chroot = format!("security {{\n\tchroot = \"{here}\"\n\tuser = root\n\tgroup = root\n");
    fs::write(&path, text.replacen("security {\n", &chroot, 1)).unwrap();
}
