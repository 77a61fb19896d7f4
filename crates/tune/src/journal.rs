//! The write-ahead journal: each change is on disk before it is made, so that it can be undone.
//!
//! ```text
//! /var/lib/udpath/journal/              0700, files 0600: any process that can open the lock can hold it
//!   lock             held by the writer; contains the pid of the last one
//!   .000007.new      an entry before its first line is synced; then renamed, so an entry is never empty
//!   000007.journal   one per apply; lines are only added, each under a checksum of all before it
//!     begun      user, time, boot, network namespace, program version
//!     kept       a value that a link reset may lose                all synced before the first write
//!     intent     setting, old, new, why                            synced before this write
//!     done       what was read back
//!     moved      a kept value that the driver legitimately chose anew
//!     applied    every change was read back
//!     confirmed  with --confirm only: the apply is permanent
//!     adopted    after a boot, by the unit that keeps it: the entry belongs to this boot now; intents may follow
//!     undoing, restored, failed, undone
//!     closed     abandoned: `udpath undo --forget`
//!   000003.closed    an abandoned unreadable entry; its number is not reused
//! ```
//!
//! | last of these lines | the machine is |
//! |---|---|
//! | `begun`, `kept` | as before: nothing changed yet |
//! | `intent`, `done`, `moved` | between old and new: the program died; undo restores |
//! | `applied` | as planned; with `--confirm`, awaiting confirmation |
//! | `confirmed` | as planned |
//! | `undoing`, `restored`, `failed` | between new and old: undo again |
//! | `undone` | as before |
//! | `closed` | unknown; left as it was when the entry was closed |
//!
//! The folder is recognised before anything in it is read or changed: it holds a journal's files and is changed by
//! root, or the calling user, alone; so is each entry ([`udpath_files::Private`]). What other users could have written
//! is never carried out.
//!
//! A line cut short by a crash is ignored, and the change it announces did not happen. Any other checksum mismatch
//! means the file was edited, and no change is based on it. An unreadable entry blocks only itself: all others can be
//! applied, undone and confirmed.

mod disk;
mod entry;
mod folder;
mod line;
mod lock;
mod selection;
mod writing;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;
use udpath_files::Private;

pub use disk::{Moment, Step, Watcher, When};
pub use entry::{Entry, State};
pub use line::{Begun, DIED, Intent, Kept, Line, UNCONFIRMED};
pub use lock::Lock;
pub(crate) use lock::{Attendant, attend, attendant};
pub use selection::selections;
pub(crate) use writing::Writing;

pub use crate::context::Namespace;
use crate::services::Restart;
use crate::settings::{CONFIG, RESTART, Setting, WrongName, WrongValue};
use disk::Disk;
use folder::{MAX_ID, Name, closed_name, entry_name};

/// The default location of the journal.
pub const DIRECTORY: &str = "/var/lib/udpath/journal";
/// Version of the lines; an entry of a newer program is not touched.
pub const SCHEMA: &str = "udpath.journal/1";
/// File name extension of entries.
const EXTENSION: &str = "journal";
/// File name extension of closed unreadable entries.
const CLOSED: &str = "closed";
/// Largest entry, bytes. The largest real ones hold whole configuration files, a few MiB. Lower: one with many of them
/// cannot be undone. Higher: a damaged one fills the memory.
const MAX_ENTRY: u64 = 64 << 20;

