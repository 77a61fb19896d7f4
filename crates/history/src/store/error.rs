//! Why a history cannot be read or written: each with what would be right.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error(
        "there is no history in {} (keep results with --record of udpath load and boost, or with udpath history add)",
        path.display()
    )]
    Nothing {
        /// The file that is not there.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} is not a file of a history: {why}; name one with --store", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What is there.
        why: String,
    },
    /// Its folder cannot be created.
    #[error("cannot create the folder {} of the history (name another file with --store)", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// It is another program's database.
    #[error("{} is a database of another program: name another file with --store", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error(
        "{} is a history of version {version}, and this udpath knows version {known}: use the udpath that wrote it, or \
         another file with --store",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The version of this program.
        known: i64,
    },
    /// It is no database, or not whole.
    #[error(
        "the history {} is damaged (restore it from a copy, or move it away: a new one is then begun)",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The library's error.
        #[source]
        cause: rusqlite::Error,
    },
    /// Its end is missing.
    #[error(
        "the history {} is damaged: it has {found} of {expected} bytes (restore it from a copy, or move it away: a new one \
         is then begun)",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes by its header.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// One of its runs cannot be read.
    #[error("run {id} of the history {} is damaged: its {what} cannot be read: {why} (udpath history remove {id})", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The run.
        id: i64,
        /// The column.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Another process is writing, and does not end.
    #[error("another process has been writing to the history {} for 10 s: try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("no space is left on the disk for the history {}: free some, or name another file with --store", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file, or its folder, may not be written or read.
    #[error(
        "the history {} cannot be opened or changed (run as a user who may, or name another file with --store)",
        path.display()
    )]
    Denied {
        /// The file.
        path: PathBuf,
        /// The library's error.
        #[source]
        cause: rusqlite::Error,
    },
    /// The result is in it already.
    #[error("the history has this result already: it is run {id}")]
    Known {
        /// The run.
        id: i64,
    },
    /// There is no such run.
    #[error("the history has no run {id} (udpath history lists the runs)")]
    Unknown {
        /// The number.
        id: i64,
    },
    /// A result cannot be compressed.
    #[error("cannot compress the result")]
    Pack {
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// Anything else.
    #[error("cannot use the history {}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The library's error.
        #[source]
        cause: rusqlite::Error,
    },
}

impl StoreError {
    /// The library's error at a file.
    pub(super) fn of(path: &Path, cause: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, cause },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::Denied { path, cause }
            }
            // Without the table or a column, or with values of another type: somebody edited it.
            Some(ErrorCode::Unknown) | None => Self::Damaged { path, cause },
            Some(_) => Self::Database { path, cause },
        }
    }
}
