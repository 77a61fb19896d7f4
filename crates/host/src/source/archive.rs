//! A captured machine in one file: a tar archive, compressed with gzip, as `udpath support` writes it.
//!
//! It is read into memory whole, and nothing of it is ever written to disk: a name in it is a key and no path. What no
//! capture of ours holds (links, devices, absolute names, names with `..`) is refused, and so is one that unpacks to more
//! than a machine has to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Component, Path};

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use super::folder::{ANSWERS, INDEX, Index, sort};
use super::recorder::flat;
use super::{Answer, Question, Source};
use crate::{Absence, Fact};

/// Most bytes that are unpacked in all. A machine of 128 queues and 10,000 sockets takes some 30 MiB, mostly of
/// processes; lower: a larger one is refused. Higher: a hostile archive takes more memory before it is.
const MOST: u64 = 512 << 20;
/// Most files and directories, and most bytes of their names in all: a name of many parts makes a directory of each.
/// Such a machine has some 40,000 of 50 bytes.
const FILES: usize = 1_000_000;
const NAMES: usize = 64 << 20;
/// Most bytes of one name, as of any path (`PATH_MAX`).
const NAME: usize = 4096;
/// Most bytes of one file. The longest is the list of 10,000 sockets, some 5 MiB.
const LONGEST: u64 = 64 << 20;

/// An archive that is no capture, or may not be one.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be read, or is no such archive.
    #[error("cannot read it: {0}; wanted is a .tar.gz that `udpath support` wrote")]
    Unreadable(String),
    /// It has an entry that no capture has.
    #[error("its entry '{name}' {why}; no capture has such an entry, so none of it is read")]
    Hostile {
        /// The entry's name, without control characters.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// It unpacks to too much.
    #[error("it unpacks to more than {0}; a capture does not, so none of it is read")]
    Bomb(String),
}

impl From<std::io::Error> for ArchiveError {
    fn from(error: std::io::Error) -> Self {
        // An error may repeat what is wrong, and nothing that drives a terminal.
        Self::Unreadable(printable(&error.to_string()))
    }
}

fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The files of an archive, in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    /// Files by their names, which have no slash in front.
    files: BTreeMap<String, Vec<u8>>,
    /// Directories, those included that are only parts of other names.
    directories: BTreeMap<String, BTreeSet<String>>,
    /// Bytes of all these names.
    names: usize,
}

impl Archive {
    /// Reads an archive's file.
    ///
    /// # Errors
    /// It cannot be read, is no archive, or holds what no capture holds.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        Self::read(BufReader::new(File::open(path)?))
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// As of [`Archive::open`].
    pub fn read(compressed: impl std::io::BufRead) -> Result<Self, ArchiveError> {
        Self::bounded(compressed, MOST)
    }

    fn bounded(compressed: impl std::io::BufRead, most: u64) -> Result<Self, ArchiveError> {
        // One byte more than is allowed, to see that there is more.
        let mut unpacked = MultiGzDecoder::new(compressed).take(most + 1);
        let mut archive = Self::default();
        let mut reader = tar::Archive::new(&mut unpacked);
        for entry in reader.entries()? {
            let mut entry = entry?;
            let name = name(&entry)?;
            match entry.header().entry_type() {
                EntryType::Directory => archive.directory(&name)?,
                EntryType::Regular => {
                    let mut bytes = Vec::new();
                    (&mut entry).take(LONGEST + 1).read_to_end(&mut bytes)?;
                    if bytes.len() as u64 > LONGEST {
                        return Err(ArchiveError::Bomb(format!("{LONGEST} bytes in one file")));
                    }
                    archive.insert(&name, bytes)?;
                }
                other => return Err(hostile(&name, &format!("is no file and no directory ({other:?})"))),
            }
        }
        if unpacked.limit() == 0 {
            return Err(ArchiveError::Bomb(format!("{most} bytes")));
        }
        Ok(archive)
    }

    /// Of the same files as a capture that was made just now.
    pub(crate) fn of(files: &BTreeMap<String, Option<String>>) -> Result<Self, ArchiveError> {
        let mut archive = Self::default();
        for (name, text) in files {
            match text {
                None => archive.directory(name)?,
                Some(text) => archive.insert(name, text.clone().into_bytes())?,
            }
        }
        Ok(archive)
    }

