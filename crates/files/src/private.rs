//! A folder in which this user keeps what it later believes and carries out, such as a journal.
//!
//! ```text
//! /var/lib/udpath/journal        root's or this user's, every folder above it too: nobody else can change where it leads
//!   000001.journal               each file again: root's or this user's, regular, writable by nobody else, within a limit
//! ```
//! The folder is looked at before anything in it is changed, and everything happens by its descriptor afterwards. A
//! file that somebody put there while the folder was open to others is still theirs, and is not read.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, fsync, linkat, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::owners::{self, Changeable};
use crate::read::{Listing, whole};
use crate::walk;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;
/// No file is followed through a link, waited for, or inherited by a program.
const OPENING: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Why a folder is not this user's own. Nothing was changed.
#[derive(Debug)]
pub enum NotPrivate {
    /// A system call failed.
    System(io::Error),
    /// The path itself is a symbolic link.
    Link,
    /// Somebody else can change the folder, or one above it.
    Changeable(Changeable),
}

impl From<io::Error> for NotPrivate {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for NotPrivate {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// The folder, open.
#[derive(Debug, Clone)]
pub struct Private {
    folder: Arc<OwnedFd>,
    path: PathBuf,
}

impl Private {
    /// Opens a folder that exists, and changes nothing; [`None`] if there is none.
    ///
    /// # Errors
    /// It is not this user's own: see [`NotPrivate`].
    pub fn find(path: &Path) -> Result<Option<Self>, NotPrivate> {
        let found = match walk::to(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        match found.about()? {
            None => return Ok(None),
            Some(about) if FileType::from_raw_mode(about.st_mode) == FileType::Directory => {}
            Some(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory).into()),
        }
        if is_link(path)? {
            return Err(NotPrivate::Link);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&found.folder, &found.name, flags, Mode::empty())?;
        let this = Self { folder: Arc::new(folder), path: found.real() };
        owners::only_mine(&this.path).map_err(NotPrivate::Changeable)?;
        Ok(Some(this))
    }

    /// The same; if there is none it is created, with the folders that it is in: only this user can open them.
    ///
    /// # Errors
    /// As [`Self::find`], or it cannot be created.
    pub fn create(path: &Path) -> Result<Self, NotPrivate> {
        if let Some(found) = Self::find(path)? {
            return Ok(found);
        }
        let found = match walk::to(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                Self::create(above.ok_or(error)?)?;
                walk::to(path)?
            }
            found => found?,
        };
        // Before anything is created: only there does it stay as it is made.
        owners::only_mine_within(&found.path).map_err(NotPrivate::Changeable)?;
        match mkdirat(&found.folder, &found.name, Mode::RWXU) {
            // Another process of this user was faster, or somebody else, which is found out next.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Self::find(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    /// The folder's path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Can group or others open this file, as far as its own mode goes?
    #[must_use]
    pub fn is_open(&self, name: impl AsRef<Path>) -> bool {
        let about = statat(&self.folder, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW);
        about.is_ok_and(|about| about.st_mode & OTHERS != 0)
    }

    /// Takes the permissions of group and others from a file of this user.
    ///
    /// # Errors
    /// As [`Self::open`], or they cannot be changed.
    pub fn close(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(fchmod(self.open(name)?, Mode::RUSR | Mode::WUSR)?)
    }

    /// Takes the permissions of group and others from the folder.
    ///
    /// # Errors
    /// They cannot be changed.
    pub fn close_folder(&self) -> io::Result<()> {
        Ok(fchmod(&self.folder, Mode::RWXU)?)
    }

    /// The names in it.
    ///
    /// # Errors
    /// It cannot be listed, or has more than `limit` names.
    pub fn names(&self, limit: usize) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Listing::new(openat(&self.folder, ".", flags, Mode::empty())?)?.all(limit)
    }

    /// The names in a folder, whoever may change it: to say what it is, not to use anything of it.
    ///
    /// # Errors
    /// It cannot be listed, or has more than `limit` names.
    pub fn names_of_any(path: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Listing::new(openat(CWD, path, flags, Mode::empty())?)?.all(limit)
    }

    /// A file of this user or root in it, open for reading.
    ///
    /// # Errors
    /// There is none, it is not a regular file, or somebody else can change it.
    pub fn open(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDONLY, Mode::empty())
    }

    /// The whole of such a file, of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Self::open`]; or it is longer.
    pub fn bytes(&self, name: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(name)?;
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size > limit) {
            return Err(io::Error::other(format!("is longer than {limit} bytes, the limit for this file")));
        }
        whole(file, limit)
    }

