//! The files that contain programs' code, kept so that they can still be read after the recording.
//!
//! ```text
//! path of a mapping ──▸ whose root is it? ┬─ ours ──────────────▸ the path is enough
//!                                         ├─ another's, deleted ─▸ opened while the process lives, held to the end
//!                                         └─ process has ended ──▸ our own path, if the inode there is the same
//! ```
//! A path is valid only under its root: a container's `/usr/sbin/named` is not the host's, and it disappears with the
//! container's last process. A file of another root that was not opened in time has no names, rather than those of an
//! unrelated file.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most files held open, one descriptor each; a container maps ten to fifty. Lower: programs in many containers lose
/// their names when they end; higher: too many descriptors where few are allowed.
pub const MOST_HELD: usize = 256;

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
        let open = |path| OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
        let itself = open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        // Opened without reading, so that a device or pipe in its place is not triggered.
        let opened = itself.or_else(|_| open(format!("/proc/{pid}/root{path}"))).ok()?;
        opened.metadata().is_ok_and(|about| about.is_file()).then(|| opened.into())
    }

    fn is_own(&mut self, other: Root) -> bool {
        if self.own.is_none() {
            self.own = root("self");
        }
        self.own == Some(other)
    }

    /// Where a file can be read now.
    pub(super) fn readable(&self, number: usize) -> Option<PathBuf> {
        let File { path, under, pid, held } = self.list.get(number)?;
        if let Some(held) = held {
            return Some(PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())));
        }
        if !is_path(path) {
            return None;
        }
        let own = PathBuf::from(path);
        let found = match under {
            Under::Root(root) if self.own == Some(*root) => own,
            // Unless the process has ended and another one has its pid.
            Under::Root(theirs) if root(&pid.to_string()) == Some(*theirs) => {
                format!("/proc/{pid}/root{path}").into()
            }
            Under::Root(_) => return None,
            Under::Unknown(inode) => {
                fs::metadata(&own).is_ok_and(|about| about.ino() == *inode).then_some(own)?
            }
        };
        found.is_file().then_some(found)
    }

    /// A file's name without its folder.
    pub(super) fn name(&self, number: usize) -> String {
        let path = self.list.get(number).map_or("", |file| file.path.trim_end_matches(DELETED));
        Path::new(path).file_name().map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
    }
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
        assert_eq!(files.readable(number), Some(PathBuf::from("/bin/sh")));
        assert_eq!((files.name(number).as_str(), files.held), ("sh", 0));
        for strange in ["[vdso]", "//anon", "anon_inode:[perf_event]", "/no/such/file", "/proc"] {
            let number = files.number(own, place(strange, 7));
            assert_eq!(files.readable(number), None, "{strange}");
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
        assert_eq!(files.readable(same), Some(PathBuf::from("/bin/sh")));
        assert_eq!(files.readable(strangers), None);
        let gone = files.number(ended, place("/usr/bin/x (deleted)", 3));
        assert_eq!(files.name(gone), "x");
    }
}
