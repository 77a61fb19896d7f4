//! A captured machine in one file: a gzip-compressed tar archive, as written by `udpath support`.
//!
//! The archive is read into memory and never unpacked to disk: a name in it is a key, not a path. Entries that no
//! capture contains (links, devices, absolute names, names with `..`) are rejected, and so is an archive that unpacks
//! to more than a machine can produce: the number of entries, the size of each, and the memory for all of them are
//! limited.

mod captured;
mod entry;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use std::ops::Bound;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use tar::{EntryType, PaxExtensions};

pub use captured::Captured;
pub use entry::ArchiveError;

use entry::{NAME, hostile, name, short};
use udpath_host::source::MAX_FILE;

/// Maximum unpacked size, headers included, and maximum memory for the contents. A machine with 128 queues and 10,000
/// sockets takes some 30 MiB, mostly for processes. Lower: a larger machine is rejected. Higher: a hostile archive uses
/// more memory before it is rejected.
const MOST: u64 = 128 << 20;
/// Maximum number of entries: files and directories. Such a machine has some 40,000 in two snapshots. Lower: a machine
/// with many more sockets is rejected. Higher: a hostile archive of empty files uses more memory before it is rejected.
const ENTRIES: usize = 200_000;
/// Memory for an entry in addition to its name and text, bytes: the space in the map, which is half full at worst, and
/// the allocator overhead of two allocations.
const ENTRY: u64 = 112;
/// Maximum size of the pax records before an entry (names, times, owners). Some 200 bytes are usual.
const RECORDS: u64 = 64 << 10;

/// The files of an archive, in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    /// Files, and directories with entries of their own ([`None`]), by name without a leading slash. Other directories
    /// are derived from the names below them.
    entries: BTreeMap<Box<str>, Option<Box<[u8]>>>,
    /// Memory they use, bytes.
    size: u64,
}

impl Archive {
    /// Reads an archive's file.
    ///
    /// # Errors
    /// It cannot be read, is not an archive, or contains what no capture contains.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        Self::read(BufReader::new(udpath_files::input(path)?))
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// As for [`Archive::open`].
    pub fn read(compressed: impl std::io::BufRead) -> Result<Self, ArchiveError> {
        Self::bounded(compressed, MOST)
    }

    fn bounded(compressed: impl std::io::BufRead, most: u64) -> Result<Self, ArchiveError> {
        // One byte more than allowed, to detect an excess.
        let mut unpacked = MultiGzDecoder::new(compressed).take(most + 1);
        let read = Self::unpack(&mut unpacked);
        // Check the limit first, whatever error the reader made of the early end.
        if unpacked.limit() == 0 {
            return Err(ArchiveError::Bomb(format!("{} MiB", most >> 20)));
        }
        read
    }

    /// Entries are read raw: the library would read a long name completely, however long it is.
    fn unpack(unpacked: impl Read) -> Result<Self, ArchiveError> {
        let mut archive = Self::default();
        let mut reader = tar::Archive::new(unpacked);
        // The name from a record before an entry.
        let mut named: Option<Vec<u8>> = None;
        for entry in reader.entries()?.raw(true) {
            let mut entry = entry?;
            match entry.header().entry_type() {
                EntryType::GNULongName => {
                    let mut text = short(&mut entry, NAME as u64 + 1, "a name longer than any path")?;
                    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
                    named = Some(text);
                    continue;
                }
                EntryType::XHeader => {
                    let text = short(&mut entry, RECORDS, "records longer than any pax writes")?;
                    let records = PaxExtensions::new(&text).filter_map(Result::ok);
                    let path = records.filter(|record| record.key_bytes() == b"path").last();
                    named = path.map(|record| record.value_bytes().to_vec()).or(named);
                    continue;
                }
                // For the whole archive, such as a comment.
                EntryType::XGlobalHeader => continue,
                _ => {}
            }
            let bytes = named.take().map_or_else(|| entry.path_bytes(), Cow::Owned);
            let name = name(&bytes)?;
            drop(bytes);
            match entry.header().entry_type() {
                EntryType::Directory => archive.insert(&name, None)?,
                EntryType::Regular => {
                    let text = short(&mut entry, MAX_FILE, "more bytes than any file of a capture")?;
                    archive.insert(&name, Some(text))?;
                }
                other => {
                    return Err(hostile(&name, &format!("is neither a file nor a directory ({other:?})")));
                }
            }
        }
        Ok(archive)
    }

