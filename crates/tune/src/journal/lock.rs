//! The lock for writing the journal, and so for changing settings: one process at a time.
//!
//! Any process that can open the lock file can hold it indefinitely, so only the owner has access to the folder and its
//! files; files that an earlier version made world-readable are tightened when the lock is taken.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::disk::Step;
use super::writing::{self, Writing};
use super::{Begun, Entry, Journal, JournalError, Line, entry};
use crate::context::{self, now};

/// How long to wait for another udpath. An apply takes well under a second, unless a driver resets its link, which
/// takes a few. Shorter fails needlessly; longer leaves a script hanging on a stuck process.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// Pause between two attempts to take the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// The lock that permits writing the journal.
#[derive(Debug)]
#[must_use = "dropping this releases the lock"]
pub struct Lock {
    journal: Journal,
    _file: File,
}

impl Journal {
    /// Waits for the lock, and creates the folder.
    ///
    /// # Errors
    /// The folder cannot be created, others could write to it, or another process holds the lock for too long.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        let (file, path) = self.lock_file()?;
        let until = Instant::now() + WAIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let holder = holder(&file, &path);
                    return Err(JournalError::Held { path, holder });
                }
                Err(errno) => return Err(JournalError::system("lock", &path, errno.into())),
            }
        }
        Ok(self.locked(file))
    }

    /// Like [`Journal::lock`], without a timeout: for a process that waits for an apply to end.
    ///
    /// # Errors
    /// The folder cannot be created, or the lock cannot be taken.
    pub fn lock_whenever(&self) -> Result<Lock, JournalError> {
        let (file, path) = self.lock_file()?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| JournalError::system("lock", &path, errno.into()))?;
        Ok(self.locked(file))
    }

    /// The holder's pid is informational, so a full disk is not fatal.
    fn locked(&self, mut file: File) -> Lock {
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Lock { journal: self.clone(), _file: file }
    }

    fn lock_file(&self) -> Result<(File, PathBuf), JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(|cause| JournalError::system("create the journal", &self.directory, cause))?;
        self.tighten()?;
        let path = self.directory.join("lock");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        Ok((file.map_err(|cause| JournalError::system("open", &path, cause))?, path))
    }

    /// Removes the permissions of group and others on the folder and its files.
    fn tighten(&self) -> Result<(), JournalError> {
        let failed = |cause| JournalError::system("read", &self.directory, cause);
        let folder = fs::metadata(&self.directory).map_err(failed)?;
        let user = rustix::process::geteuid().as_raw();
        let shared = |why: String| JournalError::Shared { path: self.directory.clone(), why, user };
        if folder.uid() != user && user != 0 {
            return Err(JournalError::system(
                "open",
                &self.directory,
                io::ErrorKind::PermissionDenied.into(),
            ));
        }
        if folder.uid() != user {
            // Its owner could plant entries that are then carried out as this user.
            return Err(shared(format!("belongs to user {}, not to user {user}", folder.uid())));
        }
        if folder.mode() & OTHERS == 0 {
            return Ok(());
        }
        let owners = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode));
        owners(&self.directory, 0o700).map_err(|cause| {
            shared(format!("can be opened by other users, and that cannot be changed ({cause})"))
        })?;
        for file in fs::read_dir(&self.directory).map_err(failed)?.flatten() {
            if file.metadata().is_ok_and(|file| file.is_file() && file.mode() & OTHERS != 0) {
                // No one else can reach it through the folder any more.
                let _ = owners(&file.path(), 0o600);
            }
        }
        Ok(())
    }
}

/// The lock's holder: the one the kernel reports, else the last writer of the file.
fn holder(file: &File, path: &Path) -> String {
    let known = file.metadata().ok().and_then(|file| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| flocked(line, file.dev(), file.ino()))
    });
    let pid = known.or_else(|| {
        let signed = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        Path::new(&format!("/proc/{signed}")).exists().then_some(signed)
    });
    match pid {
        // A process of another pid namespace shows up as pid 0 here.
        None | Some(0) => "a process that is not visible here (in another container?)".to_owned(),
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim();
            let name = if name.is_empty() { "it has ended; a child may hold the file" } else { name };
            format!("pid {pid} ({name})")
        }
    }
}

/// The pid in a line of /proc/locks, `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`, if the line is for this file.
fn flocked(line: &str, device: u64, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // A waiter's line has an arrow in second place.
    let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
    let mut numbers = file.split(':');
    let mut hex = || u32::from_str_radix(numbers.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    let same = (major, minor) == (rustix::fs::major(device), rustix::fs::minor(device))
        && numbers.next()?.parse() == Ok(inode);
    same.then(|| pid.parse().ok()).flatten()
}

/// Marks an entry as having a process that waits to revert it, until the file is closed, even if the process is killed.
///
/// # Errors
/// The entry does not exist, or its file cannot be locked.
pub(crate) fn attend(journal: &Journal, id: u64) -> Result<File, JournalError> {
    let path = journal.path(id);
    let file = File::open(&path).map_err(|cause| JournalError::system("open", &path, cause))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|errno| JournalError::system("lock", &path, errno.into()))?;
    Ok(file)
}

