//! Files on disk, replaced whole: neither a reader nor a crash sees half of one.
//!
//! ```text
//! FOLDER (opened without links) / .NAME.udpath-PID-N   created anew, never opened; owner, mode, access control list and
//!                                                      labels of the old file; bytes; fsync
//!                               / NAME                 rename, fsync(FOLDER)
//! ```
//! Everything happens by the descriptor of the folder and of the new file: whoever may write the folder can replace its
//! names, as before, but cannot make this process write, own or wait for a file elsewhere. Files that a killed run left
//! are removed by the next one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, XattrFlags, fchmod, fchown,
    fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, fsync, openat, openat2, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::read::{Listing, reopened};
use crate::walk::Found;

/// Attributes that belong to the bytes, not to the file: the kernel's hash and signature of its contents.
const OF_CONTENTS: [&str; 2] = ["security.ima", "security.evm"];
/// Longest value of an extended attribute and list of names (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX` of linux/limits.h),
/// bytes.
const MAX_ATTRIBUTE: usize = 64 << 10;
/// Longest part of a name that is kept in the temporary one, bytes: a name may have 255; the additions need at most 50.
const KEPT_NAME: usize = 200;
/// Names of a folder that are looked at for files left by a killed run. Lower: they may stay in a large folder. Higher:
/// a write into a huge one takes longer.
const LOOKED_AT: usize = 1 << 16;

/// Creates or replaces the file at `path` with these contents. A file that is replaced keeps its owner, mode, access
/// control list, labels and other extended attributes; a new one has `mode`. No part of `path` may be a symbolic link:
/// resolve them first, and decide whether to believe them.
///
/// # Errors
/// A system call failed; a link is in the way; the old file is not a regular one, or has several names (hard links), of
/// which the others would keep the old text. Everything is then as before.
pub fn whole(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let place = Place::open(path)?;
    let old = place.old()?;
    let mut new = New::create(&place, Mode::RUSR | Mode::WUSR)?;
    new.file.write_all(contents)?;
    match old {
        Some(old) => keep_attributes(&reopened(&old)?, &new.file)?,
        None => fchmod(&new.file, Mode::from_raw_mode(mode))?,
    }
    new.file.sync_all()?;
    new.rename()?;
    place.sync();
    Ok(())
}

/// The same with this mode, user and group, whatever the old file has.
///
/// # Errors
/// As [`whole`].
pub fn owned(path: &Path, contents: &[u8], mode: u32, (user, group): (u32, u32)) -> io::Result<()> {
    let place = Place::open(path)?;
    place.old()?;
    let mut new = New::create(&place, Mode::RUSR | Mode::WUSR)?;
    new.file.write_all(contents)?;
    fchown(&new.file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    // After the owner, whose change takes set-user-ID bits away.
    fchmod(&new.file, Mode::from_raw_mode(mode))?;
    new.file.sync_all()?;
    new.rename()?;
    place.sync();
    Ok(())
}

/// Removes the file at `path`, and what a killed write of it left. Returns whether there was one.
///
/// # Errors
/// A system call failed, or a link is in the way.
pub fn remove(path: &Path) -> io::Result<bool> {
    let place = match Place::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        place => place?,
    };
    place.remove_left_behind();
    match unlinkat(&place.folder, &place.name, AtFlags::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        removed => removed?,
    }
    place.sync();
    Ok(true)
}

/// Makes the names in a folder survive a crash.
///
/// # Errors
/// It cannot be opened, or is or is behind a symbolic link.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    // Some file systems cannot sync a folder, which is harmless.
    let _ = fsync(folder);
    Ok(())
}

/// Checks whether [`whole`] could write `path`, and changes nothing. Whether there will be enough space is unknown.
///
/// # Errors
/// As [`whole`].
pub fn check(path: &Path) -> io::Result<()> {
    let place = Place::open(path)?;
    place.old()?;
    New::create(&place, Mode::RUSR).map(drop)
}

/// A name in an open folder.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: OsString,
}

impl Place {
    fn open(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let folder = folder.map_err(|errno| match errno {
            Errno::LOOP => io::Error::other(format!("{} is, or is behind, a symbolic link", path.display())),
            errno => errno.into(),
        })?;
        Ok(Self { folder, name })
    }

    /// Where a walk has ended.
    pub(crate) fn of(found: Found) -> Self {
        let Found { folder, name, .. } = found;
        // To list and to sync it; who may write it and not list it can still create files in it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&folder, ".", flags, Mode::empty()).unwrap_or(folder);
        Self { folder, name }
    }

