//! Loads zones from master files (RFC 1035, 5): NLnet Labs' `domain` reads the records, [`Records`] keeps what they say.
//!
//! ```text
//! file ─ text: entries ─ entry: directives, owners, TTLs ─▸ lines of one form ─ domain ─▸ data: well-formed? ─▸ Records
//!                          └ generate: $GENERATE                                    every fault with its line ─▸ error
//! ```

mod data;
mod entry;
mod fields;
mod generate;
mod text;
mod types;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use domain::base::iana::{Class, Rtype};
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

use self::entry::{Said, State};
use self::generate::Template;
use self::text::{Scanner, Token};
use super::name;
use super::records::{Record, Records, TooLarge, Unplaced, Zone};
use super::wire::rtype;

/// Deepest `$INCLUDE`. Higher: a file that includes itself is read more often before the error. Lower: valid nesting may be refused.
const MAX_INCLUDE: usize = 8;
/// Bytes of records read at once. Fewer: more readers are made; more: more memory beside the file.
const LINES: usize = 1 << 16;
/// Most faults named. Fewer: a file takes more rounds to mend; more: nobody reads them.
const MAX_FAULTS: usize = 20;
/// Most faults kept until they are in order: a file may be nothing but faults.
const KEPT_FAULTS: usize = 10_000;

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
        let mut loader = Loader {
            records: &mut records,
            zone,
            soa: None,
            lines: Vec::new(),
            places: Vec::new(),
            owner: Vec::new(),
            data: Vec::new(),
            signed: false,
            faults: Vec::new(),
            more_faults: 0,
        };
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

/// Loads one zone: records of the files become lines of one form, and `domain` reads those.
struct Loader<'a> {
    records: &'a mut Records,
    zone: u16,
    soa: Option<Record>,
    /// Lines not read yet, and of each where it begins and the line of the file that it came from.
    lines: Vec<u8>,
    places: Vec<(usize, u32)>,
    /// Of the record that is added.
    owner: Vec<u8>,
    data: Vec<u8>,
    /// It has been said that there are signatures.
    signed: bool,
    /// By file and line.
    faults: Vec<(u16, Fault)>,
    /// Beyond those.
    more_faults: usize,
}

