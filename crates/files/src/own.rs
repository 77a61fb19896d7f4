//! Files of udpath's own in a folder of its own, such as records in `/run/udpath`: read and appended to in place.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid, fchown, fstat, openat};

/// Reading and appending; a link is an error, and nothing waits for a FIFO.
const OPEN: OFlags = OFlags::RDWR
    .union(OFlags::APPEND)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A new file, which must not exist, for its owner alone (mode 0600).
///
/// # Errors
/// There is one ([`io::ErrorKind::AlreadyExists`]), or a system call failed.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
    Ok(File::from(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?))
}

/// The same file, or a new one if there is none.
///
/// # Errors
/// As [`open`].
pub fn open_or_create(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(path),
        made => made,
    }
}

/// Gives a folder, which is in one of udpath's own, to a user and group.
///
/// # Errors
/// It is a link, or not a folder; or this user may not.
pub fn give(folder: &Path, user: u32, group: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, flags, Mode::empty())?;
    Ok(fchown(&folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
}

/// An existing file.
///
/// # Errors
/// There is none, it is a link or not a regular file, or it belongs to another user: whoever owns it could have written
/// it.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::from(openat(CWD, path, OPEN, Mode::empty())?);
    let about = fstat(&file)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("is not a regular file"));
    }
    if about.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("belongs to user {}", about.st_uid)));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn files_of_ones_own_and_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create(&at("record")).unwrap().write_all(b"one\n").unwrap();
        assert_eq!(create(&at("record")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let mut file = open(&at("record")).unwrap();
        file.write_all(b"two\n").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
        std::os::unix::fs::symlink(at("record"), at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(open(&at("link")).is_err() && create(&at("link")).is_err());
        assert!(open(&at("fifo")).is_err() && open_or_create(&at("link")).is_err());
        assert!(open_or_create(&at("record")).is_ok() && open_or_create(&at("new")).is_ok());
        assert!(give(folder.path(), 0, 0).is_ok() || !rustix::process::geteuid().is_root());
        assert!(give(&at("link"), 0, 0).is_err());
    }
}