/// Why the journal, or one entry of it, cannot be used. Nothing was changed.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The folder or a file of it.
    #[error("cannot {operation} {}{}", path.display(), rights(cause))]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Another user could change the journal, or hold its lock.
    #[error(
        "the journal {} cannot be trusted: {} {why}; remove the entries that you did not make, then run `chown {user} {1}` \
         and `chmod {mode} {1}`, or choose another folder with --state",
        path.display(), part.display()
    )]
    Shared {
        /// The folder.
        path: PathBuf,
        /// The part of its path that others can change.
        part: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The user who should own it.
        user: u32,
        /// The mode it should have.
        mode: &'static str,
    },
    /// The folder is not a journal.
    #[error("{} is not a journal: {why}; choose another folder with --state", path.display())]
    NotOne {
        /// The folder.
        path: PathBuf,
        /// What shows it.
        why: String,
    },
    /// The entry is not a file that udpath has written.
    #[error(
        "journal entry {id} cannot be used: {} {why}; udpath did not write it so: `udpath undo --forget {id}` closes it",
        path.display()
    )]
    Strange {
        /// The entry's file.
        path: PathBuf,
        /// Its number.
        id: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Another udpath process is changing settings.
    #[error("{holder} holds {}; gave up after {} s", path.display(), lock::WAIT.as_secs())]
    Held {
        /// The lock.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// The checksum of a line does not match, or the line is malformed.
    #[error("journal entry {id} cannot be used: line {line} of {} {why}; {}", path.display(), way_out(*id))]
    Damaged {
        /// The entry's file.
        path: PathBuf,
        /// Its number.
        id: u64,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The entry was written by another version.
    #[error(
        "journal entry {id} cannot be used: udpath {version} wrote {} in format {schema:?}, but this version \
         reads {SCHEMA}; undo it with that version, or: {}",
        path.display(), way_out(*id)
    )]
    Version {
        /// The entry's file.
        path: PathBuf,
        /// Its number.
        id: u64,
        /// The version that wrote it.
        version: String,
        /// The schema of its lines.
        schema: String,
    },
    /// There is no such entry.
    #[error("the journal {} has no entry {id}; it has {known}", path.display())]
    Unknown {
        /// The folder.
        path: PathBuf,
        /// The requested entry.
        id: u64,
        /// The entries that exist.
        known: String,
    },
}

/// What to do about an entry that cannot be read.
fn way_out(id: u64) -> impl fmt::Display {
    format!("`udpath undo --print {id}` shows what is readable, `udpath undo --forget {id}` closes it")
}

/// A hint about missing permissions.
fn rights(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::PermissionDenied => " (run as root, or choose another journal with --state)",
        _ => "",
    }
}

impl JournalError {
    pub(crate) fn system(operation: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::System { operation, path: path.to_owned(), cause }
    }
}

/// An entry that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its number.
    pub id: u64,
    /// Why, and what to do.
    pub why: JournalError,
}

/// All entries of a journal.
#[derive(Debug, Default)]
pub struct Contents {
    /// Entries that can be read, ascending.
    pub entries: Vec<Entry>,
    /// Those that cannot, ascending.
    pub unreadable: Vec<Unreadable>,
}

/// The journal, for reading.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: PathBuf,
    disk: Disk,
}

