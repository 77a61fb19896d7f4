//! Why instances could not be started, or one of them does not serve.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use udpath_tune::apply::ApplyError;
use udpath_tune::journal::JournalError;
use udpath_tune::plan::PlanError;
use udpath_tune::services::ServiceError;
use udpath_tune::undo::UndoError;

/// Each names the operation, the object, the cause, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid name.
    #[error("invalid name {0:?}: expected 1 to 64 letters, digits, and - _ . @, the first a letter or digit")]
    Name(String),
    /// A number of instances out of range.
    #[error(
        "invalid number of instances {count}: expected 1 to {most}, the CPUs that they may use ({cpus}), one for each"
    )]
    Count {
        /// What was asked for.
        count: usize,
        /// The largest.
        most: usize,
        /// The CPUs.
        cpus: String,
    },
    /// The server needs each flow on one instance.
    #[error("{server} cannot be chosen by CPU: {why}; use --choose hash")]
    FlowState {
        /// The server.
        server: &'static str,
        /// Why.
        why: &'static str,
    },
    /// The name is in use.
    #[error(
        "{name} is already running, with supervisor {pid}: `udpath multiply {name} -n N` changes its number of instances"
    )]
    Running {
        /// The name.
        name: String,
        /// Its supervisor.
        pid: String,
    },
    /// No supervisor has the name.
    #[error("nothing runs under the name {name:?}; {running}")]
    NotRunning {
        /// The name.
        name: String,
        /// What does.
        running: String,
    },
    /// No permission.
    #[error("cannot make a cgroup and load BPF programs: run as root")]
    NotRoot,
    /// This machine has no cgroup v2, or it is not visible.
    #[error("{0}")]
    NoCgroup(String),
    /// A unit that cannot be multiplied, or systemd.
    #[error("{0}")]
    Unit(String),
    /// A file, a folder, or a process.
    #[error("cannot {operation}")]
    System {
        /// What was tried.
        operation: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// An instance does not serve.
    #[error("instance {number} {why}")]
    Instance {
        /// Its number.
        number: usize,
        /// What it does instead.
        why: String,
    },
    /// Another process has a socket at the address.
    #[error(
        "{program} (pid {pid}) also receives at UDP {address}; stop it, or run the instances at another address"
    )]
    Foreign {
        /// The address.
        address: SocketAddr,
        /// The process.
        pid: u32,
        /// Its program.
        program: String,
    },
    /// The program of the selection.
    #[error(transparent)]
    Selection(#[from] udpath_bpf::Error),
    /// Sockets of an instance cannot be seen or taken.
    #[error(transparent)]
    Process(#[from] udpath_host::process::Error),
    /// A known server that cannot be multiplied.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The policy cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The policy cannot be set.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The policy cannot be removed.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The supervisor refused a request.
    #[error("{0}")]
    Refused(String),
    /// What is below the folder is not ours.
    #[error("{} is not a record of udpath multiply ({why}); remove its folder if nothing runs there", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    pub(crate) fn system(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |cause| Self::System { operation, cause }
    }

    /// Whether the arguments are wrong, not the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Count { .. } | Self::FlowState { .. })
    }
}
