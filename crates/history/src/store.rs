//! The history's file: an SQLite database of one table.
//!
//! ```text
//! run   id  at  kind  name  load  origin (JSON)  tps  p99  cpu  digest  result (the whole JSON, gzip)
//! ```
//! Readers open it read-only and create nothing. A writer waits for another one; each addition is a transaction, so
//! that a crash leaves the file as it was before. `user_version` is the version of the table, `application_id` tells
//! the file from other programs' databases.

mod error;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, TransactionBehavior, params};
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use udpath_load::origin::Origin;

use crate::run::{NewRun, Run};
pub use error::StoreError;

/// Version of the table; raised when a program of the version before could not read it.
const VERSION: i64 = 1;
/// `udph` in ASCII.
const APPLICATION: i64 = 0x7564_7068;
/// How long to wait for another writer, whose additions take milliseconds. Shorter: a slow disk makes a second writer
/// fail. Longer: a writer that hangs makes others hang.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most runs read, the newest. Higher: a file that is not ours to judge fills the memory. Lower: years of hourly runs
/// do not fit.
const MAX_RUNS: i64 = 100_000;
/// Largest result, bytes, before compression: what `udpath report` reads at most.
const MAX_RESULT: u64 = 256 * 1024 * 1024;

const TABLE: &str = "
    CREATE TABLE run (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        load TEXT NOT NULL,
        origin TEXT NOT NULL,
        tps REAL,
        p99 REAL,
        cpu REAL,
        digest BLOB NOT NULL UNIQUE,
        result BLOB NOT NULL
    ) STRICT;
    CREATE INDEX run_at ON run (at);";

/// An open history.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// A run as it is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// The result: JSON, digit by digit as it was kept.
    pub result: String,
}

impl Exported {
    /// The run as one line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let Self { id, name, result } = self;
        format!("{{\"id\":{id},\"name\":{},\"result\":{result}}}\n", serde_json::Value::from(name.as_str()))
    }
}

impl Store {
    /// Opens a history to read it.
    ///
    /// # Errors
    /// There is none, or see [`StoreError`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let real = real(path)?.filter(|real| real.exists());
        let real = real.ok_or_else(|| StoreError::Nothing { path: path.into() })?;
        let store = Self::open(path, &real, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        match store.version()? {
            // Created, but its first addition was never finished.
            0 if store.is_empty()? => Err(StoreError::Nothing { path: path.into() }),
            _ => store.checked(),
        }
    }