    /// A file in it, open for reading and writing; created if there is none.
    ///
    /// # Errors
    /// As [`Self::open`]; or it cannot be created.
    pub fn open_or_create(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR)
    }

    /// A new file in it, open for appending.
    ///
    /// # Errors
    /// The name exists, or the file cannot be created.
    pub fn create_new(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        self.opened(name.as_ref(), flags, Mode::RUSR | Mode::WUSR)
    }

    /// An existing file in it, open for appending.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::WRONLY | OFlags::APPEND, Mode::empty())
    }

    fn opened(&self, name: &Path, access: OFlags, mode: Mode) -> io::Result<File> {
        // A device would be opened before it is looked at, which may already do something.
        if let Ok(about) = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            check(&about)?;
        }
        let file = File::from(openat(&self.folder, name, OPENING | access, mode)?);
        check(&fstat(&file)?)?;
        Ok(file)
    }

    /// Renames a file in it; a file of the new name is replaced.
    ///
    /// # Errors
    /// The system call failed.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(renameat(&self.folder, from.as_ref(), &self.folder, to.as_ref())?)
    }

    /// Gives a file in it a second name.
    ///
    /// # Errors
    /// The system call failed.
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(linkat(&self.folder, from.as_ref(), &self.folder, to.as_ref(), AtFlags::empty())?)
    }

    /// Removes a file in it.
    ///
    /// # Errors
    /// The system call failed.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name.as_ref(), AtFlags::empty())?)
    }

    /// Its names are on disk on return.
    ///
    /// # Errors
    /// The system call failed.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.folder)?)
    }
}

/// Is the last part of a path a link?
fn is_link(path: &Path) -> io::Result<bool> {
    // Without a slash at its end, which would have it followed.
    let path = path.components().as_path();
    let about = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(about.st_mode) == FileType::Symlink)
}

/// A regular file that nobody but root and this user can change.
fn check(about: &Stat) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => {
            return owners::open_to_others(about.st_uid, about.st_mode)
                .map_or(Ok(()), |why| Err(io::Error::other(why)));
        }
        FileType::Symlink => "is a symbolic link",
        FileType::Fifo => "is a FIFO",
        FileType::Directory => "is a folder",
        _ => "is not a regular file",
    };
    Err(io::Error::other(kind))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_folder_is_found_created_and_never_changed() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a/b");
        assert!(Private::find(&path).unwrap().is_none());
        let private = Private::create(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Private::create(&path).unwrap();
        assert_eq!(mode(&path), 0o755);
        fs::write(path.join("x"), "").unwrap();
        fs::set_permissions(path.join("x"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(private.is_open("x") && !private.is_open("y"));
        private.close("x").unwrap();
        private.close_folder().unwrap();
        assert_eq!((mode(&path), mode(&path.join("x"))), (0o700, 0o600));
        symlink(&path, above.path().join("link")).unwrap();
        assert!(matches!(Private::create(&above.path().join("link")), Err(NotPrivate::Link)));
        assert!(matches!(Private::create(&above.path().join("link/")), Err(NotPrivate::Link)));
        fs::write(above.path().join("file"), "").unwrap();
        assert!(matches!(Private::create(&above.path().join("file")), Err(NotPrivate::System(_))));
        for wrong in [path.clone(), above.path().join("a")] {
            fs::set_permissions(&wrong, fs::Permissions::from_mode(0o777)).unwrap();
            let Err(NotPrivate::Changeable(why)) = Private::find(&path) else { panic!("it is open") };
            assert_eq!(why.part, fs::canonicalize(&wrong).unwrap());
            assert!(matches!(Private::create(&path.join("c")), Err(NotPrivate::Changeable(_))));
            assert!(!path.join("c").exists());
            fs::set_permissions(&wrong, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn files_are_regular_bounded_and_of_this_user() {
        let above = tempfile::tempdir().unwrap();
        let private = Private::create(&above.path().join("own")).unwrap();
        let at = |name: &str| above.path().join("own").join(name);
        fs::write(at("file"), "text").unwrap();
        assert_eq!(private.bytes("file", 4).unwrap(), b"text");
        assert!(private.bytes("file", 3).unwrap_err().to_string().contains("longer than 3 bytes"));
        File::create(at("sparse")).unwrap().set_len(3 << 30).unwrap();
        assert!(private.bytes("sparse", 1 << 20).is_err());
        symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("open"), "").unwrap();
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o666)).unwrap();
        for (name, why) in
            [("link", "symbolic link"), ("fifo", "FIFO"), ("folder", "folder"), ("open", "by other users")]
        {
            for refused in [
                private.open(name),
                private.append(name),
                private.open_or_create(name),
                private.create_new(name),
            ] {
                let said = refused.unwrap_err().to_string();
                assert!(said.contains(why), "{name}: {said}");
            }
        }
        if rustix::process::geteuid().is_root() {
            chown(at("file"), Some(65534), None).unwrap();
            let said = private.bytes("file", 4).unwrap_err().to_string();
            assert!(said.contains("belongs to user 65534"), "{said}");
        }
    }
}
