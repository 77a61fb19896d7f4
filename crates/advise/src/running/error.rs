//! Why a running server was not boosted.

use udpath_host::namespace::NamespaceError;
use udpath_tune::journal::JournalError;
use udpath_tune::temporary::TemporaryError;
use udpath_tune::undo::{UndoError, Undone};

/// Why a boost of a running server ended without a result. The machine is as found, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// The server, or the process that sends the load, is in a namespace that cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The server cannot be found.
    #[error("cannot find the server")]
    Server(#[from] udpath_host::process::Error),
    /// The process has no port to boost.
    #[error("process {pid} ({name}) has no bound UDP socket")]
    NoPort {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The server has ended since.
    #[error("{0} ended during the boost; every setting is as found")]
    Gone(String),
    /// The load could not be run.
    #[error("cannot measure the server")]
    Load(#[source] udpath_load::Error),
    /// The kernel's counters cannot be read.
    #[error("cannot read the kernel's counters of datagrams and CPU time")]
    Counters(#[source] std::io::Error),
    /// Clients sent nothing.
    #[error("no datagram arrived for {0} within a trial: --live measures what clients send")]
    Quiet(String),
    /// The load got no reply.
    #[error("{0} answered nothing: check that the load suits the server and that its requests reach it")]
    Silent(String),
    /// No trial of the server as found can be trusted.
    #[error("cannot measure the server with this load: {0}")]
    Untrue(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What an earlier run left cannot be restored.
    #[error("cannot restore what an earlier boost left when it was killed: {0}")]
    Recover(String),
    /// A setting could not be put back.
    #[error("cannot restore a setting")]
    Setting(#[from] TemporaryError),
    /// The settings could not be restored.
    #[error("cannot restore the settings; `udpath undo` tries again")]
    Undo(#[from] UndoError),
    /// Not all settings could be restored.
    #[error("{error}; not restored: {left}; `udpath undo` tries again")]
    Left {
        /// Why it ended.
        error: Box<Self>,
        /// What was not restored.
        left: String,
    },
    /// What helps could not be applied at the end.
    #[error("cannot keep what was found: {0}")]
    Keep(String),
    /// Stopped by the caller.
    #[error("interrupted; every setting is as found")]
    Interrupted,
}

impl RunningError {
    /// This error, with what could not be restored after it.
    pub(super) fn after(self, restored: Result<Undone, Self>) -> Self {
        let left = match restored {
            Ok(undone) if undone.left.is_empty() => return self,
            Ok(undone) => undone.left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Err(error) => error_reporter::Report::new(error).to_string(),
        };
        Self::Left { error: Box::new(self), left }
    }
}