impl Loader<'_> {
    /// Takes all records of a file and of those it includes.
    fn scan(&mut self, path: &Path, text: &[u8], mut state: State, depth: usize) -> Result<(), ZoneError> {
        let files = self.records.files.len();
        let file = u16::try_from(files).map_err(|_| ZoneError::TooMany(files))?;
        self.records.files.push(path.to_owned());
        let mut scanner = Scanner::new(text, 1);
        let mut tokens = Vec::new();
        while let Some(entry) = scanner.next(&mut tokens) {
            let place = match entry {
                Ok(place) => place,
                Err(fault) => {
                    self.fault(file, fault);
                    continue;
                }
            };
            let start = self.lines.len();
            match state.read(place, &tokens, &mut self.lines) {
                Ok(Said::Nothing) => {}
                Ok(Said::Record) => self.places.push((start, place.line)),
                Ok(Said::Generate) => self.generate(file, place.line, &tokens[1..], &mut state)?,
                Ok(Said::Include { file: name, origin }) => {
                    self.flush(file)?;
                    let included = path.parent().unwrap_or(Path::new("")).join(name);
                    if depth == MAX_INCLUDE {
                        let reason = format!(
                            "$INCLUDE of {}: more than {MAX_INCLUDE} files inside each other",
                            included.display()
                        );
                        self.fault(file, Fault::new(place.line, reason));
                        continue;
                    }
                    let inner = state.inside(origin);
                    self.scan(&included, &read(&included)?, inner, depth + 1)?;
                }
                Err(fault) => self.fault(file, fault),
            }
            if self.lines.len() > LINES {
                self.flush(file)?;
            }
        }
        self.flush(file)
    }

    /// The records of a `$GENERATE`.
    fn generate(
        &mut self,
        file: u16,
        line: u32,
        tokens: &[Token<'_>],
        state: &mut State,
    ) -> Result<(), ZoneError> {
        let template = match Template::new(tokens) {
            Ok(template) => template,
            Err(reason) => {
                self.fault(file, Fault::new(line, reason));
                return Ok(());
            }
        };
        for number in template.numbers() {
            let text = template.text(number);
            let mut tokens = Vec::new();
            let start = self.lines.len();
            let read = match Scanner::new(&text, line).next(&mut tokens) {
                Some(Ok(place)) => state.read(place, &tokens, &mut self.lines),
                Some(Err(fault)) => Err(fault),
                None => Ok(Said::Nothing),
            };
            match read {
                Ok(_) => self.places.push((start, line)),
                Err(fault) => {
                    self.fault(file, fault);
                    // The others would be wrong in the same way.
                    break;
                }
            }
            if self.lines.len() > LINES {
                self.flush(file)?;
            }
        }
        Ok(())
    }

    /// Has the lines read, and takes their records.
    fn flush(&mut self, file: u16) -> Result<(), ZoneError> {
        let (lines, places) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.places));
        let mut next = 0;
        while let Some((start, _)) = places.get(next) {
            let mut zonefile = Zonefile::with_capacity(lines.len() - start);
            zonefile.extend_from_slice(&lines[*start..]);
            zonefile.set_default_class(Class::IN);
            // One entry for each line; after an error the reader begins again with the next.
            loop {
                let line = places.get(next).map_or(0, |(_, line)| *line);
                match zonefile.next_entry() {
                    Ok(Some(Entry::Record(record))) => self.add(&record, file, line)?,
                    Ok(Some(Entry::Include { .. })) => {}
                    Ok(None) => break,
                    Err(error) => {
                        let start = places.get(next).map_or(0, |(start, _)| *start);
                        let reason = reason(&error.to_string(), &lines[start..]);
                        self.fault(file, Fault::new(line, reason));
                        next += 1;
                        break;
                    }
                }
                next += 1;
            }
        }
        (self.lines, self.places) = (lines, places);
        self.lines.clear();
        self.places.clear();
        Ok(())
    }

    fn fault(&mut self, file: u16, fault: Fault) {
        if self.faults.len() < KEPT_FAULTS {
            self.faults.push((file, fault));
        } else {
            self.more_faults += 1;
        }
    }

    fn add(&mut self, record: &ScannedRecord, file: u16, line: u32) -> Result<(), ZoneError> {
        let rtype = record.rtype().to_int();
        self.owner.clear();
        self.data.clear();
        // Appending to a vector cannot fail.
        let _ = record.owner().compose_canonical(&mut self.owner);
        let _ = record.data().compose_rdata(&mut self.data);
        if rtype == 0 || rtype == rtype::OPT || (rtype::FIRST_META..=rtype::ANY).contains(&rtype) {
            let reason = format!("{} is a type of queries, not of records: remove it", record.rtype());
            self.fault(file, Fault::new(line, reason));
            return Ok(());
        }
        if rtype == rtype::RRSIG && !self.signed {
            self.signed = true;
            let reason = "the zone is signed, but no signatures are sent: load it without RRSIG and NSEC records, or serve it \
                          with a server that sends them (NSD, Knot)";
            self.fault(file, Fault::new(line, reason));
        }
        if let Err(reason) = data::check(record.rtype(), &self.data) {
            self.fault(file, Fault::new(line, reason));
            return Ok(());
        }
        let numbers = Unplaced { ttl: record.ttl().as_secs(), line, rtype, zone: self.zone, file };
        let added = self.records.push(&self.owner, &self.data, numbers)?;
        if rtype == rtype::SOA {
            if let Some(first) = &self.soa {
                let reason = format!(
                    "a second SOA record; the first is of {} on line {}: a zone has one",
                    self.records.name(first),
                    first.line
                );
                self.fault(file, Fault::new(line, reason));
                return Ok(());
            }
            self.soa = Some(added);
        }
        Ok(())
    }

    /// The SOA record, if there is one and nothing was wrong.
    fn finish(mut self) -> Result<Option<Record>, ZoneError> {
        if self.faults.is_empty() {
            return Ok(self.soa);
        }
        self.faults.sort_by_key(|(file, fault)| (*file, fault.line));
        let shown = |(file, Fault { line, reason }): &(u16, Fault)| {
            let file = self.records.files.get(usize::from(*file)).map_or(Path::new(""), PathBuf::as_path);
            format!("{}:{line}: {reason}", file.display())
        };
        let mut all: Vec<String> = self.faults.iter().take(MAX_FAULTS).map(shown).collect();
        let more = self.faults.len() - all.len() + self.more_faults;
        all.extend((more > 0).then(|| format!("and {more} more")));
        Err(ZoneError::Faults(all.join("; ")))
    }
}

/// What an error of `domain`, which it writes as `line:column: reason`, says, with what would be right where it does not say that.
/// `line` begins with the line.
fn reason(error: &str, line: &[u8]) -> String {
    let reason = error.splitn(3, ':').last().unwrap_or(error).trim();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let rtype = line.split(|byte| *byte == b' ').nth(3).map(String::from_utf8_lossy).unwrap_or_default();
    let generic = rtype.parse::<Rtype>().ok().filter(|rtype| !data::has_text(*rtype));
    match generic {
        Some(number) => {
            format!(
                "type {rtype} is read in the generic form only: write `TYPE{} \\# LENGTH HEX`",
                number.to_int()
            )
        }
        None => format!("{rtype}: {reason}"),
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
