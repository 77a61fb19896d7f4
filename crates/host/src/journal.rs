//! What was done, on disk before it is done, so that it can be undone.
//!
//! ```text
//! /var/lib/udpath/journal/lock             held by whoever writes; with the pid of the last one
//! /var/lib/udpath/journal/000007.journal   one per apply; lines are only added, each under a checksum of all before it
//!   begun      who, when, of which boot and network namespace, with which program
//!   kept       a value that a reset of the link may lose           all synced before the first write
//!   intent     setting, old, new, why                              synced before this write
//!   done       what was read back
//!   moved      a kept value that the driver has chosen anew, rightly
//!   applied    every change is verified
//!   confirmed  with --confirm only: it stays
//!   undoing, restored, undone
//! ```
//!
//! | last of these lines | the machine is |
//! |---|---|
//! | `begun`, `kept`, `intent`, `done`, `moved` | between old and new: the program died; undo restores |
//! | `applied` | as planned; with `--confirm` it is awaited |
//! | `confirmed` | as planned |
//! | `undoing`, `restored` | between new and old: undo again |
//! | `undone` | as before |
//!
//! A line cut short by a crash says nothing, and what it announces has not happened. Anything else that does not fit
//! its checksum was edited, and nothing is changed on its word.

mod line;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use thiserror::Error;

pub use line::{Begun, Intent, Kept, Line, Namespace};

use crate::setting::{Setting, WrongName, WrongValue};

/// Where the journal is unless told otherwise.
pub const DIRECTORY: &str = "/var/lib/udpath/journal";
/// Version of the lines; an entry of a newer program is not touched.
pub const SCHEMA: &str = "udpath.journal/1";
/// What the names of entries end with.
const EXTENSION: &str = "journal";
/// How long another udpath may take before this one gives up. An apply takes well under a second, unless a driver
/// resets its link for some; shorter gives up for nothing, longer leaves a script hanging on a stuck one.
const WAIT: Duration = Duration::from_secs(10);
/// Pause between two looks at the lock.
const LOOK: Duration = Duration::from_millis(50);

/// Why the journal cannot be used. Nothing has been changed then.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The folder or a file of it.
    #[error("cannot {operation} {}: {cause}", path.display())]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Another udpath changes settings.
    #[error("another udpath (pid {pid}) holds {}; waited {} s for it", path.display(), WAIT.as_secs())]
    Held {
        /// The lock.
        path: PathBuf,
        /// Whose it is, as far as it says.
        pid: String,
    },
    /// The checksum of a line does not fit, or the line makes no sense.
    #[error("line {line} of {} {why}; nothing is changed on its word: `udpath undo --print {id}` shows what it says", path.display())]
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
    /// There is no such entry.
    #[error("the journal {} has no entry {id}; it has {known}", path.display())]
    Unknown {
        /// The folder.
        path: PathBuf,
        /// What was asked for.
        id: u64,
        /// What there is.
        known: String,
    },
}

impl JournalError {
    fn system(operation: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::System { operation, path: path.to_owned(), cause }
    }
}

/// How far an entry has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The program died while it applied.
    Unfinished,
    /// Applied and verified, and it stays.
    Applied,
    /// Applied and verified, and reverted unless it is confirmed.
    Awaiting,
    /// The program died, or something failed, while it was undone.
    HalfUndone,
    /// Undone.
    Undone,
}

/// One apply, as the journal tells it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// Its first line.
    pub begun: Begun,
    /// How far it has come.
    pub state: State,
    /// What a reset of the link might lose.
    pub kept: Vec<Kept>,
    /// What was changed, in order.
    pub intents: Vec<Intent>,
    /// When every change was verified, milliseconds since 1970.
    pub applied: Option<u64>,
    /// When it was last begun to be undone, milliseconds since 1970.
    pub undoing: Option<u64>,
}

impl Entry {
    /// Does it stand: has it changed the machine, and not been undone?
    #[must_use]
    pub fn stands(&self) -> bool {
        self.state != State::Undone
    }

    /// When it is reverted unless it is confirmed, milliseconds since 1970.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        Some(self.applied? + self.begun.confirm?.saturating_mul(1000))
    }
}

/// The journal, to be read.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: PathBuf,
}

/// The right to write the journal, and so to change settings: one process at a time.
#[derive(Debug)]
#[must_use = "the lock goes when this is dropped"]
pub struct Lock {
    journal: Journal,
    _file: File,
}

/// An entry that is being written.
#[derive(Debug)]
pub struct Writing {
    path: PathBuf,
    file: File,
    /// Checksum of all lines so far.
    chain: u64,
    /// Bytes of whole lines.
    length: u64,
}