impl Journal {
    /// The journal in this folder, which need not exist yet.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), disk: Disk::default() }
    }

    /// Like [`Journal::at`], with a watcher called before and after each disk operation.
    #[must_use]
    pub fn watched(directory: &Path, watcher: Watcher) -> Self {
        Self { directory: directory.to_owned(), disk: Disk::watched(watcher) }
    }

    /// The folder.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of an entry.
    #[must_use]
    pub fn path(&self, id: u64) -> PathBuf {
        self.directory.join(entry_name(id))
    }

    /// The numbers of all entries, ascending, except closed unreadable ones.
    ///
    /// # Errors
    /// The folder is not a journal, or cannot be read. No folder means no entries.
    pub fn ids(&self) -> Result<Vec<u64>, JournalError> {
        let Some(folder) = self.folder()? else { return Ok(Vec::new()) };
        self.numbers(&folder, |name| matches!(name, Name::Entry(_)))
    }

    /// The number of the next entry. Numbers are never reused.
    ///
    /// # Errors
    /// The folder is not a journal, or cannot be read.
    pub fn next_id(&self) -> Result<u64, JournalError> {
        let Some(folder) = self.folder()? else { return Ok(1) };
        let taken = self.numbers(&folder, |name| matches!(name, Name::Entry(_) | Name::Closed(_)))?;
        // A file with a number that no apply reaches is not ours, and does not end the counting.
        Ok(taken.into_iter().rfind(|id| *id < MAX_ID).map_or(1, |last| last + 1))
    }

    /// An entry.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub fn entry(&self, id: u64) -> Result<Entry, JournalError> {
        self.read(id, &self.text(id)?)
    }

    /// Parses the text of an entry.
    ///
    /// # Errors
    /// The text is damaged, or of another version.
    pub fn read(&self, id: u64, text: &str) -> Result<Entry, JournalError> {
        entry::parse(&self.path(id), id, text).map(|parsed| parsed.entry)
    }

    /// All entries, with unreadable ones listed separately.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn contents(&self) -> Result<Contents, JournalError> {
        let mut contents = Contents::default();
        let Some(folder) = self.folder()? else { return Ok(contents) };
        for id in self.numbers(&folder, |name| matches!(name, Name::Entry(_)))? {
            match self.text_in(&folder, id).and_then(|text| self.read(id, &text)) {
                Ok(entry) => contents.entries.push(entry),
                // Removed since it was listed: a failed apply.
                Err(JournalError::Unknown { .. }) => {}
                Err(why) => contents.unreadable.push(Unreadable { id, why }),
            }
        }
        Ok(contents)
    }

    /// The entries that can be read, ascending.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, JournalError> {
        Ok(self.contents()?.entries)
    }

    /// The lines of an entry, for display; checksums are not verified.
    ///
    /// # Errors
    /// The entry does not exist.
    pub fn lines(&self, id: u64) -> Result<Vec<Line>, JournalError> {
        let closed = || {
            let bytes = self.folder().ok()??.bytes(closed_name(id), MAX_ENTRY).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = match self.text(id) {
            Err(unknown @ JournalError::Unknown { .. }) => closed().ok_or(unknown)?,
            text => text?,
        };
        Ok(text.lines().filter_map(|line| serde_json::from_str(line.split_once(' ')?.1).ok()).collect())
    }

    fn text(&self, id: u64) -> Result<String, JournalError> {
        match self.folder()? {
            Some(folder) => self.text_in(&folder, id),
            None => Err(self.unknown(id, &[])),
        }
    }

    fn text_in(&self, folder: &Private, id: u64) -> Result<String, JournalError> {
        match folder.bytes(entry_name(id), MAX_ENTRY) {
            // Bytes that are not UTF-8 do not match the checksum; treat them as damage.
            Ok(bytes) => Ok(String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let known = self.numbers(folder, |name| matches!(name, Name::Entry(_)))?;
                Err(self.unknown(id, &known))
            }
            Err(cause) => Err(self.unusable("read", id, cause)),
        }
    }

    fn unknown(&self, id: u64, known: &[u64]) -> JournalError {
        let known: Vec<String> = known.iter().map(u64::to_string).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        JournalError::Unknown { path: self.directory.clone(), id, known }
    }

    /// Why an entry's file cannot be opened: by the system, or because of what it is.
    fn unusable(&self, operation: &'static str, id: u64, cause: io::Error) -> JournalError {
        match cause.raw_os_error() {
            Some(_) => JournalError::system(operation, &self.path(id), cause),
            None => JournalError::Strange { path: self.path(id), id, why: cause.to_string() },
        }
    }
}

/// Prefix of a file's name in a line.
const FILE: &str = "file:";

/// The setting that a line names.
///
/// # Errors
/// No setting has this name.
pub fn setting(name: &str) -> Result<Setting, WrongName> {
    if let Some(path) = name.strip_prefix(FILE) {
        return Ok(Setting::File(path.to_owned()));
    }
    if let Some(path) = name.strip_prefix(CONFIG) {
        return Ok(Setting::Config(path.to_owned()));
    }
    match name.strip_prefix(RESTART).and_then(Restart::parse) {
        Some(restart) => Ok(Setting::Restart(restart)),
        None => name.parse(),
    }
}

/// Why a line cannot be parsed; an older or newer program may have used other names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongLine {
    /// The name.
    #[error(transparent)]
    Name(#[from] WrongName),
    /// The value.
    #[error(transparent)]
    Value(#[from] WrongValue),
}
