//! The lock for writing the journal, and so for changing settings: one process at a time.
//!
//! Any process that can open the lock file can hold it indefinitely, so only the owner has access to the folder and its
//! files; what an earlier version made world-readable is tightened when the lock is taken.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use udpath_files::{Private, kernel};

use super::disk::Step;
use super::folder::{LOCK, closed_name, entry_name, new_name};
use super::writing::{self, Writing};
use super::{Begun, Entry, Journal, JournalError, Line, entry};
use crate::context::{self, now};

/// How long to wait for another udpath. An apply takes well under a second, unless a driver resets its link, which
/// takes a few. Shorter fails needlessly; longer leaves a script hanging on a stuck process.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// Pause between two attempts to take the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The lock that permits writing the journal.
#[derive(Debug)]
#[must_use = "dropping this releases the lock"]
pub struct Lock {
    journal: Journal,
    folder: Private,
    _file: File,
}

impl Journal {
    /// Waits for the lock, and creates the folder.
    ///
    /// # Errors
    /// The folder is not a journal or cannot be created, or another process holds the lock for too long.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        let (folder, file) = self.lock_file()?;
        let path = self.directory.join(LOCK);
        let until = Instant::now() + WAIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let holder = holder(&file, &folder);
                    return Err(JournalError::Held { path, holder });
                }
                Err(errno) => return Err(JournalError::system("lock", &path, errno.into())),
            }
        }
        Ok(self.locked(folder, file))
    }

    /// Like [`Journal::lock`], but creates no folder: [`None`] if there is none.
    ///
    /// # Errors
    /// As [`Journal::lock`].
    pub fn lock_existing(&self) -> Result<Option<Lock>, JournalError> {
        self.folder()?.map(|_| self.lock()).transpose()
    }

    /// Like [`Journal::lock`], without a timeout: for a process that waits for an apply to end.
    ///
    /// # Errors
    /// The folder is not a journal or cannot be created, or the lock cannot be taken.
    pub fn lock_whenever(&self) -> Result<Lock, JournalError> {
        let (folder, file) = self.lock_file()?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| JournalError::system("lock", &self.directory.join(LOCK), errno.into()))?;
        Ok(self.locked(folder, file))
    }

    /// Whether a process holds the lock. False where it cannot be told, as without the permission to open its file.
    pub(crate) fn is_locked(&self) -> bool {
        let file = self.folder().ok().flatten().and_then(|folder| folder.open(LOCK).ok());
        // Given back as the file is closed: who wants it meanwhile waits.
        file.is_some_and(|file| {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        })
    }

    /// The holder's pid is informational, so a full disk is not fatal.
    fn locked(&self, folder: Private, mut file: File) -> Lock {
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Lock { journal: self.clone(), folder, _file: file }
    }

    fn lock_file(&self) -> Result<(Private, File), JournalError> {
        let folder = self.own_folder()?;
        let file = folder.open_or_create(LOCK);
        let file = file.map_err(|cause| JournalError::system("open", &self.directory.join(LOCK), cause))?;
        Ok((folder, file))
    }
}

/// The lock's holder: the one the kernel reports, else the last writer of the file.
fn holder(file: &File, folder: &Private) -> String {
    let pid = holding(file).or_else(|| {
        let signed = String::from_utf8(folder.bytes(LOCK, 32).ok()?).ok()?.trim().parse().ok()?;
        Path::new(&format!("/proc/{signed}")).exists().then_some(signed)
    });
    match pid {
        // A process of another pid namespace shows up as pid 0 here.
        None | Some(0) => "a process that is not visible here (in another container?)".to_owned(),
        Some(pid) => {
            let name = kernel::text(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim();
            let name = if name.is_empty() { "it has ended; a child may hold the file" } else { name };
            let stopped = match is_stopped(pid) {
                true => format!("; it is stopped, and `kill -CONT {pid}` lets it go on"),
                false => String::new(),
            };
            format!("pid {pid} ({name}{stopped})")
        }
    }
}

/// The process that holds a file's lock, as the kernel reports it; 0: of another pid namespace.
fn holding(file: &File) -> Option<u32> {
    let file = file.metadata().ok()?;
    let locks = kernel::text("/proc/locks").ok()?;
    locks.lines().find_map(|line| flocked(line, file.dev(), file.ino()))
}

/// Does a process not run, since it got SIGSTOP or a debugger holds it?
fn is_stopped(pid: u32) -> bool {
    let status = kernel::text(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| matches!(state.trim().chars().next(), Some('T' | 't')))
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
    let folder = journal.folder()?.ok_or_else(|| journal.unknown(id, &[]))?;
    let file = folder.open(entry_name(id)).map_err(|cause| journal.unusable("open", id, cause))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|errno| JournalError::system("lock", &journal.path(id), errno.into()))?;
    Ok(file)
}