    /// From the files of a capture that was just made.
    pub(crate) fn of(files: &BTreeMap<String, Option<String>>) -> Result<Self, ArchiveError> {
        let mut archive = Self::default();
        for (name, text) in files {
            archive.insert(name, text.clone().map(String::into_bytes))?;
        }
        Ok(archive)
    }

    /// Adds a file or a directory. Of two with the same name the last wins, as in tar; a directory does not replace a
    /// file.
    fn insert(&mut self, name: &str, text: Option<Vec<u8>>) -> Result<(), ArchiveError> {
        if text.is_none() && self.entries.contains_key(name) {
            return Ok(());
        }
        self.size += ENTRY + name.len() as u64 + text.as_ref().map_or(0, Vec::len) as u64;
        if self.entries.len() >= ENTRIES {
            return Err(ArchiveError::Bomb(format!("{ENTRIES} files and directories")));
        }
        if self.size > MOST {
            return Err(ArchiveError::Bomb(format!("{} MiB of memory", MOST >> 20)));
        }
        self.entries.insert(name.into(), text.map(Vec::into_boxed_slice));
        Ok(())
    }

    /// The file of a name.
    fn file(&self, name: &str) -> Option<&[u8]> {
        self.entries.get(name)?.as_deref()
    }

    /// The names in a directory; `None` if it does not exist.
    fn names(&self, directory: &str) -> Option<BTreeSet<&str>> {
        let start = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let mut names = BTreeSet::new();
        let mut from = Bound::Included(start.clone());
        // From each name skip to the first that is not below it: as many steps as there are names, not entries.
        while let Some((path, _)) =
            self.entries.range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded)).next()
            && let Some(rest) = path.strip_prefix(start.as_str())
        {
            let (name, below) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
            if !name.is_empty() {
                names.insert(name);
            }
            from = if below {
                // '0' follows '/'.
                Bound::Included(format!("{start}{name}0"))
            } else {
                Bound::Excluded(path.to_string())
            };
        }
        let is_entry = matches!(self.entries.get(directory), Some(None));
        (is_entry || !names.is_empty()).then_some(names)
    }

    /// The directories and files at its top.
    #[must_use]
    pub fn top(&self) -> Vec<&str> {
        self.names("").into_iter().flatten().collect()
    }

    /// Does this directory exist?
    #[must_use]
    pub fn is_directory(&self, name: &str) -> bool {
        let within = format!("{name}/");
        let first = self.entries.range::<str, _>((Bound::Included(within.as_str()), Bound::Unbounded)).next();
        matches!(self.entries.get(name), Some(None))
            || first.is_some_and(|(path, _)| path.starts_with(&within))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use udpath_host::Absence;
    use udpath_host::source::{Question, Source};

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// An archive of one entry whose name is written unchanged, even if the library would reject it.
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
    fn entries_no_capture_contains_are_rejected() {
        for name in ["../proc/stat", "now/../../x", "/etc/passwd"] {
            let told = refused(&with(name, EntryType::Regular, b"x"));
            assert!(told.contains(name) && told.contains("points out of the archive"), "{told}");
        }
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo]
        {
            let told = refused(&with("now/proc/stat", kind, b""));
            assert!(told.contains("is neither a file nor a directory"), "{told}");
        }
        let told = refused(&with("now/\u{1b}[31m/../../x", EntryType::Regular, b""));
        assert!(told.contains("now/ [31m/../../x"), "{told}");
    }

    #[test]
    fn invalid_and_truncated_archives_are_rejected() {
        assert!(refused(b"no archive").contains("cannot read it"));
        assert!(refused(&compressed(b"no archive, and not short at all")).contains("cannot read it"));
        let whole = with("now/proc/stat", EntryType::Regular, &[b'x'; 4000]);
        assert!(Archive::read(&whole[..]).is_ok());
        assert!(refused(&whole[..whole.len() / 2]).contains("cannot read it"));
    }

    #[test]
    fn a_bomb_is_rejected_before_it_is_unpacked() {
        let large = with("now/proc/stat", EntryType::Regular, &[b'x'; 1 << 20]);
        let told = Archive::bounded(&large[..], 1 << 19).unwrap_err();
        assert!(large.len() < 1 << 14, "{}", large.len());
        assert!(Archive::bounded(&large[..], 2 << 20).is_ok());
        assert!(matches!(told, ArchiveError::Bomb(_)), "{told}");
    }

    #[test]
    fn too_many_entries_are_rejected() {
        let empty = |count: usize| {
            let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            for number in 0..count {
                let mut header = tar::Header::new_gnu();
                header.set_size(0);
                builder.append_data(&mut header, format!("now/proc/{number}/comm"), &[][..]).unwrap();
            }
            builder.into_inner().unwrap().finish().unwrap()
        };
        assert_eq!(
            refused(&empty(ENTRIES + 1)),
            "it unpacks to more than 200000 files and directories, which no capture does, so the archive was rejected"
        );
        let archive = Archive::read(&empty(1000)[..]).unwrap();
        assert_eq!(archive.machine("now").names("/proc").unwrap().len(), 1000);
        assert!(archive.is_directory("now/proc/7") && !archive.is_directory("now/proc/7/comm"));
    }

    #[test]
    fn long_names_are_read_up_to_the_path_limit() {
        let name = format!("now/sys/fs/cgroup/{}/cpu.max", "s".repeat(200));
        let record = |name: &str| {
            let text = format!(" path={name}\n");
            let length = text.len() + (text.len() + 3).to_string().len();
            format!("{length}{text}")
        };
        let in_front = |kind: EntryType, text: &str| {
            let mut builder = tar::Builder::new(Vec::new());
            for (kind, text) in [(kind, text), (EntryType::Regular, "max 100000")] {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(text.len() as u64);
                header.set_path("cut").unwrap();
                header.set_cksum();
                builder.append(&header, text.as_bytes()).unwrap();
            }
            compressed(&builder.into_inner().unwrap())
        };
        for bytes in [
            in_front(EntryType::GNULongName, &format!("{name}\0")),
            in_front(EntryType::XHeader, &record(&name)),
        ] {
            let archive = Archive::read(&bytes[..]).unwrap();
            assert_eq!(archive.file(&name), Some(&b"max 100000"[..]), "{archive:?}");
        }
        let long = refused(&in_front(EntryType::GNULongName, &"n".repeat(1 << 20)));
        assert!(long.contains("longer than any path"), "{long}");
        let long = refused(&in_front(EntryType::XHeader, &record(&"n".repeat(1 << 20))));
        assert!(long.contains("longer than any pax writes"), "{long}");
        let out = refused(&in_front(EntryType::XHeader, &record("../x")));
        assert!(out.contains("points out of the archive"), "{out}");
    }

    #[test]
    fn names_and_texts_are_found_as_in_a_folder() {
        let files = [
            ("now/sys/class/net/eth0/queues/rx-10/rps_cpus", Some("f\n")),
            ("now/sys/class/net/eth0/queues/rx-2", None),
            // Sorts between a directory and its contents.
            ("now/sys/class/net/eth0/device", None),
            ("now/sys/class/net/eth0/device-a", Some("")),
            ("now/sys/class/net/eth0/device/x", Some("")),
            ("now/sys/class/net/eth0/numa_node", Some("1\n")),
            ("now/udpath/files.json", Some(r#"{"absent": {"/proc/net/packet": "not-there"}}"#)),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.map(str::to_owned)));
        let archive = Archive::of(&files.into()).unwrap();
        assert_eq!(archive.top(), ["now"]);
        let machine = archive.machine("now");
        assert_eq!(machine.names("/sys/class/net/eth0/queues").unwrap(), ["rx-2", "rx-10"]);
        assert_eq!(
            machine.names("/sys/class/net/eth0").unwrap(),
            ["device", "device-a", "numa_node", "queues"]
        );
        assert_eq!(machine.names("/sys/class/net/eth0/queues/rx-2"), Ok(Vec::new()));
        assert_eq!(machine.text("/sys/class/net/eth0/device/../numa_node"), Ok("1\n".into()));
        assert_eq!(machine.text("/proc/net/packet"), Err(Absence::NotThere));
        assert_eq!(machine.text("/proc/stat"), Err(Absence::NotCaptured));
        assert_eq!(machine.names("/proc"), Err(Absence::NotCaptured));
        assert_eq!(machine.ask(&Question::Links), Err(Absence::NotCaptured));
    }
}