    fn directory(&mut self, name: &str) -> Result<(), ArchiveError> {
        if self.directories.contains_key(name) {
            return Ok(());
        }
        self.count(name)?;
        self.directories.insert(name.to_owned(), BTreeSet::new());
        self.within(name)
    }

    fn insert(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        self.count(name)?;
        self.files.insert(name.to_owned(), bytes);
        self.within(name)
    }

    /// Puts a name into its directory, which is made.
    fn within(&mut self, name: &str) -> Result<(), ArchiveError> {
        let Some((parent, last)) = split(name) else { return Ok(()) };
        self.directory(parent)?;
        self.directories.entry(parent.to_owned()).or_default().insert(last.to_owned());
        Ok(())
    }

    fn count(&mut self, name: &str) -> Result<(), ArchiveError> {
        self.names += name.len();
        let over = self.names > NAMES || self.files.len() + self.directories.len() >= FILES;
        if over { Err(ArchiveError::Bomb(format!("{FILES} names of {NAMES} bytes"))) } else { Ok(()) }
    }

    /// The directories at its top.
    #[must_use]
    pub fn top(&self) -> Vec<&str> {
        self.directories.get("").into_iter().flatten().map(String::as_str).collect()
    }

    /// Is there a directory of that name?
    #[must_use]
    pub fn is_directory(&self, name: &str) -> bool {
        self.directories.contains_key(name)
    }

    /// The machine below one of its directories; the empty name is the archive itself.
    #[must_use]
    pub fn machine(&self, directory: &str) -> Captured<'_> {
        let mut captured = Captured { archive: self, prefix: String::new(), index: Ok(Index::default()) };
        if !directory.is_empty() {
            captured.prefix = format!("{directory}/");
        }
        let file = format!("{ANSWERS}/{INDEX}");
        if let Some(bytes) = self.files.get(&captured.key(&file)) {
            captured.index = serde_json::from_slice(bytes).map_err(|error| format!("{file}: {error}"));
        }
        captured
    }
}

/// A name's directory and its last part; [`None`] of the empty name.
fn split(name: &str) -> Option<(&str, &str)> {
    match name.rsplit_once('/') {
        Some(parts) => Some(parts),
        None => (!name.is_empty()).then_some(("", name)),
    }
}

fn hostile(name: &str, why: &str) -> ArchiveError {
    ArchiveError::Hostile { name: printable(name), why: why.to_owned() }
}

/// An entry's name without `.` parts and without a slash at its ends.
fn name(entry: &tar::Entry<'_, impl Read>) -> Result<String, ArchiveError> {
    let bytes = entry.path_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if text.len() > NAME {
        return Err(hostile(&text, "has a name longer than any path"));
    }
    let mut name = String::new();
    for component in Path::new(&text).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => {
                let part = part.to_str().unwrap_or_default();
                if part.contains(['\0', char::REPLACEMENT_CHARACTER]) {
                    return Err(hostile(&text, "is not UTF-8"));
                }
                if !name.is_empty() {
                    name.push('/');
                }
                name.push_str(part);
            }
            _ => return Err(hostile(&text, "points out of the archive")),
        }
    }
    Ok(name)
}

/// A machine in an archive.
#[derive(Debug, Clone)]
pub struct Captured<'a> {
    archive: &'a Archive,
    /// In front of every name: empty, or it ends in a slash.
    prefix: String,
    index: Result<Index, String>,
}

impl Captured<'_> {
    fn key(&self, path: &str) -> String {
        format!("{}{}", self.prefix, flat(path)).trim_end_matches('/').to_owned()
    }

    fn index(&self) -> Result<&Index, Absence> {
        self.index.as_ref().map_err(|wrong| Absence::NotUnderstood(wrong.clone()))
    }

    /// Why a file or directory is not there.
    fn why(&self, path: &str) -> Absence {
        match self.index() {
            Err(wrong) => wrong,
            Ok(index) => index.absent.get(path).cloned().unwrap_or(Absence::NotCaptured),
        }
    }
}

