//! Regular files and directories by a path that root or the operator chose; what both ways of opening them share.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};

/// How a regular file is opened: read only, and without waiting. Some files of `/proc` are regular and wait:
/// `/proc/kmsg`.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Maximum number of names in a directory for which no smaller limit is known. Process directories are the longest: a
/// machine has at most 4,194,304 PIDs (`PID_MAX_LIMIT`), and busy ones have some 50,000. Lower: a busy machine's
/// processes are not read. Higher: a hostile directory uses more memory.
pub const MAX_NAMES: usize = 1 << 20;

/// A regular file, open for reading; links in its path are followed. Opening it never waits, and reading it neither.
///
/// # Errors
/// It cannot be opened, or is something else than a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    reopened(&openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The whole of a regular file, of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; or it is longer.
pub fn bytes(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    whole(open(path.as_ref())?, limit)
}

/// The same as text.
///
/// # Errors
/// As [`bytes`]; or it is not UTF-8.
pub fn text(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    utf8(bytes(path, limit)?)
}

/// The first bytes of a regular file, `length` at most.
///
/// # Errors
/// As [`open`].
pub fn start(path: impl AsRef<Path>, length: usize) -> io::Result<Vec<u8>> {
    cut(open(path.as_ref())?, length)
}

/// A file that the operator names as input, open for reading. A pipe is one (`<(zcat x.gz)`), and so it may wait for
/// its writer.
///
/// # Errors
/// It cannot be opened.
pub fn input(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Where what is written disappears: `/dev/null`.
///
/// # Errors
/// It cannot be opened.
pub fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Is it a regular file? Links in its path are followed.
#[must_use]
pub fn is_regular(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file())
}

/// A directory, open for what is done by its descriptor: a lock, a sync, a control group's programs.
///
/// # Errors
/// It cannot be opened, or is not a directory.
pub fn folder(path: impl AsRef<Path>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, path.as_ref(), flags, Mode::empty())?))
}

/// The names in a directory, in its order.
///
/// # Errors
/// It cannot be listed, or has more than `limit` names.
pub fn names(path: impl AsRef<Path>, limit: usize) -> io::Result<Vec<OsString>> {
    Listing::new(folder(path)?)?.all(limit)
}

/// Opens for reading what an `O_PATH` descriptor names: the same inode, even if its name has changed since.
pub(crate) fn reopened(found: &OwnedFd) -> io::Result<File> {
    let kind = match FileType::from_raw_mode(fstat(found)?.st_mode) {
        FileType::RegularFile => {
            let path = format!("/proc/self/fd/{}", found.as_raw_fd());
            return Ok(File::from(openat(CWD, path, READING, Mode::empty())?));
        }
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown type",
    };
    Err(io::Error::other(format!("is {kind}; only regular files are read here")))
}

pub(crate) fn whole(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("is longer than {limit} bytes, the limit for this file")));
    }
    Ok(bytes)
}

pub(crate) fn cut(file: File, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

/// A directory that is being listed: names one by one, `.` and `..` left out.
#[derive(Debug)]
pub struct Listing(Dir);

impl Listing {
    /// Lists an open directory.
    ///
    /// # Errors
    /// The descriptor is not a directory open for reading.
    pub fn new(folder: impl AsFd) -> io::Result<Self> {
        Ok(Self(Dir::read_from(folder)?))
    }

    /// All names.
    ///
    /// # Errors
    /// There are more than `limit`, or the directory cannot be read to its end.
    pub fn all(self, limit: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for name in self {
            if names.len() == limit {
                return Err(io::Error::other(format!("has more than {limit} names, the limit here")));
            }
            names.push(name?);
        }
        Ok(names)
    }
}

impl Iterator for Listing {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Err(error) => return Some(Err(error.into())),
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => return Some(Ok(OsStr::from_bytes(name).to_owned())),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_regular_files_up_to_a_limit_and_never_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("fifo", at("link")).unwrap();
        for name in ["fifo", "link"] {
            assert!(bytes(at(name), 9).unwrap_err().to_string().contains("is a FIFO"));
        }
        assert!(bytes("/dev/zero", 9).unwrap_err().to_string().contains("is a device"));
        fs::write(at("file"), "0123456789").unwrap();
        assert_eq!(text(at("file"), 10).unwrap(), "0123456789");
        assert!(bytes(at("file"), 9).unwrap_err().to_string().contains("is longer than 9 bytes"));
        assert_eq!(start(at("file"), 4).unwrap(), b"0123");
        assert_eq!(names(folder.path(), 3).unwrap().len(), 3);
        assert!(names(folder.path(), 2).is_err());
        assert!(is_regular(&at("file")) && !is_regular(&at("fifo")) && !is_regular(folder.path()));
    }
}