    /// The file of that name, not opened for reading; [`None`] if there is none.
    fn old(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let old = match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            old => old?,
        };
        let about = fstat(&old)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile if about.st_nlink > 1 => Err(io::Error::other(format!(
                "it has {} names (hard links), and would lose the others",
                about.st_nlink
            ))),
            FileType::RegularFile => Ok(Some(old)),
            FileType::Symlink => Err(io::Error::other("it is a symbolic link, which is not followed here")),
            _ => Err(io::Error::other("it is not a regular file")),
        }
    }

    fn prefix(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        // Leading dot and unknown extension: readers of the folder skip it.
        [b".", &name[..name.len().min(KEPT_NAME)], b".udpath-"].concat()
    }

    /// Removes temporary files for this name that a killed run left: those of a process that no longer exists.
    fn remove_left_behind(&self) {
        let prefix = self.prefix();
        let Ok(names) = Listing::new(&self.folder) else { return };
        for name in names.flatten().take(LOOKED_AT) {
            let Some(rest) = name.as_bytes().strip_prefix(&*prefix) else { continue };
            let pid =
                std::str::from_utf8(rest).ok().and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // The write that follows does not depend on it.
                let _ = unlinkat(&self.folder, &name, AtFlags::empty());
            }
        }
    }

    /// The file is complete and in place; some file systems cannot sync a folder, which is harmless.
    pub(crate) fn sync(&self) {
        let _ = fsync(&self.folder);
    }
}

/// The new file, under its temporary name; removed unless it was renamed.
pub(crate) struct New<'a> {
    place: &'a Place,
    name: OsString,
    file: File,
    renamed: bool,
}

impl<'a> New<'a> {
    /// Creates it with this mode, less the bits of the umask.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn create(place: &'a Place, mode: Mode) -> io::Result<Self> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        place.remove_left_behind();
        let mut name = place.prefix();
        name.extend(format!("{}-{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)).as_bytes());
        let name = OsString::from_vec(name);
        // EXCL: a link or a FIFO of that name is an error.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || openat(&place.folder, &name, flags, mode);
        let file = match create() {
            // Of a killed run with the same PID, or somebody's trap: its name goes, what it leads to stays.
            Err(Errno::EXIST) => unlinkat(&place.folder, &name, AtFlags::empty()).and_then(|()| create()),
            file => file,
        };
        Ok(Self { place, file: File::from(file?), name, renamed: false })
    }

    /// The file, open for writing.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// A system call failed, or somebody else has replaced it.
    pub(crate) fn rename(mut self) -> io::Result<()> {
        let folder = &self.place.folder;
        let same = |name: &OsStr| -> io::Result<bool> {
            let id = |about: Stat| (about.st_dev, about.st_ino);
            Ok(id(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?) == id(fstat(self.file.as_fd())?))
        };
        if !same(&self.name)? {
            return Err(io::Error::other("somebody else replaced the new file while it was written"));
        }
        renameat(folder, &self.name, folder, &self.place.name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // The first error is the one to report; this one leaves a hidden file that the next run removes.
            let _ = unlinkat(&self.place.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Owner, mode and extended attributes: access control lists and labels among them.
fn keep_attributes(old: &File, new: &File) -> io::Result<()> {
    let about = fstat(old)?;
    fchown(new, Some(Uid::from_raw(about.st_uid)), Some(Gid::from_raw(about.st_gid)))?;
    fchmod(new, Mode::from_raw_mode(about.st_mode))?;
    let kept = attributes(old)?;
    // Of a folder whose access control list says what new files have.
    for name in attributes(new)?.iter().filter(|name| !kept.contains(name) && !is_of_security(name)) {
        fremovexattr(new, &**name)?;
    }
    let mut value = vec![0; MAX_ATTRIBUTE];
    for name in kept.iter().filter(|name| OF_CONTENTS.iter().all(|of| *name != of)) {
        let length = fgetxattr(old, &**name, &mut *value)?;
        let kept = fsetxattr(new, &**name, &value[..length], XattrFlags::empty());
        kept.map_err(|errno| {
            let why = io::Error::from(errno);
            io::Error::new(why.kind(), format!("its attribute {} cannot be kept: {why}", name.display()))
        })?;
    }
    Ok(())
}

/// The names of a file's extended attributes.
fn attributes(file: &File) -> io::Result<Vec<OsString>> {
    let mut names = vec![0; MAX_ATTRIBUTE];
    let length = match flistxattr(file, &mut *names) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// Given by the kernel's security module to every file, and not for others to remove.
fn is_of_security(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"security.")
}

#[cfg(test)]
mod tests;