/// What has become of the process that reverts an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attendant {
    /// Its pid; [`None`] if it is not visible here: it runs in another container.
    pub(crate) pid: Option<u32>,
    /// It does not run: it got SIGSTOP, or a debugger holds it.
    pub(crate) stopped: bool,
}

/// The process that waits to revert an entry; [`None`] if none does. One that has ended holds no lock, reaped or not.
pub(crate) fn attendant(journal: &Journal, id: u64) -> Option<Attendant> {
    let file = journal.folder().ok()??.open(entry_name(id)).ok()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK) {
        return None;
    }
    let pid = holding(&file).filter(|pid| *pid != 0);
    Some(Attendant { pid, stopped: pid.is_some_and(is_stopped) })
}

impl Lock {
    /// The journal that is locked.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Creates an entry with its first line, synced. `begun` receives its number.
    pub(crate) fn begin(&self, begun: impl FnOnce(u64) -> Begun) -> Result<(u64, Writing), JournalError> {
        let id = self.journal.next_id()?;
        let beside = new_name(id);
        // Left by a process that was killed while it created this number.
        let _ = self.folder.remove(&beside);
        let begin = || -> Result<Writing, JournalError> {
            let mut writing = Writing::make(&self.folder, beside.clone(), &self.journal.disk)?;
            writing.append(&Line::Begun(begun(id)))?;
            writing.sync()?;
            writing.rename(entry_name(id))?;
            Ok(writing)
        };
        let written = begin();
        if written.is_err() {
            // Nothing was changed yet, so the entry is not needed.
            let _ = self.folder.remove(&beside);
            let _ = self.folder.remove(entry_name(id));
        }
        written.map(|writing| (id, writing))
    }

    /// Reopens an entry for writing.
    pub(crate) fn resume(&self, id: u64) -> Result<(Entry, Writing), JournalError> {
        let text = self.journal.text_in(&self.folder, id)?;
        let parsed = entry::parse(&self.journal.path(id), id, &text)?;
        let (folder, disk) = (&self.folder, &self.journal.disk);
        let writing = Writing::resume(folder, entry_name(id), disk, &parsed, text.len() as u64)?;
        Ok((parsed.entry, writing))
    }

    /// Removes an entry that has changed nothing.
    pub(crate) fn remove(&self, id: u64) {
        // If it cannot be removed, it remains as an entry without changes.
        let _ = self.journal.disk.step(Step::Remove, || self.folder.remove(entry_name(id)));
    }

    /// Rewrites an entry that was damaged since it was read; the damaged file is kept under another name.
    pub(crate) fn rewrite(&self, entry: &Entry) -> Result<(), JournalError> {
        let beside = new_name(entry.id);
        let _ = self.folder.remove(&beside);
        let mut writing = Writing::make(&self.folder, beside, &self.journal.disk)?;
        entry.lines().iter().try_for_each(|line| writing.append(line))?;
        writing.sync()?;
        // Kept for inspection only.
        let _ = self.folder.link(entry_name(entry.id), closed_name(entry.id));
        writing.rename(entry_name(entry.id))
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
                let rename = || -> io::Result<()> { self.folder.rename(entry_name(id), closed_name(id)) };
                let renamed = self.journal.disk.step(Step::Rename, rename);
                renamed.map_err(|cause| JournalError::system("rename", &self.journal.path(id), cause))?;
                writing::sync_folder(&self.folder, &self.journal.disk)
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
        std::fs::write(&path, "1\n").unwrap();
        let private = Private::find(folder.path()).unwrap().unwrap();
        let said = holder(&File::open(&path).unwrap(), &private);
        assert!(said.starts_with(&format!("pid {} (", std::process::id())), "{said}");
    }
}
