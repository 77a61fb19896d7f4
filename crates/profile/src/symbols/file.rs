//! The files that contain programs' code, kept so that they can still be read after the recording.
//!
//! ```text
//! path of a mapping ──▸ whose root is it? ┬─ ours ──────────────▸ the path is enough
//!                                         ├─ another's, deleted ─▸ opened while the process lives, held to the end
//!                                         └─ process has ended ──▸ our own path, if the inode there is the same
//! ```
//! Symbols are read from memory, and who may change a file could shorten it meanwhile, which ends a program that has it
//! mapped (SIGBUS). Only a file that root alone can change is mapped; any other is copied first, up to a limit for each
//! and one for all: [`Content`].
//!
//! A path is valid only under its root: a container's `/usr/sbin/named` is not the host's, and it disappears with the
//! container's last process. A file of another root that was not opened in time has no names, rather than those of an
//! unrelated file.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use udpath_files::owners;

/// Most files held open, one descriptor each; a container maps ten to fifty. Lower: programs in many containers lose
/// their names when they end; higher: too many descriptors where few are allowed.
pub const MOST_HELD: usize = 256;

/// Largest file that is copied for its symbols, bytes. The largest programs have some 100 MiB. Lower: they have no
/// names. Higher: a container's file takes more memory, while its symbols are read.
const MAX_COPY: u64 = 256 << 20;

/// Bytes copied in all. A machine with ten containers has some 300 MiB of programs and libraries. Lower: the rest has
/// no names. Higher: who maps many large files makes a profile end seconds later, gigabytes of copies later.
pub(super) const MAX_COPIES: u64 = 512 << 20;

/// A mapping of a file, as reported by the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The file's inode, 0 for none.
    pub(super) inode: u64,
    pub(super) path: &'a str,
}

/// The root of a process's paths: its mount namespace and root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Root {
    mounts: u64,
    device: u64,
    inode: u64,
}

/// The root to look a path up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Under {
    Root(Root),
    /// The process cannot be inspected: it has ended, or belongs to another user. This was the file's inode.
    Unknown(u64),
}

#[derive(Debug)]
struct File {
    path: String,
    under: Under,
    /// The process that mapped it first.
    pid: u32,
    held: Option<OwnedFd>,
}

/// Every file seen, by a number.
#[derive(Debug, Default)]
pub(super) struct Files {
    list: Vec<File>,
    known: HashMap<(Under, String), usize>,
    /// udpath's own root, once it is known.
    own: Option<Root>,
    held: usize,
}

impl Files {
    /// The number of a file that a process mapped.
    pub(super) fn number(&mut self, pid: u32, place: Place<'_>) -> usize {
        let under = root(&pid.to_string()).map_or(Under::Unknown(place.inode), Under::Root);
        let key = (under, place.path.to_owned());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let held = self.hold(pid, under, place);
        self.held += usize::from(held.is_some());
        let number = self.list.len();
        self.list.push(File { path: place.path.to_owned(), under, pid, held });
        self.known.insert(key, number);
        number
    }

    /// Opens a file that could not be found later.
    fn hold(&mut self, pid: u32, under: Under, place: Place<'_>) -> Option<OwnedFd> {
        let Under::Root(root) = under else { return None };
        let lasts = self.is_own(root) && !place.path.ends_with(DELETED);
        if lasts || !is_path(place.path) || self.held >= MOST_HELD {
            return None;
        }
        // The file itself, even if it was renamed or deleted; needs more permissions than its path.
        let Place { start, end, path, .. } = place;
        // Opened without reading, so that a device or pipe in its place is not triggered.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let itself = openat(CWD, format!("/proc/{pid}/map_files/{start:x}-{end:x}"), flags, Mode::empty());
        let opened = itself.or_else(|_| beneath(pid, path)).ok()?;
        is_regular(&opened).then_some(opened)
    }

    fn is_own(&mut self, other: Root) -> bool {
        if self.own.is_none() {
            self.own = root("self");
        }
        self.own == Some(other)
    }

    /// A file's bytes now, for a reader that maps them. `room`: bytes that may still be copied.
    pub(super) fn content(&self, number: usize, room: &mut u64) -> Option<Content> {
        let File { path, under, pid, held } = self.list.get(number)?;
        if let Some(held) = held {
            return Content::copy(held, room);
        }
        if !is_path(path) {
            return None;
        }
        match under {
            Under::Root(root) if self.own == Some(*root) => Content::of(path, room),
            // Unless the process has ended and another one has its pid.
            Under::Root(theirs) if root(&pid.to_string()) == Some(*theirs) => {
                Content::copy(&beneath(*pid, path).ok()?, room)
            }
            Under::Root(_) => None,
            Under::Unknown(inode) => fs::metadata(path)
                .is_ok_and(|about| about.ino() == *inode)
                .then(|| Content::of(path, room))?,
        }
    }

