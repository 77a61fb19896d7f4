//! The files of a folder, and which machine each is of.
//!
//! A machine is named by its file: without the ending, and without a time at its end. Captures that `udpath support`
//! named itself (`udpath-support-TIME.tar.gz`) are named by the first folder they are in, as a tool that fetches them
//! from many machines puts them.

use std::fs;
use std::path::{Path, PathBuf};

use super::result::Unread;

/// Levels of folders that are searched: a tool may repeat a file's path on its machine below the machine's name. Lower:
/// such files are not found. Higher: a wrong folder, such as `/`, takes longer.
const DEPTH: usize = 8;
/// Most files. Lower: the captures of a large fleet do not fit. Higher: a wrong folder takes longer, and memory for
/// their names.
const MOST: usize = 100_000;
/// The name that `udpath support` gives a capture, without its time.
const UNNAMED: &str = "udpath-support";

/// A capture, or what may be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The same from the folder on, for people.
    pub(super) shown: String,
    /// The machine's name.
    pub(super) machine: String,
}

impl Entry {
    /// What is in no file.
    pub(super) fn named(machine: &str) -> Self {
        Self { path: PathBuf::new(), shown: machine.to_owned(), machine: machine.to_owned() }
    }
}

/// Why a folder has no report.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A system call failed.
    #[error("cannot list {folder} (name a folder of captures that may be read)")]
    Io {
        /// The folder.
        folder: String,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// It is a file.
    #[error("{0} is not a folder: name the folder that contains the captures")]
    NotAFolder(String),
    /// It is the capture of one machine.
    #[error(
        "{0} is the capture of one machine: name the folder that contains it, or use `udpath show --sysroot`"
    )]
    Capture(String),
    /// It has too many files.
    #[error("{0} contains more than {MOST} files: name a folder that has only captures")]
    TooMany(String),
    /// No machine in it.
    #[error("{folder} contains no capture: expected files of `udpath support` or `udpath show --json`{why}")]
    Nothing {
        /// The folder.
        folder: String,
        /// What its files are instead.
        why: String,
    },
}

impl FolderError {
    /// There is no machine among the files.
    pub(super) fn nothing(folder: &Path, unread: &[Unread]) -> Self {
        let why = match unread {
            [] => String::new(),
            [one] => format!("; {}: {}", one.file, one.why),
            [first, rest @ ..] => format!("; {}: {}; and {} more files", first.file, first.why, rest.len()),
        };
        Self::Nothing { folder: folder.display().to_string(), why }
    }
}

/// The files and captured folders below `folder`, ordered by name, and what is neither. Hidden files do not count:
/// captures that are being written are hidden.
pub(super) fn list(folder: &Path) -> Result<(Vec<Entry>, Vec<Unread>), FolderError> {
    let name = || folder.display().to_string();
    if fs::metadata(folder).is_ok_and(|there| !there.is_dir()) {
        return Err(FolderError::NotAFolder(name()));
    }
    if is_capture(folder) {
        return Err(FolderError::Capture(name()));
    }
    let mut search = Search { top: folder, entries: Vec::new(), unread: Vec::new() };
    search.folder(folder, DEPTH).map_err(|cause| FolderError::Io { folder: name(), cause })?;
    if search.entries.len() > MOST {
        return Err(FolderError::TooMany(name()));
    }
    search.entries.sort_by(|a, b| a.shown.cmp(&b.shown));
    Ok((search.entries, search.unread))
}

/// Whether a folder is itself a capture: `udpath support -o FOLDER`, or one that was unpacked.
fn is_capture(folder: &Path) -> bool {
    ["now", "proc", "sys"].iter().any(|name| folder.join(name).is_dir())
}

