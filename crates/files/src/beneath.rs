//! A folder that no path can escape: the kernel resolves every name beneath it, and only regular files are opened.
//!
//! ```text
//!  Beneath::open(DIR)              a folder from somebody: links that stay within it are followed, as in a copied sysfs;
//!                                  absolute ones and those that lead out are errors (RESOLVE_BENEATH)
//!  Beneath::root_of(PID)           the files of a process as it sees them: its absolute links begin at its own root,
//!                                  as they do for the process (RESOLVE_IN_ROOT)
//!  Beneath::as_root(DIR)           the same for a folder that stands for the root
//!  .without_links()                no link at all (RESOLVE_NO_SYMLINKS): for what root writes or believes
//! ```
//! Magic links (`/proc/PID/root`, `/proc/PID/fd/N`) are never followed. Anything but a regular file is not even opened
//! for reading: a FIFO would wait for its writer indefinitely, and opening some devices already has side effects.
//! openat2(2) needs Linux 5.6.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;

use crate::kernel;
use crate::read::{self, Listing};

/// Attempts to resolve a name when something in the folder is renamed at the same time (EAGAIN). Lower: a folder that
/// is being written may be rejected. Higher: one that is renamed all the time is retried for longer.
const TRIES: usize = 16;

/// An open folder. Paths are resolved beneath it, whether or not they begin with a slash.
#[derive(Debug, Clone)]
pub struct Beneath {
    folder: Arc<OwnedFd>,
    resolve: ResolveFlags,
    /// Files of the kernel are errors.
    on_disk: bool,
}

