//! Runs of this program as a child: `udpath load`, whose result is one JSON document.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use udpath_files::kernel;
use udpath_load::result::LoadResult;

/// How often a child's threads are looked at while it prepares. Rarer: less of the load is left to sample. More often:
/// CPU time of /proc.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The name that `udpath load` gives its first sending thread.
const SENDER: &str = "load-0";

/// Why a load has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// It was not started, or its output not read.
    #[error("cannot run {command}")]
    Run {
        /// The command line.
        command: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// It failed.
    #[error("{command} failed ({status}): {said}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed to stderr.
        said: String,
    },
    /// It printed something else.
    #[error("{command} printed no result of a load")]
    Result {
        /// The command line.
        command: String,
        /// What is wrong with it.
        #[source]
        cause: serde_json::Error,
    },
    /// A figure that the result lacks.
    #[error("{command} measured no {what}")]
    Lacks {
        /// The command line.
        command: String,
        /// What it lacks.
        what: &'static str,
    },
}

/// A load that runs.
#[derive(Debug)]
pub(crate) struct Load {
    child: Child,
    command: String,
}

impl Load {
    /// Starts `PROGRAM load ARGUMENTS --json`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Self, ProgramError> {
        let words =
            arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        let command = format!("udpath load {words}");
        let child = Command::new(program)
            .arg("load")
            .args(arguments)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|cause| ProgramError::Run { command: command.clone(), cause })?;
        Ok(Self { child, command })
    }

    /// Its process: the sender of a load in a lab.
    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processes that it started and that run: the servers of its lab.
    #[must_use]
    pub(crate) fn children(&self) -> BTreeSet<u32> {
        let pids = kernel::numbers("/proc").unwrap_or_default().into_iter();
        pids.filter(|pid| parent(*pid) == Some(self.pid())).collect()
    }

    /// Waits until it sends. Returns whether it did before it ended or the time was over.
    pub(crate) fn await_sending(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            let folder = format!("/proc/{}/task", self.pid());
            let tasks = kernel::numbers(&folder).unwrap_or_default().into_iter();
            let mut names = tasks.filter_map(|task| kernel::text(format!("{folder}/{task}/comm")).ok());
            if names.any(|name| name.trim_end() == SENDER) {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Ends its window now; its result is that of the time until then.
    pub(crate) fn stop(&self) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // Not reaped yet, so the pid is still the load's. It may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end and reads its result.
    ///
    /// # Errors
    /// It failed, or printed no result.
    pub(crate) fn finish(self) -> Result<LoadResult, ProgramError> {
        let Self { child, command } = self;
        let done = child.wait_with_output();
        let done = match done {
            Ok(done) => done,
            Err(cause) => return Err(ProgramError::Run { command, cause }),
        };
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(ProgramError::Failed { command, status: done.status, said });
        }
        serde_json::from_slice(&done.stdout).map_err(|cause| ProgramError::Result { command, cause })
    }
}

/// The parent of a process, if it runs.
fn parent(pid: u32) -> Option<u32> {
    let stat = kernel::text(format!("/proc/{pid}/stat")).ok()?;
    // The name in an earlier field may contain spaces and brackets; field 4 is the parent (proc_pid_stat(5)).
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_its_starter_as_parent() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        assert_eq!(parent(child.id()), Some(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent(child.id()), None);
    }

    #[test]
    fn a_program_without_a_result_is_an_error() {
        let run = |program: &str| Load::start(Path::new(program), &["echo"]).and_then(Load::finish);
        let error = run("/bin/false").unwrap_err();
        assert!(error.to_string().starts_with("udpath load echo failed (exit status: 1)"), "{error}");
        let error = run("/bin/echo").unwrap_err();
        assert!(matches!(error, ProgramError::Result { .. }), "{error}");
        let error = run("/nonexistent/udpath").unwrap_err();
        assert_eq!(error.to_string(), "cannot run udpath load echo");
    }
}
