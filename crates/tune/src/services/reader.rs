//! The files of a server, as it sees them and with its rights.
//!
//! What it may name is up to its user: a link to `/etc/shadow`, a FIFO, `/proc/kmsg`, `/**`. So files are opened
//! beneath the server's root, as its user, only if somebody has written them to a disk, and only so many.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use udpath_files::Beneath;

use super::credentials::Credentials;
use super::format::Format;
use super::glob;

/// Largest file that is read, bytes. Zones and lists of blocked names have files of their own; a larger file is data,
/// and is reported as not read.
const MAX_FILE: u64 = 4 << 20;
/// Most bytes of all files together. A FreeRADIUS has some 300 kB. Lower: a large one is not read as a whole. Higher:
/// somebody's process can make udpath hold as much.
const MAX_BYTES: u64 = 32 << 20;
/// Most names of folders that are looked at for patterns. FreeRADIUS needs a few hundred. Lower: the files of a large
/// folder are reported as not read. Higher: a pattern like `/*/*/*` takes longer.
const MAX_NAMES: usize = 20_000;

/// Where a server's files are, and whose rights open them.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    root: Beneath,
    pub(super) rights: Credentials,
    /// The folder that the server was started in, if that is known.
    pub(super) start: Option<PathBuf>,
    bytes: u64,
    names: usize,
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// The first line with bytes that are no UTF-8, from 1. They are not what they were in the text.
    pub(super) foreign: Option<usize>,
    /// When it was changed last.
    pub(super) changed: Option<SystemTime>,
}

impl Text {
    /// # Errors
    /// It is no text.
    fn new(bytes: Vec<u8>, changed: Option<SystemTime>) -> io::Result<Self> {
        let error = match String::from_utf8(bytes) {
            Ok(text) => return Ok(Self { text, foreign: None, changed }),
            Err(error) => error,
        };
        // Names in comments may be in Latin-1. UTF-16 and programs have zeros.
        let marks = [b"\xff\xfe", b"\xfe\xff"];
        let bytes = error.as_bytes();
        if bytes.contains(&0) || marks.iter().any(|mark| bytes.starts_with(*mark)) {
            return Err(io::Error::other("is no text"));
        }
        let valid = &bytes[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Ok(Self { text: String::from_utf8_lossy(bytes).into_owned(), foreign: Some(line), changed })
    }
}

impl Reader {
    /// For a running server. `view`: what its paths begin with for this process; empty for the files of this process.
    ///
    /// # Errors
    /// It is gone, or belongs to somebody whose files this process may not see.
    pub(super) fn of(pid: u32, view: &str) -> io::Result<Self> {
        let root = match view {
            "" => Beneath::as_root(Path::new("/"))?,
            _ => Beneath::root_of(pid)?,
        };
        Ok(Self::with(root, Credentials::of(pid)?))
    }

    /// For files of this process, or below a folder that stands for the root, with its own rights.
    ///
    /// # Errors
    /// There is no such folder.
    pub(super) fn own(root: &Path) -> io::Result<Self> {
        Ok(Self::with(Beneath::as_root(root)?, Credentials::own()?))
    }

    fn with(root: Beneath, rights: Credentials) -> Self {
        Self { root: root.on_disk(), rights, start: None, bytes: MAX_BYTES, names: MAX_NAMES }
    }

    /// The same for a server that was started in this folder.
    pub(super) fn started_in(self, folder: impl Into<PathBuf>) -> Self {
        Self { start: Some(folder.into()), ..self }
    }

    /// Does `work` with the server's rights.
    ///
    /// # Errors
    /// They cannot be taken, or it takes too long.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> T + Send + 'static,
    ) -> io::Result<T> {
        let own = self.clone();
        self.rights.run(move || work(own))
    }

    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read, is not a file of text on a disk, or there have been too many bytes.
    pub(super) fn text(&mut self, path: &str) -> io::Result<Text> {
        // Such a name would be a line of its own in what is printed.
        if path.contains(char::is_control) {
            return Err(io::Error::other("its name has control characters"));
        }
        if self.bytes == 0 {
            return Err(io::Error::other(format!("more than {MAX_BYTES} bytes in all")));
        }
        let bytes = self.root.bytes(path, MAX_FILE.min(self.bytes))?;
        self.bytes -= bytes.len() as u64;
        // An O_PATH descriptor has no more than the name's attributes.
        let about = self.root.find(path).and_then(|found| File::from(found).metadata());
        Text::new(bytes, about.and_then(|about| about.modified()).ok())
    }

