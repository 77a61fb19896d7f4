//! A path that the operator named, one part at a time: links that somebody else put into it are not followed.
//!
//! ```text
//! /srv/reports -> /data/reports    of root, or of this user: followed, and a link stays a link
//! /tmp/x.html  -> /etc/passwd      of user 1000, in a folder that others may write: an error that names it
//! ```
//! Each part is opened by the descriptor of the folder before it, so that a part which is replaced meanwhile leads
//! nowhere else.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::owners;

/// Links that a path may lead through, as in the kernel (`MAXSYMLINKS` of linux/namei.h).
const MAX_LINKS: usize = 40;
/// Type of procfs in `statfs` (`PROC_SUPER_MAGIC` of linux/magic.h).
const PROC: i64 = 0x9fa0;
/// How a part is opened: neither read nor followed.
const LOOKING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The end of a path: a name in an open folder. The name is no link, and there may be nothing of that name.
#[derive(Debug)]
pub(crate) struct Found {
    /// The folder, opened without access to its contents (`O_PATH`).
    pub(crate) folder: OwnedFd,
    /// Its path, without links.
    pub(crate) path: PathBuf,
    /// The name.
    pub(crate) name: OsString,
    /// It is a descriptor of a process in `/proc`, whose link leads to no path: a pipe or a socket.
    pub(crate) descriptor: bool,
}

/// Follows a path to its end.
///
/// # Errors
/// A folder is missing or cannot be entered; a link is somebody else's; the path names no file (`/`, `x/..`).
pub(crate) fn to(path: &Path) -> io::Result<Found> {
    match follow(path, false)? {
        End::Name(found) => Ok(found),
        End::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
    }
}

/// Follows a path to a folder: its path without links.
///
/// # Errors
/// As [`to`], or it is no folder.
pub(crate) fn folder(path: &Path) -> io::Result<PathBuf> {
    match follow(path, true)? {
        End::Folder(folder) => Ok(folder),
        End::Name(found) if found.about()?.is_some() => Err(Errno::NOTDIR.into()),
        End::Name(_) => Err(Errno::NOENT.into()),
    }
}

enum End {
    Name(Found),
    Folder(PathBuf),
}

/// `into`: a folder at the end is entered.
fn follow(path: &Path, into: bool) -> io::Result<End> {
    let mut walk = Walk::start(path)?;
    let mut parts = parts(path);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            walk.up()?;
            continue;
        }
        let opened = match openat(&walk.folder, &part, LOOKING, Mode::empty()) {
            Err(Errno::NOENT) if parts.is_empty() => return Ok(End::Name(walk.end(part, false))),
            opened => opened?,
        };
        let about = fstat(&opened)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                walk.may_follow(&part, &about)?;
                let target = readlinkat(&opened, "", Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if parts.is_empty() && target.is_relative() && is_proc(&opened) && is_descriptor(&target) {
                    return Ok(End::Name(walk.end(part, true)));
                }
                if target.is_absolute() {
                    walk = Walk::start(&target)?;
                }
                let mut rest = self::parts(&target);
                rest.append(&mut parts);
                parts = rest;
            }
            FileType::Directory if into || !parts.is_empty() => walk.down(opened, &part),
            _ if parts.is_empty() => return Ok(End::Name(walk.end(part, false))),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(End::Folder(walk.path))
}

/// `pipe:[4711]`, `anon_inode:[eventfd]`: the text of a link that leads to no path.
fn is_descriptor(target: &Path) -> bool {
    target.as_os_str().as_bytes().ends_with(b"]")
}

fn is_proc(link: &OwnedFd) -> bool {
    fstatfs(link).is_ok_and(|system| system.f_type == PROC)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

/// Where a walk has come to.
struct Walk {
    folder: OwnedFd,
    path: PathBuf,
}

impl Walk {
    fn start(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if path.is_absolute() { PathBuf::from("/") } else { std::env::current_dir()? };
        let from = if path == Path::new("/") { path.as_path() } else { Path::new(".") };
        Ok(Self { folder: openat(CWD, from, flags, Mode::empty())?, path })
    }

    fn up(&mut self) -> io::Result<()> {
        self.folder = openat(&self.folder, "..", LOOKING | OFlags::DIRECTORY, Mode::empty())?;
        self.path.pop();
        Ok(())
    }

    fn down(&mut self, folder: OwnedFd, name: &OsStr) {
        self.folder = folder;
        self.path.push(name);
    }

    fn end(self, name: OsString, descriptor: bool) -> Found {
        Found { folder: self.folder, path: self.path, name, descriptor }
    }

    /// A link is believed if its owner is, or if nobody else can write the folder that it is in.
    fn may_follow(&self, name: &OsStr, link: &Stat) -> io::Result<()> {
        if is_known(link.st_uid) || !is_open(&fstat(&self.folder)?) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} is a symbolic link of user {}, which is not followed",
            self.path.join(name).display(),
            link.st_uid
        )))
    }
}

/// Can somebody else create or replace names in this folder?
fn is_open(folder: &Stat) -> bool {
    let owner = if owners::is_around(folder.st_uid) { 0 } else { folder.st_uid };
    owners::open_to_others(owner, folder.st_mode).is_some()
}

fn is_known(user: u32) -> bool {
    owners::is_trusted(user) || owners::is_around(user)
}

impl Found {
    /// The path, without links.
    pub(crate) fn real(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    /// What has the name; [`None`] if nothing has.
    ///
    /// # Errors
    /// The folder cannot be searched.
    pub(crate) fn about(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            about => Ok(Some(about?)),
        }
    }

    /// Did somebody else put this here: a pipe or a device of theirs, in a folder that they may write?
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn is_foreign(&self, about: &Stat) -> io::Result<bool> {
        Ok(!is_known(about.st_uid) && is_open(&fstat(&self.folder)?))
    }
}
