//! Loads zones from master files (RFC 1035, 5): NLnet Labs' `domain` reads the records, [`Records`] keeps what they
//! say.
//!
//! ```text
//! file ─ text: entries ─ entry: directives, owners, TTLs ─▸ lines of one form ─ domain ─▸ data: well-formed? ─▸ Records
//!                          ├ fields, types: data by type                           └ loader: every fault with its line ─▸ faults
//!                          └ generate: $GENERATE                                      conflicts: records that exclude each other
//!                                                                                     hashing: NSEC3 that costs too much
//! ```

mod conflicts;
mod data;
mod entry;
mod faults;
mod fields;
mod generate;
mod hashing;
mod loader;
mod text;
mod types;

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub(super) use self::conflicts::MAX_TYPES;
pub(super) use self::faults::Faults;
pub(super) use self::hashing::Nsec3Params;

use self::entry::State;
use self::faults::{Costs, Fault};
use self::loader::Loader;
use super::records::{Records, TooLarge, Unplaced, Zone, key_of, wire_of};

/// Longest master file, in bytes: some 25 million names. Lower: large zones are refused; higher: a wrong file, such as
/// an endless log, takes as much memory before it is refused.
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
    /// All lines that have faults, by file: each with what is wrong and what would be right.
    #[error("{0}")]
    Faults(String),
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

/// Loads one zone from each file. What is wrong is left out, and said in the faults.
pub(super) fn load(files: &[PathBuf]) -> Result<(Records, Faults), ZoneError> {
    let (mut records, mut faults) = (Records::default(), Faults::default());
    let mut failed: Vec<(u16, Vec<u8>)> = Vec::new();
    for (number, option) in files.iter().enumerate() {
        let source = u16::try_from(number).map_err(|_| ZoneError::TooMany(files.len()))?;
        let first = records.list.len();
        let (origin, file) = named(option);
        match one(&mut records, source, origin.clone(), &file, &mut faults)? {
            Ok(zone) => records.zones.push(zone),
            Err(apex) => {
                records.list.truncate(first);
                faults.zone(source);
                failed.extend(apex.or_else(|| key_of_text(&origin?)).map(|apex| (source, apex)));
            }
        }
    }
    for (source, apex) in failed {
        if records.zones.iter().all(|zone| zone.apex != apex) {
            leave_out(&mut records, source, apex)?;
        }
    }
    records.sort();
    conflicts::leave_out(&mut records, &mut faults);
    conflicts::leave_out_hidden(&mut records, &mut faults);
    Ok((records, faults))
}

/// Loads a zone. If it is to be left out: the key of its apex, if that is known.
fn one(
    records: &mut Records,
    source: u16,
    origin: Option<Vec<u8>>,
    file: &Path,
    faults: &mut Faults,
) -> Result<Result<Zone, Option<Vec<u8>>>, ZoneError> {
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => {
            faults.say(source, &error);
            return Ok(Err(None));
        }
    };
    let zone = u16::try_from(records.zones.len()).map_err(|_| ZoneError::TooMany(records.zones.len()))?;
    let mut loader = Loader::new(records, zone);
    loader.scan(file, &text, State::new(origin.clone()))?;
    let found = loader.finish();
    for (file, Fault { line, reason, costs, records: count }) in found.faults {
        let file = records.files.get(usize::from(file)).map_or(Path::new(""), PathBuf::as_path);
        let text = format!("{}:{line}: {reason}", file.display());
        match costs {
            Costs::Record => faults.records(source, count, text),
            Costs::Zone => faults.say(source, text),
        }
    }
    faults.and_more(source, found.more, found.more_records);
    let Some(soa) = found.soa else {
        let reason = "no SOA record: a zone has one, and its owner is the zone's name";
        faults.say(source, format!("{}: {reason}", file.display()));
        return Ok(Err(None));
    };
    let apex = records.key(&soa).to_vec();
    if let Some(name) = origin.as_deref()
        && key_of_text(name).is_some_and(|key| key != apex)
    {
        let (owner, name) = (records.name(&soa), String::from_utf8_lossy(name));
        let reason = format!(
            "the SOA record is that of {owner}, but the file is loaded as the zone {name}: correct one of them (a name without a final \
             dot gets the origin added)"
        );
        faults.say(source, format!("{}: {reason}", records.place(&soa)));
        return Ok(Err(None));
    }
    if let Some(same) = records.zones.iter().find(|zone| zone.apex == apex) {
        let reason = format!("this zone is loaded from {} already", records.place(&same.soa));
        faults.say(source, format!("{}: {reason}", records.place(&soa)));
        return Ok(Err(None));
    }
    match found.costs {
        Some(Costs::Zone) => Ok(Err(Some(apex))),
        _ => Ok(Ok(Zone { apex, soa, source, left_out: false })),
    }
}

/// Adds a zone of whose names all questions fail: with what is around it they would get wrong answers.
fn leave_out(records: &mut Records, source: u16, apex: Vec<u8>) -> Result<(), ZoneError> {
    let zone = u16::try_from(records.zones.len()).map_err(|_| ZoneError::TooMany(records.zones.len()))?;
    let mut owner = Vec::new();
    wire_of(&apex, &mut owner);
    let soa = records.push(&owner, &[], Unplaced { ttl: 0, line: 0, rtype: 0, zone, file: 0 })?;
    records.zones.push(Zone { apex, soa, source, left_out: true });
    Ok(())
}

/// The key of a name in text form.
fn key_of_text(text: &[u8]) -> Option<Vec<u8>> {
    let name: domain::base::Name<Vec<u8>> = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(key_of(name.as_slice()))
}

/// The option's value `NAME=FILE`: the zone's name, which is the file's first origin, and the file. A file whose own
/// name has such a form is taken as one. Of several `=` it is the one before a file that exists, else the first.
fn named(option: &Path) -> (Option<Vec<u8>>, PathBuf) {
    let text = option.to_str().filter(|_| !option.exists()).unwrap_or_default();
    let mut splits = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let first = splits.clone().find(|(name, _)| is_name(name));
    match splits.find(|(name, file)| is_name(name) && Path::new(file).exists()).or(first) {
        Some((name, file)) => {
            let mut origin = name.trim_end_matches('.').as_bytes().to_vec();
            origin.push(b'.');
            (Some(origin), file.into())
        }
        _ => (None, option.to_owned()),
    }
}

/// Whether it may be a zone's name, which may have a slash (RFC 2317, 4), and no absolute path. A path from `.` or `..`
/// has an empty label.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('/') && text.parse::<domain::base::Name<Vec<u8>>>().is_ok()
}

/// Reads a regular file piece by piece: it is in memory once. Anything else, such as a FIFO that never has a writer, is
/// refused without waiting: it would hold up this reload and all later ones.
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

/// Whether a zone of this name is loaded.
#[cfg(test)]
pub(super) fn has_zone(records: &Records, wire: &[u8]) -> bool {
    records.zones.iter().any(|zone| zone.apex == key_of(wire))
}

/// The zones of files without faults, for tests.
#[cfg(test)]
pub(super) fn whole(files: &[PathBuf]) -> Result<Records, ZoneError> {
    let (records, faults) = load(files)?;
    if faults.is_empty() { Ok(records) } else { Err(ZoneError::Faults(faults.to_string())) }
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
