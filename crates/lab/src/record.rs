//! The record of everything a lab creates, on disk before it is created.
//!
//! ```text
//! /run/udpath/lab/4711-boost.record      flock held by the owner while it runs
//!   {"blueprint":{"schema":1,...}}         written and synced before the first namespace exists
//!   {"made":{"namespace":..,"inode":..}}   one line per namespace, once it has its name
//!   {"flow_table":{"entries":..}}          before the machine's flow table is switched on
//!   "kept"                                 only if the lab is to outlive its owner
//! ```
//!
//! | lock | `kept` | the lab is |
//! |---|---|---|
//! | held | no | owned: its process is running |
//! | free | no | stale: its process was killed; the next sweep removes it |
//! | free | yes | kept, until `down` |
//!
//! Lines are only appended, so a record truncated by a crash is incomplete but never wrong. Records are on /run, which
//! a reboot empties together with everything they name. Only root can access them: any process that can open one can
//! lock it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use udpath_files::own;

use crate::{Blueprint, Error};

/// Directory of the records.
const DIRECTORY: &str = "/run/udpath/lab";
/// Their file name extension.
const EXTENSION: &str = "record";
/// Version of the lines; a record of a newer version is left alone.
const SCHEMA: u32 = 1;
/// Attempts to create a record while sweeps remove older ones with the same name.
const ATTEMPTS: u32 = 100;
/// A record that is written while the lab is built, and taken by the last inverse action, which removes it.
pub(crate) type SharedRecord = Arc<Mutex<Option<Record>>>;

/// Writes to the record, unless it is removed.
pub(crate) fn with(
    record: &SharedRecord,
    write: impl FnOnce(&mut Record) -> Result<(), Error>,
) -> Result<(), Error> {
    record.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map_or(Ok(()), write)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Blueprint { schema: u32, blueprint: Blueprint },
    Made { namespace: String, inode: u64 },
    FlowTable { entries: u32 },
    Kept,
}

/// Contents of a record.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    pub(crate) blueprint: Blueprint,
    /// Named namespaces, with their inodes.
    pub(crate) made: Vec<(String, u64)>,
    /// Length of the machine's flow table, if the lab has switched it on.
    pub(crate) flow_table: Option<u32>,
    pub(crate) kept: bool,
}

/// An open record on disk. Locked if it came from [`create`](Self::create) or [`lock`](Self::lock).
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Writes a new record, locked and synced.
    pub(crate) fn create(blueprint: &Blueprint, to_be_kept: bool) -> Result<Self, Error> {
        let path = path(blueprint, to_be_kept);
        let failed =
            |source: io::Error| Error::system(format!("write the record {}", path.display()), source);
        DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            let file = match own::create(&path) {
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                    let (name, object) = (blueprint.name.clone(), path.display().to_string());
                    return Err(Error::Exists { name, object });
                }
                opened => opened.map_err(failed)?,
            };
            rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
            // In between, a sweep saw an empty unlocked record, and removed it.
            if file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            let mut record = Self { path, file };
            let written = record.append(&Line::Blueprint { schema: SCHEMA, blueprint: blueprint.clone() });
            let written = written.and_then(|()| record.sync_directory());
            if written.is_err() {
                let _ = fs::remove_file(&record.path);
            }
            return written.map(|()| record);
        }
        Err(failed(io::Error::other("another process keeps removing it")))
    }

    /// All records. A missing directory means none.
    pub(crate) fn all() -> Result<Vec<Self>, Error> {
        let failed = |source: io::Error| Error::system(format!("read {DIRECTORY}"), source);
        let names = match udpath_files::names(DIRECTORY, udpath_files::MAX_NAMES) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(failed)?,
        };
        let mut records = Vec::new();
        for name in names {
            let path = Path::new(DIRECTORY).join(name);
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match own::open(&path) {
                Ok(file) => records.push(Self { path, file }),
                // Its owner has just removed it.
                Err(source) if source.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(Error::system(format!("open the record {}", path.display()), source));
                }
            }
        }
        records.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(records)
    }

    /// Takes the lock if it is free. False also if the record has been removed since it was opened.
    pub(crate) fn lock(&self) -> Result<bool, Error> {
        let failed =
            |source: io::Error| Error::system(format!("lock the record {}", self.path.display()), source);
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(self.file.metadata().map_err(failed)?.nlink() > 0),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Does its owner hold the lock? Programs that ask at the same time do not disturb each other.
    pub(crate) fn is_locked(&self) -> Result<bool, Error> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                self.unlock();
                Ok(false)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => {
                Err(Error::system(format!("lock the record {}", self.path.display()), io::Error::from(errno)))
            }
        }
    }

    /// Releases the lock.
    pub(crate) fn unlock(&self) {
        // It is released with the descriptor anyway.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    /// Its contents; `None` if its first line is incomplete, in which case nothing has been created either.
    pub(crate) fn contents(&mut self) -> Result<Option<Contents>, Error> {
        let mut text = String::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut text));
        read.map_err(|source| Error::system(format!("read the record {}", self.path.display()), source))?;
        parse(&text).map_err(|reason| Error::Record { path: self.path.clone(), reason })
    }

    /// Records that a namespace now has its name.
    pub(crate) fn made(&mut self, namespace: &str, inode: u64) -> Result<(), Error> {
        self.append(&Line::Made { namespace: namespace.to_owned(), inode })
    }

    /// Records that the machine's flow table is about to be switched on.
    pub(crate) fn flow_table(&mut self, entries: u32) -> Result<(), Error> {
        self.append(&Line::FlowTable { entries })
    }

    /// From now on the lab outlives its owner.
    pub(crate) fn keep(&mut self) -> Result<(), Error> {
        self.append(&Line::Kept)
    }

    /// The last step of taking a lab down. The lock is released with the descriptor, after the name is removed.
    pub(crate) fn remove(self) -> Result<(), Error> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::system(format!("remove the record {}", self.path.display()), source))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn append(&mut self, line: &Line) -> Result<(), Error> {
        let failed =
            |source: io::Error| Error::system(format!("write the record {}", self.path.display()), source);
        let mut text = serde_json::to_string(line).map_err(|wrong| failed(wrong.into()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all()).map_err(failed)
    }

    fn sync_directory(&self) -> Result<(), Error> {
        let synced = udpath_files::folder(DIRECTORY).and_then(|directory| directory.sync_all());
        synced.map_err(|source| Error::system(format!("sync {DIRECTORY}"), source))
    }
}

