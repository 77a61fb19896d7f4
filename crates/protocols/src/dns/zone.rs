//! Loads zones from master files (RFC 1035, 5): NLnet Labs' `domain` reads them, [`Records`] keeps what they say.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use domain::base::iana::Class;
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

use super::name;
use super::records::{Record, Records, TooLarge, Unplaced, Zone};
use super::wire::rtype;

/// Deepest `$INCLUDE`. Higher: a file that includes itself is read more often before the error. Lower: valid nesting may be refused.
const MAX_INCLUDE: usize = 8;
/// Longest TTL in seconds; a greater one counts as 0 (RFC 2181, 8).
const MAX_TTL: u32 = i32::MAX as u32;

/// Bytes of a file read at once. Fewer: more system calls; more: nothing gained.
const READ_LEN: usize = 1 << 16;

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
        let mut loader =
            Loader { records: &mut records, zone, soa: None, owner: Vec::new(), data: Vec::new() };
        let source = Source::read(file)?;
        loader.scan(source, 0)?;
        let soa = loader.soa.ok_or_else(|| ZoneError::NoSoa { file: file.clone() })?;
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

/// A file that is being read.
struct Source {
    path: PathBuf,
    zonefile: Zonefile,
    /// Where lines end, so that a record's line is known: `domain` reports it for its own errors only.
    line_ends: Vec<u32>,
}

impl Source {
    /// Reads a regular file piece by piece: it is in memory once. Anything else, such as a FIFO that never has a writer, is refused
    /// without waiting: it would hold up this reload and all later ones.
    fn read(path: &Path) -> Result<Self, ZoneError> {
        let failed = |source| ZoneError::Read { file: path.to_owned(), source };
        let too_long = || ZoneError::TooLong { file: path.to_owned() };
        let mut file = udpath_files::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size > MAX_FILE {
            return Err(too_long());
        }
        let mut zonefile = Zonefile::with_capacity(usize::try_from(size).map_err(|_| ZoneError::TooLarge)?);
        let mut line_ends = Vec::new();
        let mut piece = vec![0; READ_LEN];
        let mut read = 0_usize;
        loop {
            let len = file.read(&mut piece).map_err(failed)?;
            if len == 0 {
                break;
            }
            for (at, _) in piece[..len].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                line_ends.push(u32::try_from(read + at).map_err(|_| ZoneError::TooLarge)?);
            }
            read += len;
            // It grows while it is read.
            if read as u64 > MAX_FILE {
                return Err(too_long());
            }
            zonefile.extend_from_slice(&piece[..len]);
        }
        // The last line may lack its end.
        zonefile.extend_from_slice(b"\n");
        zonefile.set_default_class(Class::IN);
        Ok(Self { path: path.to_owned(), zonefile, line_ends })
    }
}

/// Loads one zone.
struct Loader<'a> {
    records: &'a mut Records,
    zone: u16,
    soa: Option<Record>,
    owner: Vec<u8>,
    data: Vec<u8>,
}

impl Loader<'_> {
    /// Takes all records of a file and of those it includes.
    fn scan(&mut self, mut source: Source, depth: usize) -> Result<(), ZoneError> {
        let files = self.records.files.len();
        let file = u16::try_from(files).map_err(|_| ZoneError::TooMany(files))?;
        self.records.files.push(source.path.clone());
        let mut lines = 0;
        loop {
            let entry = source
                .zonefile
                .next_entry()
                .map_err(|error| syntax_error(&source.path, &error.to_string()))?;
            // The scanner's text begins one byte ahead.
            let offset = source.zonefile.current_offset().saturating_sub(1);
            while source.line_ends.get(lines).is_some_and(|end| (*end as usize) < offset) {
                lines += 1;
            }
            let line = u32::try_from(lines).unwrap_or(u32::MAX).saturating_add(1);
            match entry {
                None => return Ok(()),
                Some(Entry::Record(record)) => self.add(&record, file, line)?,
                Some(Entry::Include { path, origin }) => {
                    let included = source.path.parent().unwrap_or(Path::new("")).join(&*path);
                    if depth == MAX_INCLUDE {
                        let reason = format!(
                            "$INCLUDE of {}: more than {MAX_INCLUDE} files inside each other",
                            included.display()
                        );
                        return Err(ZoneError::Record { file: source.path, line, reason });
                    }
                    let mut inner = Source::read(&included)?;
                    // Without an origin of its own it has that of the line (RFC 1035, 5.1).
                    if let Some(origin) = origin.or_else(|| source.zonefile.origin().ok()) {
                        inner.zonefile.set_origin(origin);
                    }
                    self.scan(inner, depth + 1)?;
                }
            }
        }
    }

    fn add(&mut self, record: &ScannedRecord, file: u16, line: u32) -> Result<(), ZoneError> {
        let rtype = record.rtype().to_int();
        self.owner.clear();
        self.data.clear();
        // Appending to a vector cannot fail.
        let _ = record.owner().compose_canonical(&mut self.owner);
        let _ = record.data().compose_rdata(&mut self.data);
        let ttl = record.ttl().as_secs();
        let numbers =
            Unplaced { ttl: if ttl > MAX_TTL { 0 } else { ttl }, line, rtype, zone: self.zone, file };
        let added = self.records.push(&self.owner, &self.data, numbers)?;
        if rtype == 0 || rtype == rtype::OPT || (rtype::FIRST_META..=rtype::ANY).contains(&rtype) {
            let reason = format!("{} is a type of queries, not of records: remove it", record.rtype());
            return Err(self.records.error(&added, reason));
        }
        if rtype == rtype::SOA {
            if let Some(first) = &self.soa {
                let reason = format!(
                    "a second SOA record; the first is of {} on line {}: a zone has one",
                    self.records.name(first),
                    first.line
                );
                return Err(self.records.error(&added, reason));
            }
            self.soa = Some(added);
        }
        Ok(())
    }
}

/// An error of `domain`, which it writes as `line:column: reason`, with what would be right where it does not say that.
fn syntax_error(file: &Path, error: &str) -> ZoneError {
    let mut parts = error.splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let (line, column) = (number().unwrap_or(1), number());
    let reason = parts.next().unwrap_or(error).trim();
    // It has read on to the beginning of the next token, which may be on the next line.
    let line = if column == Some(1) && line > 1 { line - 1 } else { line };
    let hint = if reason.contains("missing origin") {
        " (a relative name needs a line `$ORIGIN example.org.` before it)"
    } else {
        ""
    };
    ZoneError::Record { file: file.to_owned(), line, reason: format!("{reason}{hint}") }
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