impl Beneath {
    /// Opens a folder that the operator or root chose: links in that path itself are followed.
    ///
    /// # Errors
    /// It cannot be opened, or is not a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with(path, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens the root of a process: its files, as it sees them.
    ///
    /// # Errors
    /// The process is gone, or belongs to another user.
    pub fn root_of(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/root");
        Self::with(Path::new(&path), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a folder as if it were the root: absolute links in it begin there. For `/`, the files of this process.
    ///
    /// # Errors
    /// It cannot be opened, or is not a folder.
    pub fn as_root(path: &Path) -> io::Result<Self> {
        Self::with(path, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    fn with(path: &Path, resolve: ResolveFlags) -> io::Result<Self> {
        let folder = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { folder: Arc::new(folder), resolve, on_disk: false })
    }

    /// The same folder, where no link is followed in any part of a path.
    #[must_use]
    pub fn without_links(&self) -> Self {
        Self { resolve: self.resolve | ResolveFlags::NO_SYMLINKS, ..self.clone() }
    }

    /// The same folder, of which only files that somebody has written can be opened: none of `/proc`, `/sys` and other
    /// file systems that make their files up ([`crate::kernel::makes_up`]).
    #[must_use]
    pub fn on_disk(&self) -> Self {
        Self { on_disk: true, ..self.clone() }
    }

    /// A folder in it.
    ///
    /// # Errors
    /// There is none, or the path leads out.
    pub fn folder(&self, path: &str) -> io::Result<Self> {
        Ok(Self { folder: Arc::new(self.resolve(path, OFlags::DIRECTORY)?), ..self.clone() })
    }

    /// A regular file in it, open for reading.
    ///
    /// # Errors
    /// There is none, the path leads out, or it is something else than a regular file.
    pub fn file(&self, path: &str) -> io::Result<File> {
        let found = self.resolve(path, OFlags::empty())?;
        if self.on_disk && kernel::makes_up(&found)? {
            return Err(io::Error::other("is not a file on disk, but one that the kernel makes up"));
        }
        read::reopened(&found)
    }

    /// The whole of a regular file, of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Self::file`]; or it is longer.
    pub fn bytes(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        read::whole(self.file(path)?, limit)
    }

    /// The same as text.
    ///
    /// # Errors
    /// As [`Self::bytes`]; or it is not UTF-8.
    pub fn text(&self, path: &str, limit: u64) -> io::Result<String> {
        read::utf8(self.bytes(path, limit)?)
    }

    /// The names in a directory, in the directory's order.
    ///
    /// # Errors
    /// It cannot be listed, or has more than `limit` names.
    pub fn names(&self, path: &str, limit: usize) -> io::Result<Vec<OsString>> {
        // An O_PATH descriptor cannot list: it is reopened, by the same inode.
        let folder = self.resolve(path, OFlags::DIRECTORY)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Listing::new(openat(&folder, ".", flags, Mode::empty())?)?.all(limit)
    }

    /// The target of a link, as stored in it; the link itself is not followed.
    ///
    /// # Errors
    /// There is none, or it is not a link.
    pub fn target(&self, path: &str) -> io::Result<PathBuf> {
        let link = self.resolve(path, OFlags::NOFOLLOW)?;
        let target = readlinkat(&link, "", Vec::new()).map_err(|errno| match errno {
            // It is not a link.
            Errno::NOENT => Errno::INVAL,
            errno => errno,
        })?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Resolves a path without opening what it leads to: a descriptor for `fstat`, or to reopen.
    ///
    /// # Errors
    /// There is nothing, or the path leads out.
    pub fn find(&self, path: &str) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::empty())
    }

    fn resolve(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        };
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let mut found = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            found = openat2(&*self.folder, path, flags, Mode::empty(), self.resolve);
            if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        found.map_err(|errno| match errno {
            Errno::XDEV => io::Error::other(
                "is, or is behind, a link that leads out of the folder; only relative links within it are followed",
            ),
            Errno::LOOP if self.resolve.contains(ResolveFlags::NO_SYMLINKS) => {
                io::Error::other("is, or is behind, a symbolic link, which is not followed here")
            }
            Errno::NOSYS => {
                io::Error::other("cannot be opened safely: openat2(2) is missing (Linux 5.6)")
            }
            errno => errno.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::FileType;

    use super::*;

    const LIMIT: u64 = 1 << 20;

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
            let why = beneath.bytes(path, LIMIT).unwrap_err().to_string();
            assert!(why.contains("leads out of the folder"), "{path}: {why}");
        }
        for path in ["folder", "up", "..", "proc/../.."] {
            let why = beneath.names(path, 9).unwrap_err().to_string();
            assert!(why.contains("leads out of the folder"), "{path}: {why}");
            assert!(beneath.folder(path).is_err());
        }
        symlink("../proc/stat", at("proc/within")).unwrap();
        symlink("proc", at("also")).unwrap();
        assert_eq!(beneath.bytes("/proc/within", LIMIT).unwrap(), b"stat");
        assert_eq!(beneath.bytes("also/stat", LIMIT).unwrap(), b"stat");
        assert_eq!(beneath.folder("also").unwrap().bytes("/stat", LIMIT).unwrap(), b"stat");
        assert_eq!(beneath.bytes("proc/net/../stat", LIMIT).unwrap(), b"stat");
        assert!(beneath.names("", 9).unwrap().contains(&"proc".into()));
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
            let why = beneath.bytes(name, LIMIT).unwrap_err().to_string();
            assert!(why.contains(kind) && why.contains("only regular files"), "{why}");
        }
        assert_eq!(beneath.bytes("proc", LIMIT).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(beneath.bytes("proc/no", LIMIT).unwrap_err().kind(), io::ErrorKind::NotFound);
        let huge = File::create(at("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let why = beneath.bytes("huge", LIMIT).unwrap_err().to_string();
        assert!(why.contains("is longer than"), "{why}");
    }

    #[test]
    fn a_process_sees_its_own_files_and_no_links_where_they_are_refused() {
        let own = Beneath::root_of(std::process::id()).unwrap();
        assert!(own.bytes("/etc/hostname", LIMIT).is_ok() || own.bytes("/etc/passwd", LIMIT).is_ok());
        let (folder, beneath) = folder();
        symlink("proc/stat", folder.path().join("capture/link")).unwrap();
        symlink("proc", folder.path().join("capture/also")).unwrap();
        for path in ["link", "also/stat"] {
            assert_eq!(beneath.bytes(path, LIMIT).unwrap(), b"stat");
            let why = beneath.without_links().bytes(path, LIMIT).unwrap_err().to_string();
            assert!(why.contains("symbolic link"), "{why}");
        }
        assert_eq!(
            beneath.names("proc", 1).unwrap_err().to_string(),
            "has more than 1 names, the limit here"
        );
    }
}
