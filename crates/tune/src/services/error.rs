//! Why a server's configuration is not read, or not changed.

use std::io;

use thiserror::Error;
use udpath_host::process;

/// Why a server's configuration is not read, or not changed.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// No such process, or nothing of it is visible.
    #[error("cannot read process {pid}")]
    Process {
        /// The process.
        pid: u32,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The program has no profile.
    #[error("process {pid} runs {program}, whose configuration udpath does not know; it knows {}", known.join(", "))]
    Unknown {
        /// The process.
        pid: u32,
        /// Its program.
        program: String,
        /// The servers that have one.
        known: Vec<&'static str>,
    },
    /// The main configuration file is named by a relative path.
    #[error(
        "{server} (process {pid}) reads {path} in the folder that it was started in, and nothing says which that was: \
         start it with the whole path"
    )]
    Relative {
        /// The server.
        server: String,
        /// The process.
        pid: u32,
        /// As its command line has it.
        path: String,
    },
    /// The main configuration file.
    #[error("cannot read the configuration {path} as user {user}, which the server runs as")]
    Unreadable {
        /// The file.
        path: String,
        /// Whose rights were used.
        user: u32,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// It goes by something else than a file.
    #[error("{server} runs by {instead}")]
    NoFile {
        /// The server.
        server: String,
        /// By what, and how that is changed.
        instead: &'static str,
    },
    /// An unknown knob.
    #[error("{server} has no knob {knob:?} that can be set; it has {}", known.join(", "))]
    NoKnob {
        /// The server.
        server: String,
        /// What was asked for.
        knob: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A value that the knob cannot have.
    #[error("{knob} cannot be {value:?}; expected {wanted}")]
    Value {
        /// The knob.
        knob: String,
        /// The value.
        value: String,
        /// What is valid.
        wanted: &'static str,
    },
    /// The files are not where the knob can be set.
    #[error("{knob} cannot be set: {why}")]
    Unsettable {
        /// The knob.
        knob: String,
        /// Why.
        why: String,
    },
    /// Two values for a knob.
    #[error("one knob cannot have two values: {one} and {other}")]
    Twice {
        /// The first.
        one: String,
        /// The second.
        other: String,
    },
    /// It cannot be changed from here.
    #[error("the configuration of {server} (process {pid}) can be read but not changed: {why}")]
    Fixed {
        /// The server.
        server: String,
        /// The process.
        pid: u32,
        /// Why, and what would help.
        why: String,
    },
    /// The server's own checker refuses the new configuration.
    #[error(
        "{checker}, run as user {user} without capabilities, refuses the new configuration; nothing was changed: {said}"
    )]
    Refused {
        /// The checker.
        checker: String,
        /// The server's user.
        user: u32,
        /// Its words.
        said: String,
    },
    /// The server does not answer before anything was changed.
    #[error("{server} does not answer now ({why}), so a restart could not be judged; nothing was changed")]
    Silent {
        /// The server.
        server: String,
        /// What was tried.
        why: String,
    },
    /// A request that is not one.
    #[error(
        "{0:?} is not a knob of a server: write it like service:53:server-count=2, or service:pid/812:server-count=2"
    )]
    Request(String),
    /// The port has no server.
    #[error(transparent)]
    Unserved(#[from] process::Error),
    /// Several instances of it cannot share a port as they are.
    #[error("{server} cannot be multiplied{where_}: {why}")]
    Single {
        /// The server.
        server: String,
        /// The line in the way: ` (FILE, line N)`; else empty.
        where_: String,
        /// Why, and what to do instead.
        why: String,
    },
    /// The checker, or a file for it.
    #[error("cannot {operation}")]
    System {
        /// What was tried.
        operation: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// It needs the caller's consent.
    #[error("{what}; allow it with --allow {consent}")]
    Consent {
        /// What would happen.
        what: String,
        /// The consent.
        consent: &'static str,
    },
}