/// A kept lab is found by name, so the name must be unique; others contain their owner's PID.
fn path(blueprint: &Blueprint, to_be_kept: bool) -> PathBuf {
    let owner = if to_be_kept { "kept".to_owned() } else { blueprint.pid.to_string() };
    Path::new(DIRECTORY).join(format!("{owner}-{}.{EXTENSION}", blueprint.name))
}

fn parse(text: &str) -> Result<Option<Contents>, String> {
    // Without a line feed the last line is incomplete.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let read =
        |line: &str| serde_json::from_str::<Line>(line).map_err(|wrong| format!("invalid line ({wrong})"));
    let Line::Blueprint { schema, blueprint } = read(first)? else {
        return Err("its first line is not a blueprint".to_owned());
    };
    if schema != SCHEMA {
        return Err(format!("its version is {schema}, but this program reads {SCHEMA}"));
    }
    if !blueprint.is_ours() {
        return Err("it names namespaces that are not the lab's own".to_owned());
    }
    let mut contents = Contents { blueprint, made: Vec::new(), flow_table: None, kept: false };
    for line in lines {
        match read(line)? {
            Line::Made { namespace, inode } => contents.made.push((namespace, inode)),
            Line::FlowTable { entries } => contents.flow_table = Some(entries),
            Line::Kept => contents.kept = true,
            Line::Blueprint { .. } => return Err("it has two blueprints".to_owned()),
        }
    }
    Ok(Some(contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabBuilder;

    fn text() -> String {
        let blueprint = LabBuilder::new("x").machine("a").blueprint().unwrap();
        let lines = [
            Line::Blueprint { schema: SCHEMA, blueprint },
            Line::Made { namespace: "n".into(), inode: 7 },
            Line::FlowTable { entries: 32 },
            Line::Kept,
        ];
        lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
    }

    #[test]
    fn a_truncated_record_is_incomplete_but_not_wrong() {
        let text = text();
        let whole = parse(&text).unwrap().unwrap();
        assert_eq!((whole.made.len(), whole.flow_table, whole.kept), (1, Some(32), true));
        for cut in 0..text.len() {
            match parse(&text[..cut]).unwrap() {
                None => assert!(!text[..cut].contains('\n')),
                Some(less) => {
                    assert_eq!(less.blueprint, whole.blueprint);
                    assert!(!less.kept, "kept at {cut}");
                }
            }
        }
    }

    #[test]
    fn foreign_records_are_ignored() {
        assert!(parse("hello\n").unwrap_err().contains("invalid line"));
        assert!(parse("\"kept\"\n").unwrap_err().contains("not a blueprint"));
        let newer = text().replace("\"schema\":1", "\"schema\":2");
        assert!(parse(&newer).unwrap_err().contains("version is 2"));
        let foreign = text().replace("-x-a\"", "-y-a\"");
        assert!(parse(&foreign).unwrap_err().contains("not the lab's own"));
    }

    #[test]
    fn programs_that_list_at_the_same_time_are_no_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-x.record");
        let open = || Record { path: path.clone(), file: own::open_or_create(&path).unwrap() };
        let (one, other, owner) = (open(), open(), open());
        rustix::fs::flock(&one.file, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(!other.is_locked().unwrap(), "one asks as well");
        one.unlock();
        assert!(owner.lock().unwrap());
        assert!(other.is_locked().unwrap());
    }
}
