//! Results that the operator asked for: written completely or not at all, at a path of the operator's choice.
//!
//! ```text
//! .x.html.udpath-PID-N   <- bytes, fsync            a failure here removes it; x.html is as it was
//! x.html                 <- rename, fsync(folder)
//! ```
//! A link of root or of this user is followed, and stays a link; one that somebody else put into the path is an error
//! that names it. A device or a pipe is written directly, unless it is somebody else's in a folder that they may write.
//! What is there is replaced, not written: not even another name of the same file (a hard link) is changed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::replace::{New, Place};
use crate::walk::{self, Found};

/// Writes `contents` to `path`. A file that is created has `mode`, less the bits of the umask.
///
/// # Errors
/// A system call failed; `path` is a folder, or leads through a link of somebody else. What was there is as before.
pub fn whole(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let place = match Target::of(path)? {
        Target::Direct(found) => return direct(&found, contents),
        Target::Name(found) => Place::of(found),
    };
    let mut new = New::create(&place, Mode::from_raw_mode(mode))?;
    new.file().write_all(contents)?;
    new.file().sync_all()?;
    new.rename()?;
    place.sync();
    Ok(())
}

/// Opens `path` for a result that is written as it grows, from its beginning.
///
/// # Errors
/// As [`whole`].
pub fn stream(path: &Path) -> io::Result<File> {
    let (found, flags) = match Target::of(path)? {
        Target::Direct(found) => return opened(&found),
        Target::Name(found) => (found, OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK),
    };
    let flags = flags | OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(&found.folder, &found.name, flags, Mode::from_raw_mode(0o666))?))
}

/// Checks whether [`whole`] could write `path`, and changes nothing. Whether there will be enough space is unknown.
///
/// # Errors
/// As [`whole`].
pub fn check(path: &Path) -> io::Result<()> {
    match Target::of(path)? {
        // A pipe may have no reader yet, and opening it would wait for one.
        Target::Direct(_) => Ok(()),
        Target::Name(found) => New::create(&Place::of(found), Mode::RUSR).map(drop),
    }
}

/// The path of a file that a library opens by its name, such as a database: without links, and with a regular file or
/// nothing at its end.
///
/// # Errors
/// As [`whole`], or something else than a regular file is there.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    match Target::of(path)? {
        Target::Direct(_) => Err(io::Error::other("is not a regular file")),
        Target::Name(found) => {
            if let Some(about) = found.about()?
                && found.is_foreign(&about)?
            {
                return Err(io::Error::other(format!("belongs to user {}", about.st_uid)));
            }
            Ok(found.real())
        }
    }
}

/// The path of a folder without links, for results that are several files.
///
/// # Errors
/// It is missing or no folder, or its path leads through a link of somebody else.
pub fn folder(path: &Path) -> io::Result<PathBuf> {
    walk::folder(path)
}

/// Creates a folder for results, and those that it is in, unless they exist.
///
/// # Errors
/// As [`folder`], or one cannot be created.
pub fn create_folder(path: &Path) -> io::Result<()> {
    match walk::folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map(drop),
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_folder(above)?;
    }
    // `new/..` exists by now.
    if walk::folder(path).is_ok() {
        return Ok(());
    }
    let found = walk::to(path)?;
    match mkdirat(&found.folder, &found.name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => walk::folder(path).map(drop),
        made => Ok(made?),
    }
}

/// What a path leads to.
enum Target {
    /// A device or a pipe, which cannot be replaced by a rename.
    Direct(Found),
    /// A regular file, or nothing.
    Name(Found),
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let found = walk::to(path)?;
        if found.descriptor {
            return Ok(Self::Direct(found));
        }
        let Some(about) = found.about()? else { return Ok(Self::Name(found)) };
        match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile => Ok(Self::Name(found)),
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            _ if found.is_foreign(&about)? => Err(io::Error::other(format!(
                "it is a device or a pipe of user {}, in a folder that others may write",
                about.st_uid
            ))),
            _ => Ok(Self::Direct(found)),
        }
    }
}

