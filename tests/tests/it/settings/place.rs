//! A machine of a lab, and udpath running in it.

use std::fs;
use std::process::{Command, Stdio};

use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_rig::{Said, program};

/// A request that a veth supports.
pub(crate) const RPS: &str = "eth0:rps/rx-0=0-1";

fn lab(name: &str, queues: u32) -> Lab {
    let builder = LabBuilder::new(name).machine("here").machine("there");
    builder.link("here", "there", &LinkSpec::with_queues(queues)).up().unwrap()
}

/// A lab, a journal of its own, and the program in machine `here`.
pub(crate) struct Place {
    pub(crate) lab: Lab,
    pub(crate) state: tempfile::TempDir,
    /// For other files.
    pub(crate) files: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_queues(name, 4)
    }

    pub(crate) fn with_queues(name: &str, queues: u32) -> Self {
        let [state, files] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Self { lab: lab(name, queues), state, files }
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.lab.machine("here").unwrap().command(program);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let state = self.state.path().to_str().unwrap();
        let state: &[&str] = if arguments[0] == "plan" { &[] } else { &["--state", state] };
        Said::from(self.command(program()).args(arguments).args(state).output().unwrap())
    }

    /// Runs shell commands; `$U` is the program and `$S` the journal's directory.
    pub(crate) fn shell(&self, lines: &str) -> Said {
        let mut command = self.command("sh");
        command.args(["-e", "-c", lines]).env("U", program()).env("S", self.state.path());
        Said::from(command.output().unwrap())
    }

    /// `rps_cpus` of queue 0, as the kernel shows it.
    pub(crate) fn rps(&self) -> String {
        let read = || fs::read_to_string("/sys/class/net/eth0/queues/rx-0/rps_cpus");
        self.lab.machine("here").unwrap().run(read).unwrap().unwrap().trim().to_owned()
    }
}