    /// Opens a history to change it; creates it, and the folders that it is in, if there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn write(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let created = udpath_files::output::create_folder(folder);
            created.map_err(|cause| StoreError::Folder { path: folder.into(), cause })?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let real = real(path)?.unwrap_or_else(|| path.to_owned());
        let mut store = Self::open(path, &real, flags)?;
        store.create().map_err(|cause| StoreError::of(&store.path, cause))?;
        store.checked()
    }

    /// Opens a history to remove runs from it.
    ///
    /// # Errors
    /// There is none, or see [`StoreError`].
    pub fn change(path: &Path) -> Result<Self, StoreError> {
        // An error if there is none.
        drop(Self::read(path)?);
        Self::write(path)
    }

    /// Opens the file at `real`, whose path has no links: the library follows none that appears there later.
    fn open(path: &Path, real: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        if let Some(why) = shared(real) {
            return Err(StoreError::NotAFile { path: path.into(), why });
        }
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let open = || {
            let connection = Connection::open_with_flags(real, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            // A file that was edited cannot make the library call functions.
            connection.pragma_update(None, "trusted_schema", false)?;
            Ok(connection)
        };
        let connection = open().map_err(|cause| StoreError::of(path, cause))?;
        Ok(Self { path: path.into(), connection })
    }

    /// Creates the table in a new file. Of two processes that do so at once, the second finds it done.
    fn create(&mut self) -> rusqlite::Result<()> {
        if version(&self.connection)? != 0 {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&transaction)? == 0 && tables(&transaction)? == 0 {
            transaction.execute_batch(TABLE)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()
    }

    /// This store, if it is ours and of a version that this program knows.
    fn checked(self) -> Result<Self, StoreError> {
        let application =
            self.connection.pragma_query_value(None, "application_id", |row| row.get::<_, i64>(0));
        if application.map_err(|cause| self.error(cause))? != APPLICATION {
            return Err(StoreError::Foreign { path: self.path });
        }
        match self.version()? {
            VERSION => self.whole(),
            version => Err(StoreError::Version { path: self.path, version, known: VERSION }),
        }
    }

    /// This store, if its file is as long as its header says: the library would miss only rows of the part that it
    /// reads.
    fn whole(self) -> Result<Self, StoreError> {
        let read = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let sizes = || Ok(read("page_count")?.saturating_mul(read("page_size")?));
        let expected = sizes().map_err(|cause| self.error(cause))?.unsigned_abs();
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() < expected => {
                Err(StoreError::Truncated { path: self.path, expected, found: metadata.len() })
            }
            _ => Ok(self),
        }
    }

    fn version(&self) -> Result<i64, StoreError> {
        version(&self.connection).map_err(|cause| self.error(cause))
    }

    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(tables(&self.connection).map_err(|cause| self.error(cause))? == 0)
    }

    fn error(&self, cause: rusqlite::Error) -> StoreError {
        StoreError::of(&self.path, cause)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a run; returns its number.
    ///
    /// # Errors
    /// It is there already, or see [`StoreError`].
    pub fn add(&mut self, new: &NewRun) -> Result<i64, StoreError> {
        let digest = Sha256::digest(new.json.as_bytes());
        let result = packed(new.json.as_bytes()).map_err(|cause| StoreError::Pack { cause })?;
        let origin = serde_json::to_string(&new.run.origin).unwrap_or_default();
        let run = &new.run;
        let add = |store: &mut Self| {
            let transaction = store.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let known = transaction
                .query_row("SELECT id FROM run WHERE digest = ?1", [digest.as_slice()], |row| row.get(0))
                .optional()?;
            if let Some(id) = known {
                return Ok(Err(StoreError::Known { id }));
            }
            let at = i64::try_from(run.origin.at).unwrap_or(i64::MAX);
            transaction.execute(
                "INSERT INTO run (at, kind, name, load, origin, tps, p99, cpu, digest, result)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    at,
                    run.kind,
                    run.name,
                    run.load,
                    origin,
                    run.tps,
                    run.p99,
                    run.cpu,
                    digest.as_slice(),
                    result
                ],
            )?;
            let id = transaction.last_insert_rowid();
            transaction.commit()?;
            Ok(Ok(id))
        };
        add(self).map_err(|cause| self.error(cause))?
    }

    /// Removes runs, all of them or none.
    ///
    /// # Errors
    /// One is not there, or see [`StoreError`].
    pub fn remove(&mut self, ids: &[i64]) -> Result<(), StoreError> {
        let remove = |store: &mut Self| {
            let transaction = store.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for id in ids {
                if transaction.execute("DELETE FROM run WHERE id = ?1", [id])? == 0 {
                    return Ok(Some(*id));
                }
            }
            transaction.commit()?;
            Ok(None)
        };
        match remove(self).map_err(|cause| self.error(cause))? {
            None => Ok(()),
            Some(id) => Err(StoreError::Unknown { id }),
        }
    }

    /// The newest runs measured at `since` (seconds since 1970) or later, oldest first.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn runs(&self, since: u64) -> Result<Vec<Run>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT id, kind, name, load, origin, tps, p99, cpu FROM run WHERE at >= ?1
                 ORDER BY at DESC, id DESC LIMIT ?2",
            )?;
            let since = i64::try_from(since).unwrap_or(i64::MAX);
            statement.query_map([since, MAX_RUNS], row)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut runs = read().map_err(|cause| self.error(cause))?;
        runs.reverse();
        runs.into_iter()
            .map(|(run, origin)| Ok(Run { origin: self.origin(run.id, &origin)?, ..run }))
            .collect()
    }

    fn origin(&self, id: i64, text: &str) -> Result<Origin, StoreError> {
        let broken = |cause: serde_json::Error| StoreError::Row {
            path: self.path.clone(),
            id,
            what: "origin",
            why: cause.to_string(),
        };
        serde_json::from_str(text).map_err(broken)
    }

    /// The numbers of all runs, oldest first.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn ids(&self) -> Result<Vec<i64>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare("SELECT id FROM run ORDER BY at, id LIMIT ?1")?;
            statement.query_map([MAX_RUNS], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()
        };
        read().map_err(|cause| self.error(cause))
    }

    /// A run with its result.
    ///
    /// # Errors
    /// It is not there, or see [`StoreError`].
    pub fn export(&self, id: i64) -> Result<Exported, StoreError> {
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
        let found = self.connection.query_row("SELECT name, result FROM run WHERE id = ?1", [id], read);
        let (name, result) =
            found.optional().map_err(|cause| self.error(cause))?.ok_or(StoreError::Unknown { id })?;
        let broken = |why: String| StoreError::Row { path: self.path.clone(), id, what: "result", why };
        let result = unpacked(&result).map_err(|cause| broken(cause.to_string()))?;
        serde_json::from_str::<IgnoredAny>(&result).map_err(|cause| broken(cause.to_string()))?;
        Ok(Exported { id, name, result })
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn tables(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
}

/// A row without its origin, and the text of that.
fn row(row: &Row<'_>) -> rusqlite::Result<(Run, String)> {
    let run = Run {
        id: row.get(0)?,
        kind: row.get(1)?,
        name: row.get(2)?,
        load: row.get(3)?,
        origin: Origin::default(),
        tps: row.get(5)?,
        p99: row.get(6)?,
        cpu: row.get(7)?,
    };
    Ok((run, row.get(4)?))
}

/// The path without links; [`None`] if a folder is missing. A device or a pipe is not opened: that could wait, or do
/// things. A link that somebody else put there, or a file of theirs in a folder that others may write, is not used.
fn real(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    match udpath_files::output::real(path) {
        Ok(real) => Ok(Some(real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            Err(StoreError::NotAFile { path: path.into(), why: "is a folder".to_owned() })
        }
        // Whatever else the system refuses, opening it says.
        Err(error) if error.raw_os_error().is_some() => Ok(Some(path.to_owned())),
        Err(error) => Err(StoreError::NotAFile { path: path.into(), why: error.to_string() }),
    }
}

/// Whether others can make files beside it. The library takes those named after the database, such as its journal, for
/// its own, writes what they have into it, and waits at a pipe.
fn shared(real: &Path) -> Option<String> {
    let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // One that cannot be found cannot be opened either, which says more.
    let why = udpath_files::owners::shared(&folder.canonicalize().ok()?)?;
    Some(format!(
        "is where others can put a journal beside it ({why}); choose a folder that they cannot change"
    ))
}

fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn unpacked(bytes: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(bytes).take(MAX_RESULT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
