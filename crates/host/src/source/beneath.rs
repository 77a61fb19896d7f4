//! A folder that no path can escape: the kernel resolves every name beneath it, and only regular files are opened.
//!
//! Relative symbolic links that stay within the folder are followed, as in a copied sysfs. Absolute ones and those that
//! lead outside are rejected (`RESOLVE_BENEATH` of openat2(2), Linux 5.6): the folder may come from an untrusted
//! source, and root reads it. Anything but a regular file is not even opened for reading: a FIFO would wait for its
//! writer indefinitely, and opening some devices already has side effects.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

/// Maximum size of one file of a capture, in bytes. The largest is the list of 10,000 sockets, some 5 MiB. Lower: a
/// larger machine is refused. Higher: a hostile capture uses more memory before it is refused.
pub const MAX_FILE: u64 = 32 << 20;
/// Maximum number of names in one directory. Process directories are the longest: a machine has at most 4,194,304 PIDs
/// (`PID_MAX_LIMIT`), and busy ones have some 50,000. Lower: such a machine's processes are not read. Higher: a hostile
/// folder uses more memory.
const NAMES: usize = 1 << 20;
/// Attempts to resolve a name when something in the folder is renamed at the same time (EAGAIN). Lower: a folder that
/// is being written may be rejected. Higher: one that is renamed all the time is retried for longer.
const TRIES: usize = 16;

/// An open folder.
#[derive(Debug, Clone)]
pub(super) struct Beneath {
    folder: Arc<OwnedFd>,
}

impl Beneath {
    /// Opens a folder by a user-supplied path: links in that path are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let folder = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { folder: Arc::new(folder) })
    }

    /// A folder in it.
    pub(super) fn folder(&self, path: &str) -> io::Result<Self> {
        Ok(Self { folder: Arc::new(self.resolve(path, OFlags::DIRECTORY)?) })
    }

    /// The whole of a regular file.
    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let found = self.resolve(path, OFlags::empty())?;
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            other => {
                let kind = match other {
                    FileType::Fifo => "a FIFO",
                    FileType::Socket => "a socket",
                    FileType::CharacterDevice | FileType::BlockDevice => "a device",
                    _ => "something else",
                };
                return Err(io::Error::other(format!(
                    "is {kind}; only regular files of a captured folder are read"
                )));
            }
        }
        // The same inode, even if its name has changed.
        let file = File::options().read(true).open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            let limit = MAX_FILE >> 20;
            return Err(io::Error::other(format!(
                "is longer than {limit} MiB, the limit for a file of a capture"
            )));
        }
        Ok(bytes)
    }

    /// The names in a directory, without those that are not UTF-8: the kernel has none.
    pub(super) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        // An O_PATH descriptor cannot list: it is reopened, by the same inode.
        let folder = self.resolve(path, OFlags::DIRECTORY)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&folder, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if names.len() == NAMES {
                return Err(io::Error::other(format!(
                    "has more than {NAMES} names, the limit for a directory of a capture"
                )));
            }
            if !matches!(name, "." | "..") {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The target of a link, as stored in it; the link itself is not followed.
    pub(super) fn target(&self, path: &str) -> io::Result<PathBuf> {
        let link = self.resolve(path, OFlags::NOFOLLOW)?;
        let target = readlinkat(&link, "", Vec::new()).map_err(|errno| match errno {
            // It is not a link.
            Errno::NOENT => Errno::INVAL,
            errno => errno,
        })?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Resolves a path without opening the file.
    fn resolve(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        };
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut found = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            found = openat2(&*self.folder, path, flags, Mode::empty(), beneath);
            if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        found.map_err(|errno| match errno {
            Errno::XDEV => io::Error::other(
                "is, or is behind, a link that leads out of the captured folder; only relative links \
                 within it are followed",
            ),
            Errno::NOSYS => io::Error::other(
                "cannot be opened safely: openat2(2) is missing (Linux 5.6); pack the folder as .tar.gz and use that",
            ),
            errno => errno.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A folder that contains a capture, and a secret next to it.
    fn folder() -> (tempfile::TempDir, Beneath) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("capture/proc/net")).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        fs::write(folder.path().join("capture/proc/stat"), "stat").unwrap();
        let beneath = Beneath::open(&folder.path().join("capture")).unwrap();
        (folder, beneath)
    }

    #[test]
    fn no_link_leads_out_and_links_within_are_followed() {
        let (folder, beneath) = folder();
        let at = |name: &str| folder.path().join("capture").join(name);
        let outside = folder.path().join("secret");
        for (link, target) in [
            ("proc/absolute", outside.as_path()),
            ("proc/climbs", Path::new("../../secret")),
            ("proc/magic", Path::new("/proc/self/root/etc/passwd")),
            ("folder", folder.path()),
            ("up", Path::new("..")),
        ] {
            symlink(target, at(link)).unwrap();
            assert_eq!(beneath.target(link).unwrap(), target);
        }
        for path in ["proc/absolute", "proc/climbs", "proc/magic", "folder/secret", "up/secret", "../secret"]
        {
            let why = beneath.read(path).unwrap_err().to_string();
            assert!(why.contains("leads out of the captured folder"), "{path}: {why}");
        }
        for path in ["folder", "up", "..", "proc/../.."] {
            let why = beneath.names(path).unwrap_err().to_string();
            assert!(why.contains("leads out of the captured folder"), "{path}: {why}");
            assert!(beneath.folder(path).is_err());
        }
        symlink("../proc/stat", at("proc/within")).unwrap();
        symlink("proc", at("also")).unwrap();
        assert_eq!(beneath.read("/proc/within").unwrap(), b"stat");
        assert_eq!(beneath.read("also/stat").unwrap(), b"stat");
        assert_eq!(beneath.folder("also").unwrap().read("/stat").unwrap(), b"stat");
        assert_eq!(beneath.read("proc/net/../stat").unwrap(), b"stat");
        assert!(beneath.names("").unwrap().contains(&"proc".to_owned()));
        assert_eq!(beneath.target("proc/stat").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (folder, beneath) = folder();
        let at = |name: &str| folder.path().join("capture").join(name);
        // Opened for reading, it would wait for a writer indefinitely.
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, mode, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket")] {
            let why = beneath.read(name).unwrap_err().to_string();
            assert!(why.contains(kind) && why.contains("only regular files"), "{why}");
        }
        assert_eq!(beneath.read("proc").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(beneath.read("proc/no").unwrap_err().kind(), io::ErrorKind::NotFound);
        let huge = File::create(at("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let why = beneath.read("huge").unwrap_err().to_string();
        assert!(why.contains("is longer than"), "{why}");
    }
}