struct Search<'a> {
    top: &'a Path,
    entries: Vec<Entry>,
    unread: Vec<Unread>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) -> std::io::Result<()> {
        for name in udpath_files::names(folder, udpath_files::MAX_NAMES)? {
            let path = folder.join(name);
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden || self.entries.len() > MOST {
                continue;
            }
            let shown = path.strip_prefix(self.top).unwrap_or(&path).display().to_string();
            let mut refuse = |why: String| self.unread.push(Unread { file: shown.clone(), why });
            let metadata = match fs::metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) => {
                    refuse(format!("cannot read it: {error}"));
                    continue;
                }
            };
            if metadata.is_file() || metadata.is_dir() && is_capture(&path) {
                let machine = machine(&shown);
                self.entries.push(Entry { path, shown, machine });
            } else if !metadata.is_dir() {
                refuse("it is neither a file nor a folder".into());
            } else if path.is_symlink() {
                refuse("it is a symbolic link to a folder, which is not followed".into());
            } else if depth == 0 {
                refuse(format!("it is more than {DEPTH} folders deep, where no capture is expected"));
            } else if let Err(error) = self.folder(&path, depth - 1) {
                self.unread.push(Unread { file: shown, why: format!("cannot list it: {error}") });
            }
        }
        Ok(())
    }
}

/// The machine's name, from the path of its file.
fn machine(shown: &str) -> String {
    let file = shown.rsplit('/').next().unwrap_or(shown);
    let endings = [".tar.gz", ".tgz", ".json"];
    let stem = endings.iter().find_map(|ending| file.strip_suffix(ending)).unwrap_or(file);
    match (without_time(stem), shown.split_once('/')) {
        (UNNAMED, Some((folder, _))) => folder.to_owned(),
        (UNNAMED, None) => stem.to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// `dns1` of `dns1-2026-11-24-184302` and of `dns1-2026-11-24`.
fn without_time(stem: &str) -> &str {
    let digits = |text: &str, lengths: &[usize]| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let cut = |stem: &'_ str, lengths: &[usize]| -> Option<usize> {
        let (rest, last) = stem.rsplit_once('-')?;
        digits(last, lengths).then_some(rest.len())
    };
    let date = |stem: &str| {
        let day = cut(stem, &[2])?;
        let month = cut(&stem[..day], &[2])?;
        cut(&stem[..month], &[4])
    };
    let timed = cut(stem, &[4, 6]).and_then(|end| date(&stem[..end]));
    match timed.or_else(|| date(stem)) {
        Some(end) if end > 0 => &stem[..end],
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_by_their_files() {
        for (shown, name) in [
            ("dns1.tar.gz", "dns1"),
            ("dns1.json", "dns1"),
            ("rack-2/dns1.tgz", "dns1"),
            ("dns-2026-11-24-184302.tar.gz", "dns"),
            ("dns-2026-11-24.json", "dns"),
            ("dns-10-20-30-40.json", "dns-10-20-30-40"),
            ("ns.example.com.json", "ns.example.com"),
            ("udpath-support-2026-11-24-184302.tar.gz", "udpath-support-2026-11-24-184302"),
            ("dns7/tmp/udpath-support-2026-11-24-184302.tar.gz", "dns7"),
            ("a capture", "a capture"),
            ("2026-11-24.json", "2026-11-24"),
        ] {
            assert_eq!(machine(shown), name, "{shown}");
        }
    }

    #[test]
    fn files_are_found_below_folders_and_the_rest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b/now/proc", "c/d", ".hidden"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["a.tar.gz", "c/d/e.json", ".part.json"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", at("gone")).unwrap();
        std::os::unix::fs::symlink(at("c"), at("loop")).unwrap();
        let (entries, unread) = list(folder.path()).unwrap();
        let shown: Vec<&str> = entries.iter().map(|entry| entry.shown.as_str()).collect();
        assert_eq!(shown, ["a.tar.gz", "b", "c/d/e.json"]);
        let mut why: Vec<String> =
            unread.iter().map(|unread| format!("{}: {}", unread.file, unread.why)).collect();
        why.sort();
        assert!(why[0].starts_with("gone: cannot read it: No such file"), "{why:?}");
        assert_eq!(why[1], "loop: it is a symbolic link to a folder, which is not followed");
    }

    #[test]
    fn what_is_no_folder_of_captures_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        fs::write(&file, "{}").unwrap();
        let said = list(&file).unwrap_err().to_string();
        assert!(
            said.ends_with("x.json is not a folder: name the folder that contains the captures"),
            "{said}"
        );
        let said = list(&folder.path().join("gone")).unwrap_err().to_string();
        assert!(said.starts_with("cannot list"), "{said}");
        fs::create_dir(folder.path().join("proc")).unwrap();
        let said = list(folder.path()).unwrap_err().to_string();
        assert!(said.contains("is the capture of one machine"), "{said}");
    }
}