impl Journal {
    /// In this folder, which need not exist yet.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The folder.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where an entry is.
    #[must_use]
    pub fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id:06}.{EXTENSION}"))
    }

    /// The numbers of all entries, ascending.
    ///
    /// # Errors
    /// The folder cannot be read. No folder means no entries.
    pub fn ids(&self) -> Result<Vec<u64>, JournalError> {
        let failed = |cause| JournalError::system("read", &self.directory, cause);
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let number: Option<u64> =
                name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok());
            ids.extend(number);
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// An entry.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn entry(&self, id: u64) -> Result<Entry, JournalError> {
        self.read(id, &self.text(id)?)
    }

    /// What the text of an entry says.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read(&self, id: u64, text: &str) -> Result<Entry, JournalError> {
        self.parse(id, text).map(|(entry, ..)| entry)
    }

    /// All entries, ascending.
    ///
    /// # Errors
    /// One cannot be read or is damaged.
    pub fn entries(&self) -> Result<Vec<Entry>, JournalError> {
        self.ids()?.into_iter().map(|id| self.entry(id)).collect()
    }

    /// The lines of an entry whatever its checksums say, for a person to read.
    ///
    /// # Errors
    /// There is none.
    pub fn lines(&self, id: u64) -> Result<Vec<Line>, JournalError> {
        let text = self.text(id)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line.split_once(' ')?.1).ok()).collect())
    }

    fn text(&self, id: u64) -> Result<String, JournalError> {
        let path = self.path(id);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let ids: Vec<String> = self.ids()?.iter().map(u64::to_string).collect();
                let known = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
                Err(JournalError::Unknown { path: self.directory.clone(), id, known })
            }
            text => text.map_err(|cause| JournalError::system("read", &path, cause)),
        }
    }

    /// The entry, the checksum of its lines, and their bytes. What comes after the last newline is no line.
    fn parse(&self, id: u64, text: &str) -> Result<(Entry, u64, u64), JournalError> {
        let damaged = |line: usize, why: String| JournalError::Damaged { path: self.path(id), id, line, why };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let (mut chain, mut entry) = (line::START, None::<Entry>);
        for (number, text) in (1..).zip(whole.lines()) {
            let edited = || {
                damaged(number, "does not fit its checksum: it was edited, or one before it taken out".into())
            };
            let (sum, json) = text.split_once(' ').ok_or_else(edited)?;
            chain = line::chained(chain, json);
            if u64::from_str_radix(sum, 16) != Ok(chain) {
                return Err(edited());
            }
            let line: Line = serde_json::from_str(json)
                .map_err(|error| damaged(number, format!("is not understood ({error})")))?;
            match (&mut entry, line) {
                (None, Line::Begun(begun)) if begun.schema != SCHEMA => {
                    return Err(damaged(
                        number,
                        format!("is of another version: {:?}, not {SCHEMA}", begun.schema),
                    ));
                }
                (None, Line::Begun(begun)) => {
                    let (kept, intents) = (Vec::new(), Vec::new());
                    let (applied, undoing) = (None, None);
                    entry =
                        Some(Entry { id, begun, state: State::Unfinished, kept, intents, applied, undoing });
                }
                (Some(entry), line) => entry.take(line).map_err(|why| damaged(number, why))?,
                (None, _) => return Err(damaged(number, "is no beginning".into())),
            }
        }
        let entry =
            entry.ok_or_else(|| damaged(1, "is not there: the file is empty or was cut off".into()))?;
        Ok((entry, chain, whole.len() as u64))
    }

    /// Waits for the lock, and makes the folder.
    ///
    /// # Errors
    /// The folder cannot be made, or another process holds the lock for too long.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        let (mut file, path) = self.lock_file()?;
        let until = Instant::now() + WAIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOOK),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                    let pid = if pid.is_empty() { "unknown".to_owned() } else { pid };
                    return Err(JournalError::Held { path, pid });
                }
                Err(errno) => return Err(JournalError::system("lock", &path, errno.into())),
            }
        }
        self.sign(&mut file);
        Ok(Lock { journal: self.clone(), _file: file })
    }

    /// As [`Journal::lock`], however long it takes: for one that waits for an apply to end.
    ///
    /// # Errors
    /// The folder cannot be made, or the lock not be taken.
    pub fn lock_whenever(&self) -> Result<Lock, JournalError> {
        let (mut file, path) = self.lock_file()?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| JournalError::system("lock", &path, errno.into()))?;
        self.sign(&mut file);
        Ok(Lock { journal: self.clone(), _file: file })
    }

    fn lock_file(&self) -> Result<(File, PathBuf), JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.directory);
        made.map_err(|cause| JournalError::system("make the journal", &self.directory, cause))?;
        let path = self.directory.join("lock");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(&path);
        Ok((file.map_err(|cause| JournalError::system("open", &path, cause))?, path))
    }

    /// Says whose the lock is. For people alone, so a full disk is no reason to stop.
    fn sign(&self, file: &mut File) {
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    }
}

