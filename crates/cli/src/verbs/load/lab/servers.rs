//! The servers of a lab's load: `udpath serve` with the options that the load needs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::{Lab, Machine};
use udpath_load::Engine;
use udpath_load::plan::Transport;

use crate::args::load::Args;
use crate::args::load::task::Task;
use crate::exit::Failure;
use crate::verbs::server_options::ServerOptions;

/// The servers' port; the machines are empty, so any port is free.
pub(super) const PORT: u16 = 7007;
/// How long a server may take to get ready, and to stop.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A `udpath serve` on a machine; stopped when dropped.
pub(super) struct Server(Child);

impl Server {
    /// The id of its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn start(
        lab: &Lab,
        machine: &Machine,
        args: &Args,
        task: &Task,
        options: &ServerOptions,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = machine.command(program);
        command.args(["serve", args.protocol.name, "--json", "--bind", &format!("0.0.0.0:{PORT}")]);
        if task.plan.transport == Transport::Tcp {
            command.arg("--tcp");
        }
        if task.engine == Engine::Kernel {
            // The driver hands frames to the server's end, which needs NAPI for them; an AF_XDP server would take the
            // end for itself.
            command.args(["--io", "reuseport"]);
        }
        if let Some(bytes) = task.plan.sockets.receive_buffer {
            command.args(["--rcvbuf", &bytes.to_string()]);
        }
        command.args(options.arguments());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = lab.spawn(command).context("cannot start a server in the lab")?;
        let stderr = child.stderr.take();
        let server = Self(child);
        let stderr = stderr.context("the server's stderr is not a pipe")?;
        let (said, heard) = mpsc::channel();
        // Keeps reading after `ready`, so that the server never blocks on a full pipe; ends with the server.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut words = Vec::new();
        while let Ok(line) = heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.starts_with("ready") {
                return Ok(server);
            }
            words.push(line);
        }
        let words = if words.is_empty() { "it printed nothing".into() } else { words.join(" ") };
        Err(anyhow!("the server on {} did not become ready: {words}", machine.name()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // Not reaped yet, so the pid still belongs to the server.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