/// Opens a device or a pipe.
fn opened(found: &Found) -> io::Result<File> {
    let follow = if found.descriptor { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
    Ok(File::from(openat(&found.folder, &found.name, flags, Mode::empty())?))
}

fn direct(found: &Found, contents: &[u8]) -> io::Result<()> {
    let mut file = opened(found)?;
    file.write_all(contents)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn links_of_ones_own_stay_links_and_hard_links_keep_their_text() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/x"), "old").unwrap();
        symlink("real", at("folder")).unwrap();
        symlink(at("folder/x"), at("link")).unwrap();
        fs::hard_link(at("real/x"), at("name")).unwrap();
        check(&at("link")).unwrap();
        whole(&at("link"), b"new", 0o640).unwrap();
        assert_eq!(fs::read(at("real/x")).unwrap(), b"new");
        assert_eq!(fs::read(at("name")).unwrap(), b"old");
        assert_eq!(fs::metadata(at("real/x")).unwrap().mode() & 0o777 & !0o640, 0);
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(real(&at("link")).unwrap(), fs::canonicalize(at("real/x")).unwrap());
        assert_eq!(super::folder(&at("folder/..")).unwrap(), fs::canonicalize(folder.path()).unwrap());
        assert_eq!(super::folder(Path::new("")).unwrap(), std::env::current_dir().unwrap());
        create_folder(&at("folder/a/../b/c")).unwrap();
        create_folder(&at("real/b/c/")).unwrap();
        assert!(at("real/b/c").is_dir() && create_folder(&at("real/x/y")).is_err());
        fs::remove_dir_all(at("real/a")).unwrap();
        fs::remove_dir_all(at("real/b")).unwrap();
        assert!(super::folder(&at("real/x")).is_err() && super::folder(&at("no")).is_err());
        whole(&at("folder/../real/./y"), b"y", 0o600).unwrap();
        assert_eq!(fs::read(at("real/y")).unwrap(), b"y");
        // Nothing is left beside them.
        assert_eq!(fs::read_dir(at("real")).unwrap().count(), 2);
        symlink("loop", at("loop")).unwrap();
        assert!(whole(&at("loop"), b"", 0o600).is_err());
        assert!(whole(&at("real/x/y"), b"", 0o600).is_err() && whole(Path::new("/"), b"", 0o600).is_err());
    }

    #[test]
    fn pipes_and_devices_are_written_directly() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Both ends, so that nothing waits.
        let reader = File::options().read(true).write(true).open(&fifo).unwrap();
        whole(&fifo, b"text", 0o600).unwrap();
        whole(Path::new("/dev/null"), b"text", 0o600).unwrap();
        let mut bytes = [0; 4];
        io::Read::read_exact(&mut &reader, &mut bytes).unwrap();
        assert_eq!(&bytes, b"text");
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        whole(Path::new(&path), b"pipe", 0o600).unwrap();
        io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        assert_eq!(&bytes, b"pipe");
    }

    #[test]
    fn what_others_put_into_a_folder_that_they_may_write_is_not_followed() {
        // Only root can give a link to somebody else.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::create_dir(at("secret")).unwrap();
        fs::write(at("secret/x"), "secret").unwrap();
        symlink("secret/x", at("file")).unwrap();
        symlink("secret", at("folder")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(at("theirs"), "x").unwrap();
        for name in ["file", "folder", "fifo", "theirs"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        assert!(create_folder(&at("folder/new")).is_err() && !at("secret/new").exists());
        for name in ["file", "folder/x", "fifo"] {
            for refused in [check(&at(name)), whole(&at(name), b"mine", 0o644), real(&at(name)).map(drop)] {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains("user 65534") || name == "fifo", "{name}: {why}");
            }
        }
        assert!(real(&at("theirs")).is_err());
        assert_eq!(fs::read(at("secret/x")).unwrap(), b"secret");
        // Their file is replaced by one of this user.
        whole(&at("theirs"), b"mine", 0o644).unwrap();
        assert_eq!(fs::metadata(at("theirs")).unwrap().uid(), 0);
        // Where nobody else may write, it does not matter whose the link is.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        whole(&at("file"), b"mine", 0o644).unwrap();
        assert_eq!(fs::read(at("secret/x")).unwrap(), b"mine");
    }
}