impl Source for Captured<'_> {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let bytes = self.archive.files.get(&self.key(path)).ok_or_else(|| self.why(path))?;
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| Absence::NotUnderstood(format!("{path} is not UTF-8")))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let names = self.archive.directories.get(&self.key(directory)).ok_or_else(|| self.why(directory))?;
        let mut names: Vec<String> = names.iter().cloned().collect();
        sort(&mut names);
        Ok(names)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        self.index()?.links.get(link).cloned().ok_or_else(|| self.why(link))
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        let file = format!("{ANSWERS}/{}", question.file());
        let bytes = self.archive.files.get(&self.key(&file)).ok_or(Absence::NotCaptured)?;
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|_| Absence::NotUnderstood(format!("{file} is not UTF-8")))?;
        question.decode(text, &file)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// An archive of one entry whose name is written as it is, whatever the library would think of it.
    fn with(name: &str, kind: EntryType, bytes: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, bytes).unwrap();
        compressed(&builder.into_inner().unwrap())
    }

    fn refused(bytes: &[u8]) -> String {
        Archive::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_no_capture_holds_is_refused() {
        for name in ["../proc/stat", "now/../../x", "/etc/passwd"] {
            let told = refused(&with(name, EntryType::Regular, b"x"));
            assert!(told.contains(name) && told.contains("points out of the archive"), "{told}");
        }
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo]
        {
            let told = refused(&with("now/proc/stat", kind, b""));
            assert!(told.contains("is no file and no directory"), "{told}");
        }
        let told = refused(&with("now/\u{1b}[31m/../../x", EntryType::Regular, b""));
        assert!(told.contains("now/ [31m/../../x"), "{told}");
    }

    #[test]
    fn what_is_no_archive_or_cut_is_told() {
        assert!(refused(b"no archive").contains("cannot read it"));
        assert!(refused(&compressed(b"no archive, and not short at all")).contains("cannot read it"));
        let whole = with("now/proc/stat", EntryType::Regular, &[b'x'; 4000]);
        assert!(Archive::read(&whole[..]).is_ok());
        assert!(refused(&whole[..whole.len() / 2]).contains("cannot read it"));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let large = with("now/proc/stat", EntryType::Regular, &[b'x'; 1 << 20]);
        let told = Archive::bounded(&large[..], 1 << 19).unwrap_err();
        assert!(large.len() < 1 << 14, "{}", large.len());
        assert!(matches!(told, ArchiveError::Unreadable(_) | ArchiveError::Bomb(_)), "{told}");
        assert!(Archive::bounded(&large[..], 2 << 20).is_ok());
        // A name of many parts makes a directory of each.
        let mut archive = Archive { names: NAMES, ..Archive::default() };
        assert!(matches!(archive.directory("a/b"), Err(ArchiveError::Bomb(_))));
    }

    #[test]
    fn names_and_texts_are_found_as_in_a_folder() {
        let files = [
            ("now/sys/class/net/eth0/queues/rx-10/rps_cpus", Some("f\n")),
            ("now/sys/class/net/eth0/queues/rx-2", None),
            ("now/sys/class/net/eth0/numa_node", Some("1\n")),
            ("now/udpath/files.json", Some(r#"{"absent": {"/proc/net/packet": "not-there"}}"#)),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.map(str::to_owned)));
        let archive = Archive::of(&files.into()).unwrap();
        assert_eq!(archive.top(), ["now"]);
        let machine = archive.machine("now");
        assert_eq!(machine.names("/sys/class/net/eth0/queues").unwrap(), ["rx-2", "rx-10"]);
        assert_eq!(machine.text("/sys/class/net/eth0/device/../numa_node"), Ok("1\n".into()));
        assert_eq!(machine.text("/proc/net/packet"), Err(Absence::NotThere));
        assert_eq!(machine.text("/proc/stat"), Err(Absence::NotCaptured));
        assert_eq!(machine.names("/proc"), Err(Absence::NotCaptured));
        assert_eq!(machine.ask(&Question::Links), Err(Absence::NotCaptured));
    }
}