    /// A file's name without its folder.
    pub(super) fn name(&self, number: usize) -> String {
        let path = self.list.get(number).map_or("", |file| file.path.trim_end_matches(DELETED));
        Path::new(path).file_name().map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

/// The bytes of a file that nobody else can shorten.
#[derive(Debug)]
pub(super) enum Content {
    /// A file that only root can change.
    File(PathBuf),
    /// A copy in memory.
    Copy(OwnedFd),
}

impl Content {
    /// Of a file of ours.
    fn of(path: &str, room: &mut u64) -> Option<Self> {
        match owners::only_root(Path::new(path)) {
            Ok(real) => udpath_files::is_regular(&real).then_some(Self::File(real)),
            Err(_) => Self::copied(udpath_files::open(Path::new(path)).ok()?, room).ok(),
        }
    }

    /// Of an open file, which was opened without reading.
    fn copy(found: &OwnedFd, room: &mut u64) -> Option<Self> {
        if !is_regular(found) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Self::copied(openat(CWD, path, flags, Mode::empty()).ok()?.into(), room).ok()
    }

    /// A copy of a regular file.
    ///
    /// # Errors
    /// It cannot be read, or is too long.
    fn copied(file: fs::File, room: &mut u64) -> io::Result<Self> {
        let most = MAX_COPY.min(*room);
        if file.metadata()?.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let copy = memfd_create("udpath-symbols", MemfdFlags::CLOEXEC)?;
        let mut into = fs::File::from(copy);
        // It may have grown since.
        *room -= io::copy(&mut file.take(most), &mut into)?;
        Ok(Self::Copy(into.into()))
    }

    /// Where it can be opened as long as this lives.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Copy(copy) => format!("/proc/self/fd/{}", copy.as_raw_fd()).into(),
        }
    }
}

/// A file by a process's path, not opened for reading.
fn beneath(pid: u32, path: &str) -> rustix::io::Result<OwnedFd> {
    let found = udpath_files::Beneath::root_of(pid).and_then(|root| root.find(path));
    found.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::NOENT))
}

fn is_regular(file: &OwnedFd) -> bool {
    let kind = rustix::fs::fstat(file).map(|about| rustix::fs::FileType::from_raw_mode(about.st_mode));
    kind.is_ok_and(|kind| kind == rustix::fs::FileType::RegularFile)
}

/// The kernel's suffix for the path of a deleted file.
const DELETED: &str = " (deleted)";

/// Rejects what only looks like a path: `[vdso]`, `anon_inode:`, `//anon`.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//")
}

/// The root of a process, if it may be read.
fn root(whose: &str) -> Option<Root> {
    let mounts = fs::metadata(format!("/proc/{whose}/ns/mnt")).ok()?.ino();
    let folder = fs::metadata(format!("/proc/{whose}/root/")).ok()?;
    Some(Root { mounts, device: folder.dev(), inode: folder.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, inode: u64) -> Place<'_> {
        Place { start: 0, end: 4096, inode, path }
    }

    fn room() -> u64 {
        MAX_COPIES
    }

    #[test]
    fn files_are_copied_while_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::default();
        let numbers = ["a", "b", "c"].map(|name| {
            let path = folder.path().join(name);
            fs::write(&path, [7; 100]).unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            files.number(1 << 30, place(path.to_str().unwrap(), inode))
        });
        let mut room = 250;
        let copied = numbers.map(|number| files.content(number, &mut room).is_some());
        assert_eq!((copied, room), ([true, true, false], 50));
    }

    #[test]
    fn a_file_under_our_own_root_is_one_for_all_processes() {
        let mut files = Files::default();
        // A child that ends with its input; the parent may have another root.
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (own, other) = (std::process::id(), child.id());
        let number = files.number(own, place("/bin/sh", 7));
        assert_eq!(files.number(other, place("/bin/sh", 7)), number);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(files.content(number, &mut room()).is_some());
        assert_eq!((files.name(number).as_str(), files.held), ("sh", 0));
        for strange in ["[vdso]", "//anon", "anon_inode:[perf_event]", "/no/such/file", "/proc"] {
            let number = files.number(own, place(strange, 7));
            assert!(files.content(number, &mut room()).is_none(), "{strange}");
        }
    }

    #[test]
    fn of_a_process_that_has_ended_the_inode_decides() {
        let mut files = Files::default();
        // Larger than any pid.
        let ended = 1 << 30;
        let inode = fs::metadata("/bin/sh").unwrap().ino();
        let same = files.number(ended, place("/bin/sh", inode));
        let strangers = files.number(ended, place("/bin/sh", inode + 1));
        assert!(
            files.content(same, &mut room()).is_some() && files.content(strangers, &mut room()).is_none()
        );
        let gone = files.number(ended, place("/usr/bin/x (deleted)", 3));
        assert_eq!(files.name(gone), "x");
    }

    #[test]
    fn who_may_shorten_a_file_cannot_shorten_what_is_mapped() {
        let read = |content: &Content| fs::read(content.path()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/bin/sh", &path).unwrap();
        let whole = fs::read(&path).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let mut files = Files::default();
        // Of a process that has ended: the path is enough, and the folder is not root's alone.
        let number = files.number(1 << 30, place(path.to_str().unwrap(), inode));
        let content = files.content(number, &mut room()).unwrap();
        assert!(matches!(content, Content::Copy(_)));
        fs::File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
        assert_eq!(read(&content), whole);
        // Nor does one that says it is huge take memory.
        fs::File::options().write(true).open(&path).unwrap().set_len(MAX_COPY + 1).unwrap();
        assert!(files.content(number, &mut room()).is_none());
        // What a process maps, whatever its path leads to by now.
        fs::copy("/bin/sh", &path).unwrap();
        let held = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&Content::copy(&held, &mut room()).unwrap()), whole);
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let held = openat(CWD, &fifo, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(
            Content::copy(&held, &mut room()).is_none()
                && Content::of(fifo.to_str().unwrap(), &mut room()).is_none()
        );
    }
}
