//! Loads zones from master files (RFC 1035, 5): NLnet Labs' `domain` reads the records, [`Records`] keeps what they say.
//!
//! ```text
//! file ─ text: entries ─ entry: directives, owners, TTLs ─▸ lines of one form ─ domain ─▸ data: well-formed? ─▸ Records
//!                          ├ fields, types: data by type                           └ loader: every fault with its line ─▸ error
//!                          └ generate: $GENERATE
//! ```

mod data;
mod entry;
mod fields;
mod generate;
mod loader;
mod text;
mod types;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use self::entry::State;
use self::loader::Loader;
use super::name;
use super::records::{Record, Records, TooLarge, Zone};

/// Longest master file, in bytes: some 25 million names. Lower: large zones are refused; higher: a wrong file, such as an endless
/// log, takes as much memory before it is refused.
const MAX_FILE: u64 = 1 << 30;

/// Why zones cannot be loaded. The message names the file and, where there is one, the line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A file is longer than a zone may be.
    #[error("{}: longer than {MAX_FILE} bytes, the longest master file: divide the zone", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
    },
    /// A line that is no record or directive of a master file, or a record that does not fit the others.
    #[error("{}:{line}: {reason}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// The line of the record, or one that it goes on.
        line: u32,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The same of all lines that have faults, in order.
    #[error("{0}")]
    Faults(String),
    /// A file without the record that names its zone.
    #[error("{}: no SOA record: a zone has one, and its owner is the zone's name", file.display())]
    NoSoa {
        /// The file.
        file: PathBuf,
    },
    /// The records or their answers need more than 4 GiB.
    #[error("the zones need more than 4 GiB of memory: serve them with several servers")]
    TooLarge,
    /// More zones than can be numbered.
    #[error("{0} zones or files are too many: serve at most 65,535")]
    TooMany(usize),
}

impl From<TooLarge> for ZoneError {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}

/// Loads one zone from each file.
pub(super) fn load(files: &[PathBuf]) -> Result<Records, ZoneError> {
    let mut records = Records::default();
    for file in files {
        let number = records.zones.len();
        let zone = u16::try_from(number).map_err(|_| ZoneError::TooMany(files.len()))?;
        let first = records.list.len();
        let mut loader = Loader::new(&mut records, zone);
        let (origin, file) = named(file);
        loader.scan(&file, &read(&file)?, State::new(origin), 0)?;
        let soa = loader.finish()?.ok_or_else(|| ZoneError::NoSoa { file: file.clone() })?;
        check_owners(&records, first, &soa)?;
        let apex = records.key(&soa).to_vec();
        if let Some(same) = records.zones.iter().find(|zone| zone.apex == apex) {
            let first = &records.files[usize::from(same.soa.file)];
            let reason = format!("this zone is loaded from {} already", first.display());
            return Err(records.error(&soa, reason));
        }
        records.zones.push(Zone { apex, soa });
    }
    records.sort();
    Ok(records)
}

/// All records from number `first` on belong below the owner of the SOA.
fn check_owners(records: &Records, first: usize, soa: &Record) -> Result<(), ZoneError> {
    let apex = records.key(soa);
    match records.list[first..].iter().find(|record| !records.key(record).starts_with(apex)) {
        None => Ok(()),
        Some(stray) => {
            let (name, zone) = (records.name(stray), records.name(soa));
            Err(records.error(stray, format!("{name} does not belong to the zone {zone}: remove it")))
        }
    }
}

impl Records {
    /// The error at the line of a record.
    pub(super) fn error(&self, record: &Record, reason: impl Into<String>) -> ZoneError {
        let file = self.files.get(usize::from(record.file)).cloned().unwrap_or_default();
        ZoneError::Record { file, line: record.line, reason: reason.into() }
    }

    /// The owner for a message.
    pub(super) fn name(&self, record: &Record) -> String {
        let mut wire = Vec::new();
        super::records::wire_of(self.key(record), &mut wire);
        name::display(&wire)
    }
}

/// The option's value `NAME=FILE`: the zone's name, which is the file's first origin, and the file. A file whose own name has such a
/// form is taken as one.
fn named(option: &Path) -> (Option<Vec<u8>>, PathBuf) {
    let text = option.to_str().and_then(|text| text.split_once('='));
    match text {
        Some((name, file)) if is_name(name) && !option.exists() => {
            let mut origin = name.trim_end_matches('.').as_bytes().to_vec();
            origin.push(b'.');
            (Some(origin), file.into())
        }
        _ => (None, option.to_owned()),
    }
}

/// Whether it may be a zone's name: no path.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && text.parse::<domain::base::Name<Vec<u8>>>().is_ok()
}

/// Reads a regular file piece by piece: it is in memory once. Anything else, such as a FIFO that never has a writer, is refused
/// without waiting: it would hold up this reload and all later ones.
fn read(path: &Path) -> Result<Vec<u8>, ZoneError> {
    let failed = |source| ZoneError::Read { file: path.to_owned(), source };
    let too_long = || ZoneError::TooLong { file: path.to_owned() };
    let mut file = udpath_files::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(too_long());
    }
    let mut text = Vec::with_capacity(usize::try_from(size).map_err(|_| ZoneError::TooLarge)?);
    // It may grow while it is read.
    file.by_ref().take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE { Err(too_long()) } else { Ok(text) }
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    line: u32,
    /// What is wrong, and what would be right.
    reason: String,
}

impl Fault {
    fn new(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// Whether a zone of this name is loaded.
#[cfg(test)]
pub(super) fn has_zone(records: &Records, wire: &[u8]) -> bool {
    records.zones.iter().any(|zone| zone.apex == super::records::key_of(wire))
}

/// A master file for tests, removed when dropped.
#[cfg(test)]
pub(super) fn file(text: &str) -> tempfile::NamedTempFile {
    use std::io::Write as _;

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[cfg(test)]
mod tests;