impl Lock {
    /// The journal that is locked.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// A new entry with its first line, synced. `begun` is told its number.
    pub(crate) fn begin(&self, begun: impl FnOnce(u64) -> Begun) -> Result<(u64, Writing), JournalError> {
        let id = self.journal.ids()?.last().map_or(1, |last| last + 1);
        let path = self.journal.path(id);
        let made = OpenOptions::new().append(true).create_new(true).mode(0o644).open(&path);
        let file = made.map_err(|cause| JournalError::system("make", &path, cause))?;
        let mut writing = Writing { path: path.clone(), file, chain: line::START, length: 0 };
        let written = writing.append(&Line::Begun(begun(id))).and_then(|()| writing.sync());
        let written = written.and_then(|()| {
            let folder = File::open(&self.journal.directory).and_then(|folder| folder.sync_all());
            folder.map_err(|cause| JournalError::system("sync", &self.journal.directory, cause))
        });
        if written.is_err() {
            // Nothing has been changed yet, and an entry that says so is only in the way.
            let _ = fs::remove_file(&path);
        }
        written.map(|()| (id, writing))
    }

    /// Goes on writing an entry.
    pub(crate) fn resume(&self, id: u64) -> Result<(Entry, Writing), JournalError> {
        let text = self.journal.text(id)?;
        let (entry, chain, length) = self.journal.parse(id, &text)?;
        let path = self.journal.path(id);
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|cause| JournalError::system("open", &path, cause))?;
        let writing = Writing { path, file, chain, length };
        if text.len() as u64 > length {
            writing.cut()?;
        }
        Ok((entry, writing))
    }

    /// Takes an entry away that has changed nothing.
    pub(crate) fn forget(&self, id: u64) {
        // One that stays is an entry without a change.
        let _ = fs::remove_file(self.journal.path(id));
    }
}

impl Writing {
    /// Adds a line. After an error the file is as before, as far as the disk allows.
    pub(crate) fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let failed = |path: &Path, cause| JournalError::system("write", path, cause);
        let json = serde_json::to_string(line).map_err(|error| failed(&self.path, error.into()))?;
        let chain = line::chained(self.chain, &json);
        let text = format!("{chain:016x} {json}\n");
        if let Err(cause) = self.file.write_all(text.as_bytes()) {
            self.cut()?;
            return Err(failed(&self.path, cause));
        }
        self.chain = chain;
        self.length += text.len() as u64;
        Ok(())
    }

    /// What has been added is on the disk when this returns.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|cause| JournalError::system("sync", &self.path, cause))
    }

    /// Takes off what is no whole line.
    fn cut(&self) -> Result<(), JournalError> {
        self.file.set_len(self.length).map_err(|cause| JournalError::system("cut", &self.path, cause))
    }
}

impl Entry {
    /// Takes a line after the first.
    fn take(&mut self, line: Line) -> Result<(), String> {
        let none = |at: usize| format!("is of change {at}, which the entry does not have");
        match line {
            Line::Begun(_) => return Err("begins a second time".into()),
            Line::Kept(kept) => self.kept.push(kept),
            Line::Intent(intent) => self.intents.push(intent),
            Line::Done { at, found } => self.intents.get_mut(at).ok_or_else(|| none(at))?.done = Some(found),
            Line::Moved { setting, found } => {
                let kept = self.kept.iter_mut().find(|kept| kept.setting == setting);
                kept.ok_or_else(|| format!("is of {setting:?}, which was not kept"))?.moved = Some(found);
            }
            Line::Applied { time } => {
                self.applied = Some(time);
                self.state = if self.begun.confirm.is_some() { State::Awaiting } else { State::Applied };
            }
            Line::Confirmed { .. } => self.state = State::Applied,
            Line::Undoing { time, .. } => {
                self.undoing = Some(time);
                self.state = State::HalfUndone;
            }
            Line::Restored { at } => self.intents.get_mut(at).ok_or_else(|| none(at))?.restored = true,
            Line::Undone { .. } => self.state = State::Undone,
        }
        Ok(())
    }
}

/// The setting that a line names.
///
/// # Errors
/// None is called so.
pub fn setting(name: &str) -> Result<Setting, WrongName> {
    name.strip_prefix("file:").map_or_else(|| name.parse(), |path| Ok(Setting::File(path.to_owned())))
}

/// Why a line's words make no sense; an older or newer program may have had other words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongLine {
    /// The name.
    #[error(transparent)]
    Name(#[from] WrongName),
    /// The value.
    #[error(transparent)]
    Value(#[from] WrongValue),
}