/// Is a process waiting to revert an entry?
pub(crate) fn attended(journal: &Journal, id: u64) -> bool {
    let probe = |file: File| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    File::open(journal.path(id)).is_ok_and(|file| probe(file) == Err(Errno::WOULDBLOCK))
}

impl Lock {
    /// The journal that is locked.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Creates an entry with its first line, synced. `begun` receives its number.
    pub(crate) fn begin(&self, begun: impl FnOnce(u64) -> Begun) -> Result<(u64, Writing), JournalError> {
        let Journal { directory, disk } = &self.journal;
        let id = self.journal.next_id()?;
        let beside = directory.join(format!(".{id:06}.new"));
        // Left by a process that was killed while it created this number.
        let _ = fs::remove_file(&beside);
        let begin = || -> Result<Writing, JournalError> {
            let mut writing = Writing::make(&beside, disk)?;
            writing.append(&Line::Begun(begun(id)))?;
            writing.sync()?;
            writing.rename(&self.journal.path(id))?;
            Ok(writing)
        };
        let written = begin();
        if written.is_err() {
            // Nothing was changed yet, so the entry is not needed.
            let _ = fs::remove_file(&beside);
            let _ = fs::remove_file(self.journal.path(id));
        }
        written.map(|writing| (id, writing))
    }

    /// Reopens an entry for writing.
    pub(crate) fn resume(&self, id: u64) -> Result<(Entry, Writing), JournalError> {
        let (path, text) = (self.journal.path(id), self.journal.text(id)?);
        let parsed = entry::parse(&path, id, &text)?;
        let writing = Writing::resume(&path, &self.journal.disk, &parsed, text.len() as u64)?;
        Ok((parsed.entry, writing))
    }

    /// Removes an entry that has changed nothing.
    pub(crate) fn remove(&self, id: u64) {
        let path = self.journal.path(id);
        // If it cannot be removed, it remains as an entry without changes.
        let _ = self.journal.disk.step(Step::Remove, || fs::remove_file(&path));
    }

    /// Rewrites an entry that was damaged since it was read; the damaged file is kept under another name.
    pub(crate) fn rewrite(&self, entry: &Entry) -> Result<(), JournalError> {
        let Journal { directory, disk } = &self.journal;
        let beside = directory.join(format!(".{:06}.new", entry.id));
        let _ = fs::remove_file(&beside);
        let mut writing = Writing::make(&beside, disk)?;
        entry.lines().iter().try_for_each(|line| writing.append(line))?;
        writing.sync()?;
        let path = self.journal.path(entry.id);
        // Kept for inspection only.
        let _ = fs::hard_link(&path, self.journal.closed(entry.id));
        writing.rename(&path)
    }

    /// Closes an entry, and changes nothing else: by a line, or by renaming it if it cannot be read.
    pub(crate) fn close(&self, id: u64) -> Result<(), JournalError> {
        match self.resume(id) {
            Ok((_, mut writing)) => {
                writing.append(&Line::Closed { time: now(), user: context::user() })?;
                writing.sync()
            }
            Err(error @ JournalError::Unknown { .. }) => Err(error),
            Err(_) => {
                let (path, closed) = (self.journal.path(id), self.journal.closed(id));
                let rename = || -> io::Result<()> { fs::rename(&path, &closed) };
                let renamed = self.journal.disk.step(Step::Rename, rename);
                renamed.map_err(|cause| JournalError::system("rename", &path, cause))?;
                writing::sync_folder(&path, &self.journal.disk)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_holder_is_the_one_the_kernel_reports() {
        let device = rustix::fs::makedev(0xfe, 3);
        let line = "4: FLOCK  ADVISORY  WRITE 4711 fe:03:1234 0 EOF";
        assert_eq!(flocked(line, device, 1234), Some(4711));
        assert_eq!(flocked(line, device, 1235), None);
        assert_eq!(flocked(line, rustix::fs::makedev(0xfe, 4), 1234), None);
        assert_eq!(flocked("4: -> FLOCK  ADVISORY  WRITE 4712 fe:03:1234 0 EOF", device, 1234), None);
        assert_eq!(flocked("5: POSIX  ADVISORY  WRITE 4711 fe:03:1234 0 EOF", device, 1234), None);
        for bad in ["", "4: FLOCK", "4: FLOCK ADVISORY WRITE x fe:03:1234 0 EOF", "4: FLOCK a b 1 fe 0"] {
            assert_eq!(flocked(bad, device, 1234), None, "{bad}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = File::create(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        fs::write(&path, "1\n").unwrap();
        let said = holder(&File::open(&path).unwrap(), &path);
        assert!(said.starts_with(&format!("pid {} (", std::process::id())), "{said}");
    }
}
