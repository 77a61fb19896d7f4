//! A server that waits for a timer of its interface, for searches that find out why.
//!
//! ```text
//! client ══ a link of two queues ══ server: polls once in TIMER, so that a closed loop waits for the timer
//! ```
//! Without the timer the loop runs many times faster.

use std::fs;
use std::path::Path;

use udpath_lab::Lab;

use crate::{Ended, Run, Running, TIMEOUT, client_and_server, program};

/// Time between two polls of the server's interface, nanoseconds.
const TIMER: &str = "3000000";
/// The files that the cause is arranged with.
const FILES: [(&str, &str); 2] = [("napi_defer_hard_irqs", "4"), ("gro_flush_timeout", TIMER)];

/// A lab with the cause, and its server.
#[derive(Debug)]
pub struct DeferredServer {
    /// Machines `client` and `server`.
    pub lab: Lab,
    /// `udpath serve echo` at all addresses.
    pub server: Running,
    /// Where the journal is.
    pub state: tempfile::TempDir,
}

impl DeferredServer {
    /// The port that it serves.
    pub const PORT: u16 = 7000;

    /// Makes the lab, arranges the cause and starts the server.
    ///
    /// # Panics
    /// One of these fails.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let lab = client_and_server(name, 2);
        // NAPI, whose timer is the cause.
        lab.machine("server").unwrap().towards("client").unwrap().keep_napi().unwrap();
        lab.machine("server").unwrap().run(|| FILES.map(|(file, value)| write(file, value))).unwrap();
        let mut serve = lab.machine("server").unwrap().command(program());
        serve.args(["serve", "echo", "--io", "shared", "--bind", &format!("0.0.0.0:{}", Self::PORT)]);
        let run = Run::of(serve, "serve echo").within(TIMEOUT * 3);
        let server = run.start_with(|command| lab.spawn(command));
        let mut bed = Self { lab, server, state: tempfile::tempdir().unwrap() };
        bed.server.says("ready io=shared");
        bed
    }

    /// `udpath boost` from outside of the lab's machines, with `more` options before the load.
    ///
    /// # Panics
    /// Never: the machines were made.
    #[must_use]
    pub fn boost(&self, more: &[&str]) -> Run {
        let address = self.lab.address_of("server", "client").unwrap().ipv4;
        let (target, pid) = (format!("{address}:{}", Self::PORT), self.server.pid().to_string());
        let from = self.lab.machine("client").unwrap().namespace();
        let state = self.state.path().to_str().unwrap();
        let mut command = std::process::Command::new(program());
        command.args(["boost", "--pid", &pid, "--from", from, "--state", state, "--json", "--no-profile"]);
        command.args(["--duration", "100ms", "--bound", "10", "--blocks", "6"]).args(more);
        command.args(["--load", "echo", &target, "--flows", "4", "--inflight", "1"]);
        Run::of(command, "boost").within(TIMEOUT * 4)
    }

    /// What the settings of the cause are now.
    ///
    /// # Panics
    /// They cannot be read.
    #[must_use]
    pub fn settings(&self) -> Vec<String> {
        self.lab.machine("server").unwrap().run(|| FILES.map(|(file, _)| read(file)).to_vec()).unwrap()
    }

    /// What they are arranged as.
    #[must_use]
    pub fn arranged() -> Vec<String> {
        FILES.map(|(_, value)| value.to_owned()).to_vec()
    }

    /// `udpath VERB` in the server's namespace, with the bed's journal.
    ///
    /// # Panics
    /// It does not end.
    #[must_use]
    pub fn inside(&self, verb: &str) -> Ended {
        let state = self.state.path().to_str().unwrap();
        let namespace = self.lab.machine("server").unwrap().namespace();
        Run::new(&[verb, "--netns", namespace, "--state", state]).finish()
    }
}

fn path(file: &str) -> std::path::PathBuf {
    Path::new("/sys/class/net/eth0").join(file)
}

fn write(file: &str, value: &str) {
    fs::write(path(file), value).unwrap();
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap().trim().to_owned()
}
