//! The folder of running instances, `/run/udpath/multiply/NAME`, and what it records.
//!
//! ```text
//!  lock      held by the supervisor as long as it lives; its pid
//!  record    what must be taken back when it is gone, written before it is made
//!  control   the control socket
//!  journal/  that of the policy, if the instances are units: it ends with the boot, as they do
//!  1/ 2/     the configuration and files of each instance
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use udpath_files::{own, replace};
use udpath_tune::services::SUPERVISORS;

use crate::Error;
use crate::cgroup::Cgroup;

/// Where the folders are.
const FOLDERS: &str = SUPERVISORS;
/// Longest name: part of the path of a socket, which has 107 bytes.
const MAX_NAME: usize = 64;
/// Longest record, bytes: three paths.
const MAX_RECORD: u64 = 64 << 10;
/// Attempts to lock a folder that another process removes at the same time.
const ATTEMPTS: u32 = 10;

/// What must be taken back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The directory of the cgroup.
    pub(crate) path: PathBuf,
    /// Its name, as in /proc/PID/cgroup.
    pub(crate) cgroup: String,
    /// The journal of its policy.
    pub(crate) journal: PathBuf,
    /// The unit that is multiplied, if the instances are units.
    #[serde(default)]
    pub(crate) unit: Option<String>,
}

/// A folder, locked by this process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    name: String,
    _lock: File,
}

/// Whether a folder could be locked.
pub(crate) enum Claim {
    Ours(Folder),
    /// By the supervisor with this pid.
    Held(String),
}

/// Whether text can name instances.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let fine = name.len() <= MAX_NAME
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if fine { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

/// The folder of a name, which need not exist.
pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDERS).join(name)
}

/// The journal of instances that are units. That of their unit is locked while systemd starts them.
#[must_use]
pub fn journal_of(name: &str) -> PathBuf {
    path_of(name).join("journal")
}

/// The names that have a folder.
pub(crate) fn names() -> Vec<String> {
    let names = udpath_files::names(FOLDERS, udpath_files::MAX_NAMES).unwrap_or_default().into_iter();
    let mut names: Vec<String> =
        names.filter_map(|name| name.into_string().ok()).filter(|name| check(name).is_ok()).collect();
    names.sort();
    names
}

impl Folder {
    /// Creates and locks the folder of a name.
    pub(crate) fn claim(name: &str) -> Result<Claim, Error> {
        let path = path_of(name);
        let failed = |what: &str| Error::system(format!("{what} {}", path.display()));
        for _ in 0..ATTEMPTS {
            match DirBuilder::new().recursive(true).mode(0o755).create(&path) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Error::NotRoot),
                made => made.map_err(failed("create"))?,
            }
            let lock = path.join("lock");
            let mut file = match own::open_or_create(&lock) {
                // Removed since it was created.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Error::NotRoot),
                file => file.map_err(failed("lock"))?,
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    let mut pid = String::new();
                    let _ = file.read_to_string(&mut pid);
                    return Ok(Claim::Held(pid.trim().to_owned()));
                }
                locked => locked.map_err(|errno| failed("lock")(errno.into()))?,
            }
            let same = fs::metadata(&lock).is_ok_and(|now| {
                file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (now.dev(), now.ino()))
            });
            if same {
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                return Ok(Claim::Ours(Self { path, name: name.to_owned(), _lock: file }));
            }
        }
        Err(failed("lock")(ErrorKind::WouldBlock.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records what must be taken back.
    pub(crate) fn record(&self, cgroup: &Cgroup, journal: &Path) -> Result<(), Error> {
        let path = self.path.join("record");
        let record = Record {
            path: cgroup.path().to_owned(),
            cgroup: cgroup.name().to_owned(),
            journal: journal.to_owned(),
            unit: cgroup.unit().map(str::to_owned),
        };
        let written = serde_json::to_vec(&record)
            .map_err(Into::into)
            .and_then(|text| replace::whole(&path, &text, 0o600));
        written.map_err(Error::system(format!("write {}", path.display())))
    }

    /// What was recorded; `None` if its supervisor was killed before.
    pub(crate) fn recorded(&self) -> Result<Option<Record>, Error> {
        let path = self.path.join("record");
        let text = match udpath_files::text(&path, MAX_RECORD) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(Error::system(format!("read {}", path.display())))?,
        };
        serde_json::from_str(&text).map(Some).map_err(|error| Error::Record { path, why: error.to_string() })
    }

    /// An empty folder for an instance.
    pub(crate) fn of_instance(&self, number: usize) -> Result<PathBuf, Error> {
        let path = self.path.join(number.to_string());
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::system(format!("remove {}", path.display()))(error));
            }
            _ => {}
        }
        let made = DirBuilder::new().mode(0o755).create(&path);
        made.map_err(Error::system(format!("create {}", path.display())))?;
        Ok(path)
    }

    /// Whether a supervisor has the folder of a name; `None` if there is no such folder. Creates nothing.
    pub(crate) fn look(name: &str) -> Result<Option<Claim>, Error> {
        if path_of(name).exists() { Self::claim(name).map(Some) } else { Ok(None) }
    }

    /// Removes it.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::system(format!("remove {}", self.path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for good in ["dns", "chrony-2", "a.b_c@1", &"x".repeat(64)] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-n", "a/b", "a b", "ä", &"x".repeat(65)] {
            let said = check(bad).unwrap_err().to_string();
            assert!(said.contains("1 to 64 letters"), "{said}");
        }
    }
}
