//! Debian's servers in a lab, and their loads.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::Lab;
use udpath_rig::DaemonProgram;

/// Names of the zone, all of which the other load asks for. Fewer: NSD answers at most 200 queries a second for each,
/// as it is by default, and that limit is what a trial measures.
const NAMES: usize = 5_000;
/// How many of them the usual load asks for, whose trials are shorter.
const USUAL: usize = 1_000;
/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);

/// The load's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// 64 flows, two requests in flight each.
    Usual,
    /// 16 flows, four requests in flight each, and all names.
    Other,
}

/// A running server, which a script restarts; ended when dropped.
pub(super) struct Daemon {
    kind: DaemonProgram,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts it on the machine `server`, and waits until it has its socket.
    pub(super) fn start(lab: &Lab, kind: DaemonProgram) -> Result<Self> {
        // Only root can change anything there, as it must be for a configuration that root changes.
        let daemon = Self { kind, folder: tempfile::tempdir_in("/run").context("cannot create a folder")? };
        let folder = daemon.folder.path().display().to_string();
        let put = |name: &str, text: &str| {
            fs::write(daemon.path(name), text).with_context(|| format!("cannot write {name}"))
        };
        let command = kind.prepare(daemon.folder.path(), NAMES).context("cannot write a configuration")?;
        let mut queries = String::new();
        for number in 0..NAMES {
            writeln!(queries, "h{number}.example.test A")?;
        }
        put("all-queries", &queries)?;
        let usual: String = queries.lines().take(USUAL).flat_map(|line| [line, "\n"]).collect();
        put("queries", &usual)?;
        put("restart", &script(&folder, &command.join(" ")))?;
        fs::set_permissions(daemon.path("restart"), fs::Permissions::from_mode(0o755))?;
        daemon.restart(lab)?;
        Ok(daemon)
    }

    /// Ends it if it runs, starts it on the machine `server`, and waits until it has its socket.
    pub(super) fn restart(&self, lab: &Lab) -> Result<()> {
        let (server, kind) = (lab.machine("server")?, self.kind);
        let started = server.command(self.path("restart")).status()?;
        ensure!(started.success(), "cannot start {}; scripts/setup.sh bench installs it", kind.name());
        let bound = |text: String| text.lines().any(|line| line.contains(&format!(":{:04X} ", kind.port())));
        let until = Instant::now() + START;
        while !server.run(|| fs::read_to_string("/proc/thread-self/net/udp").is_ok_and(bound))? {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            ensure!(Instant::now() < until, "{} does not start: {log}", kind.name());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Its UDP port.
    pub(super) const fn port(&self) -> u16 {
        self.kind.port()
    }

    /// A file of its folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The load, as for `udpath load`.
    pub(super) fn load(&self, lab: &Lab, shape: Shape) -> Result<Vec<String>> {
        let target = format!("{}:{}", lab.address_of("server", "client")?.ipv4, self.kind.port());
        let file = |name: &str| self.path(name).display().to_string();
        let words = match self.kind {
            DaemonProgram::Freeradius => {
                let (secret, users) = (file("secret"), file("users"));
                vec!["radius".into(), target, "--secret-file".into(), secret, "--users".into(), users]
            }
            DaemonProgram::Chronyd => vec!["ntp".into(), target],
            _ => {
                let names = if shape == Shape::Usual { "queries" } else { "all-queries" };
                vec!["dns".into(), target, "--queries".into(), file(names)]
            }
        };
        let engine = match self.kind {
            // Its requests are authenticated one by one, which the driver cannot do.
            DaemonProgram::Freeradius => "xdp",
            // NAPI by GRO does not keep up with frames that the driver sends.
            DaemonProgram::Knotd => "xdp-rings",
            _ => "kernel",
        };
        let [flows, inflight] = match shape {
            Shape::Usual => ["64", "2"],
            Shape::Other => ["16", "4"],
        };
        let more = ["--flows", flows, "--inflight", inflight, "--timeout", "200ms", "--engine", engine];
        Ok(words.into_iter().chain(more.map(String::from)).collect())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.path("pid")).ok();
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
            std::thread::sleep(Duration::from_millis(200));
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Ends the server, waits until it is gone, and starts it in the background.
fn script(folder: &str, command: &str) -> String {
    format!(
        "#!/bin/sh\n\
         if old=$(cat {folder}/pid 2>/dev/null); then\n\
         \tkill $old\n\
         \tfor i in $(seq 250); do readlink /proc/$old/exe >/dev/null 2>&1 || break; sleep 0.02; done\n\
         \tkill -9 $old 2>/dev/null\n\
         fi\n\
         setsid $UDPATH_RUN {command} > {folder}/log 2>&1 < /dev/null &\n\
         echo $! > {folder}/pid\n"
    )
}
