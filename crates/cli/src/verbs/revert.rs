//! Reverts an unconfirmed apply: started by `udpath apply --confirm` before its first change.
//!
//! With systemd, it is a transient unit: it outlives the session, its cgroup and its container, and is restarted if it
//! is killed. Without systemd, it is a process in its own session, and ends with its cgroup: a note warns the caller.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;
use udpath_tune::{Journal, Live, confirm};

use super::{machine, undo};
use crate::args::revert::Args;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};

/// Written by the process once it waits.
const READY: &str = "ready\n";
/// Exists while systemd is the init of this machine or container, sd_booted(3).
const BOOTED: &str = "/run/systemd/system";

/// What will revert an apply.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reverter {
    /// A systemd unit.
    Unit(String),
    /// A process, and why it is not a unit.
    Process {
        /// Its pid.
        pid: u32,
        /// The cgroup that it ends with.
        cgroup: String,
        /// Why it is not a unit.
        why: String,
    },
}

impl Reverter {
    /// A note for the user about its limits.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::Unit(_) => None,
            Self::Process { pid, cgroup, why } => Some(format!(
                "pid {pid} reverts it, and does not survive the end of its cgroup ({cgroup}) or container: {why}; \
                 `udpath status` shows whether it is still running"
            )),
        }
    }
}

/// Starts it, and waits until it reports that it is ready.
pub(crate) fn start(folder: &Path, id: u64) -> anyhow::Result<Reverter> {
    let why = match Path::new(BOOTED).is_dir() {
        true => match unit(folder, id) {
            Ok(unit) => return Ok(Reverter::Unit(unit)),
            Err(error) => format!("systemd cannot run it ({error:#})"),
        },
        false => "systemd is not running here".to_owned(),
    };
    let pid = process(folder, id)?;
    Ok(Reverter::Process { pid, cgroup: cgroup(), why })
}

/// Starts a transient unit; systemd considers it started when it notifies (sd_notify(3)).
fn unit(folder: &Path, id: u64) -> anyhow::Result<String> {
    // Uses the path, since systemd has another /proc/self; a newer version at that path can still revert.
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    anyhow::ensure!(program.exists(), "{} no longer exists", program.display());
    let name = format!("udpath-revert-{id}-{}.service", std::process::id());
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--collect", "--no-ask-password", "--service-type=notify"]);
    command.arg(format!("--unit={name}"));
    command.arg(format!("--description=Reverts udpath apply {id} unless it is confirmed"));
    for property in ["Restart=on-abnormal", "RestartSec=1", "TimeoutStartSec=20", "OOMScoreAdjust=-900"] {
        command.args(["-p", property]);
    }
    command.arg(program).arg("revert").arg(id.to_string()).arg("--state").arg(folder).current_dir("/");
    let done = command.stdin(Stdio::null()).output().context("cannot run systemd-run")?;
    let said = String::from_utf8_lossy(&done.stderr);
    anyhow::ensure!(done.status.success(), "{}", said.lines().next().unwrap_or("systemd-run failed"));
    Ok(name)
}

/// Starts a process. Returns its pid.
fn process(folder: &Path, id: u64) -> anyhow::Result<u32> {
    // Not the path: a newer version may have replaced the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg("revert").arg(id.to_string()).arg("--state").arg(folder).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run /proc/self/exe")?;
    let mut said = String::new();
    let out = child.stdout.take().context("its stdout is not a pipe")?;
    out.take(64).read_to_string(&mut said).context("cannot read its output")?;
    if said != READY {
        let mut why = String::new();
        let _ = child.stderr.take().map(|err| err.take(1024).read_to_string(&mut why));
        anyhow::bail!("it exited: {}", why.trim());
    }
    Ok(child.id())
}

/// The cgroup of this process.
fn cgroup() -> String {
    let text = udpath_files::kernel::text("/proc/self/cgroup").unwrap_or_default();
    let of =
        |start: &str| text.lines().find_map(|line| line.split_once(start)).map(|(_, path)| path.to_owned());
    of(":name=systemd:").or_else(|| of("0::")).unwrap_or_else(|| "unknown".to_owned())
}

/// Waits, and reverts unless confirmed.
pub(crate) fn run(args: &Args) -> Done {
    // A session of its own, so that closing a terminal or ^C does not reach it. Fails only for a group leader, which is
    // a unit's process or a shell's job.
    let _ = rustix::process::setsid();
    let journal = Journal::at(&args.journal.state);
    let attending = confirm::attended_by_this(&journal, args.id)?;
    let place = attending.place.clone();
    machine::inside(&place, || {
        ready()?;
        // systemd's stop ends the wait; once settings are being restored, signals wait for the end.
        let watch = || signals::watch(Left::Settings(&args.journal.state)).map(|_stop| ());
        let reverted = confirm::revert(&Live::new(), &journal, args.id, watch)?;
        reverted.map_or(Ok(()), |undone| undo::ended(&undone))
    })
}

/// Notifies systemd, or the pipe, that it waits.
fn ready() -> Result<(), Failure> {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        return Ok(notify(&PathBuf::from(path)).context("cannot notify systemd")?);
    }
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes()).and_then(|()| out.flush()).context("cannot report that it is ready")?;
    // Close the pipes, so that a caller that waits for their end does not block.
    let null = udpath_files::null;
    rustix::stdio::dup2_stdout(null().context("cannot open /dev/null")?).context("cannot close stdout")?;
    rustix::stdio::dup2_stderr(null().context("cannot open /dev/null")?).context("cannot close stderr")?;
    Ok(())
}

/// sd_notify(3): a path, or a name after `@`.
fn notify(path: &Path) -> std::io::Result<()> {
    let text = path.as_os_str().as_encoded_bytes();
    let address = match text.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(|_| ())
}