    /// Is it a folder?
    pub(super) fn is_folder(&self, path: &str) -> bool {
        self.root.folder(path).is_ok()
    }

    fn is_file(&self, path: &Path) -> bool {
        let found = path.to_str().and_then(|path| self.root.find(path).ok());
        found.is_some_and(|found| File::from(found).metadata().is_ok_and(|about| about.is_file()))
    }

    /// The files that an include means: a path, a pattern, or a folder, in the order of their names. `none` is told of
    /// what is not looked at. `alternative`: it is of a pattern with braces, of which one may lead nowhere.
    pub(super) fn included(
        &mut self,
        include: &Path,
        format: Format,
        alternative: bool,
        none: &mut Vec<String>,
    ) -> Vec<PathBuf> {
        let Some(shown) = include.to_str() else { return Vec::new() };
        // FreeRADIUS has folders, and no patterns; Knot passes over folders.
        let pattern = format != Format::Radius && (alternative || glob::is_pattern(shown));
        let folder =
            matches!(format, Format::Radius | Format::Objects | Format::Indented) && self.is_folder(shown);
        if folder && format == Format::Indented {
            return Vec::new();
        }
        let found = match (folder, pattern) {
            (true, _) => self.names(include).map(|names| {
                let plain = names.into_iter().filter(|name| is_of_folder(name, format));
                plain.map(|name| include.join(name)).collect()
            }),
            (false, true) => self.matched(include),
            // Also if it does not exist: its absence is reported.
            (false, false) => {
                // All but these give each path to glob(3), which takes the backslashes away.
                let whole = matches!(format, Format::Radius | Format::Clauses);
                return vec![if whole { include.to_owned() } else { glob::plain(shown).into() }];
            }
        };
        match found {
            Ok(mut found) => {
                found.retain(|path| self.is_file(path));
                // FreeRADIUS takes them as the file system has them.
                if !folder || format != Format::Radius {
                    found.sort();
                }
                found
            }
            Err(cause) => {
                none.push(format!("{shown}: {cause}"));
                Vec::new()
            }
        }
    }

    /// The paths that match a pattern, as glob(3) has them: a `*` matches no slash, nor a dot at the beginning of a
    /// name.
    fn matched(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let mut folders = BTreeSet::from([PathBuf::from("/")]);
        for part in pattern.components() {
            let Component::Normal(part) = part else { continue };
            let part = part.to_str().ok_or_else(|| io::Error::other("is not UTF-8"))?;
            if !glob::is_pattern(part) {
                let part = glob::plain(part);
                folders = folders.into_iter().map(|folder| folder.join(&part)).collect();
                continue;
            }
            let part = glob::Part::new(part).map_err(io::Error::other)?;
            let mut found = BTreeSet::new();
            for folder in folders {
                // A pattern passes over what is not a folder, or not for this user.
                let names = match self.names(&folder) {
                    Err(_) if self.names == 0 => return Err(too_many()),
                    names => names.unwrap_or_default(),
                };
                let matching = names.into_iter().filter(|name| part.matches(name));
                found.extend(matching.map(|name| folder.join(name)));
            }
            folders = found;
        }
        Ok(folders.into_iter().collect())
    }

    /// The names in a folder.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>> {
        let folder = folder.to_str().ok_or_else(|| io::Error::other("is not UTF-8"))?;
        match self.root.names(folder, self.names) {
            Ok(names) => {
                self.names -= names.len();
                // A file whose name is not UTF-8 is none of a package's.
                Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
            }
            Err(error) if error.raw_os_error().is_some() => Err(error),
            Err(_) => {
                self.names = 0;
                Err(too_many())
            }
        }
    }
}

fn too_many() -> io::Error {
    io::Error::other(format!("more than {MAX_NAMES} names would have to be looked at"))
}

/// Whether a server reads a file of this name that is in a folder which it includes: FreeRADIUS has rules of its own
/// (cf_file.c).
fn is_of_folder(name: &str, format: Format) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.starts_with('.') && (format != Format::Radius || name.bytes().all(plain))
}
