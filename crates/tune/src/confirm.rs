//! An apply that reverts unless it is confirmed: for changes that may cut off the operator who makes them.
//!
//! ```text
//!  apply --confirm 60s ── starts ──▸ revert: a systemd unit; without systemd, a process in a new session
//!    lock, begun ... applied            waits for the lock, then for a line in the entry, at most 60 s
//!    unlock                             confirmed or undone: it exits.   60 s, or a dead apply: it undoes what it can
//! ```
//! The reverting process starts before the first change and holds a lock on the entry's file while it runs, so `status`
//! shows at once if it is gone. If it is killed, systemd restarts it; without systemd the entry stays awaiting, and
//! overdue.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::context;
use crate::journal::{DIED, Entry, Journal, JournalError, Line, Lock, State, UNCONFIRMED, attend};
use crate::machine::Machine;
use crate::undo::{UndoError, Undone, undo_what_can_be};
use udpath_host::namespace::Place;

/// Longest sleep between two checks, for a journal on a file system without inotify events. Shorter: needless wakeups.
/// Longer: the process outlives a confirmation by that long, which does no harm.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Why a confirmation was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No apply awaits confirmation.
    #[error("no apply awaits confirmation")]
    Nothing,
    /// This apply does not await confirmation.
    #[error("apply {id} does not await confirmation: it {why}")]
    NotAwaited {
        /// The entry's number.
        id: u64,
        /// Its actual state.
        why: &'static str,
    },
}

/// Confirms an apply: the given one, or the last one awaiting confirmation. Returns the entry.
///
/// # Errors
/// No apply awaits confirmation.
pub fn confirm(lock: &Lock, id: Option<u64>) -> Result<Entry, ConfirmError> {
    let id = match id {
        Some(id) => id,
        None => {
            let entries = lock.journal().entries()?;
            let last = entries.iter().rev().find(|entry| entry.state == State::Awaiting);
            last.ok_or(ConfirmError::Nothing)?.id
        }
    };
    let (entry, mut writing) = lock.resume(id)?;
    let why = match entry.state {
        State::Awaiting if entry.begun.boot != context::boot() => Some("was lost at a reboot"),
        State::Awaiting => None,
        State::Applied => Some("is confirmed already"),
        State::Undone => Some("has been undone"),
        State::Closed => Some("has been closed"),
        State::Unfinished | State::HalfUndone => Some("did not finish; undo it"),
    };
    if let Some(why) = why {
        return Err(ConfirmError::NotAwaited { id, why });
    }
    writing.append(&Line::Confirmed { time: context::now(), user: context::user() })?;
    writing.sync()?;
    Ok(lock.journal().entry(id)?)
}

/// The process that will revert an apply.
#[derive(Debug)]
#[must_use = "dropping this shows in the status as a revert that does not run"]
pub struct Attending {
    /// The location of the settings.
    pub place: Place,
    _file: File,
}

/// Registers this process as the one that will revert an apply.
///
/// # Errors
/// The entry does not exist or cannot be read, or its network namespace is not found.
pub fn attended_by_this(journal: &Journal, id: u64) -> Result<Attending, UndoError> {
    let entry = journal.entry(id)?;
    let file = attend(journal, id)?;
    let inode = entry.begun.namespace.inode;
    let place =
        context::find(&entry.begun.namespace).ok_or(UndoError::Elsewhere { id, inode, place: None })?;
    Ok(Attending { place, _file: file })
}

/// Waits for the outcome of an apply in progress, and undoes what it can if it is not confirmed in time. `None` if
/// there was nothing to undo. `begins` is called before anything is undone: a signal may end the wait, but not the
/// undo.
///
/// # Errors
/// The journal, the undo or `begins` failed.
pub fn revert<E: From<UndoError>>(
    machine: &dyn Machine,
    journal: &Journal,
    id: u64,
    begins: impl FnOnce() -> Result<(), E>,
) -> Result<Option<Undone>, E> {
    let Some((lock, why)) = wait(journal, id)? else { return Ok(None) };
    begins()?;
    Ok(Some(undo_what_can_be(machine, &lock, id, why)?))
}

/// Waits until an apply must be undone, and returns why. `None` if there is nothing to undo.
fn wait(journal: &Journal, id: u64) -> Result<Option<(Lock, &'static str)>, UndoError> {
    // The applying process holds the lock until it finishes or dies.
    let lock = journal.lock_whenever()?;
    let mut entry = match journal.entry(id) {
        // The apply failed before its first change and removed its entry.
        Err(JournalError::Unknown { .. }) => return Ok(None),
        entry => entry?,
    };
    match entry.state {
        State::Unfinished => return Ok(Some((lock, DIED))),
        // An earlier instance was killed while reverting; continue its work.
        State::HalfUndone => return Ok(Some((lock, UNCONFIRMED))),
        _ => drop(lock),
    }
    let deadline = Instant::now() + left(&entry);
    let watch = Watch::on(&journal.path(id));
    while entry.state == State::Awaiting {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return unconfirmed(journal, &entry);
        }
        watch.sleep(left.min(POLL_INTERVAL));
        match journal.entry(id) {
            Err(JournalError::Unknown { .. }) => return Ok(None),
            // An unreadable entry does not count as confirmed.
            Err(_) => {}
            Ok(now) => entry = now,
        }
    }
    Ok(None)
}

/// Time to the deadline, by the clock that the journal uses, since this process may have been restarted; never more
/// than was requested, even if the clock was set back.
fn left(entry: &Entry) -> Duration {
    let longest = Duration::from_secs(entry.begun.confirm.unwrap_or(0));
    let left = entry.deadline().unwrap_or(0).saturating_sub(context::now());
    Duration::from_millis(left).min(longest)
}

/// An apply at its deadline, unless it was confirmed or undone at the last moment.
fn unconfirmed(journal: &Journal, entry: &Entry) -> Result<Option<(Lock, &'static str)>, UndoError> {
    let lock = journal.lock_whenever()?;
    match journal.entry(entry.id) {
        Ok(now) if now.state != State::Awaiting => return Ok(None),
        Err(JournalError::Unknown { .. }) => return Ok(None),
        Ok(_) => {}
        // Damaged since it was read: write back the contents known here.
        Err(_) => lock.rewrite(entry)?,
    }
    Ok(Some((lock, UNCONFIRMED)))
}

/// Wakes when a file is written.
struct Watch(io::Result<rustix::fd::OwnedFd>);

impl Watch {
    fn on(path: &Path) -> Self {
        let open = || -> io::Result<_> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&watch, path, WatchFlags::MODIFY | WatchFlags::DELETE_SELF)?;
            Ok(watch)
        };
        Self(open())
    }

    fn sleep(&self, longest: Duration) {
        let Ok(watch) = &self.0 else {
            // No inotify watch: poll instead.
            std::thread::sleep(longest.min(Duration::from_secs(1)));
            return;
        };
        let time = Timespec::try_from(longest).ok();
        // Whatever ended the wait, the caller checks the state.
        let _ = rustix::event::poll(&mut [PollFd::new(watch, PollFlags::IN)], time.as_ref());
        let mut events = [0; 1024];
        while matches!(rustix::io::read(watch, &mut events), Ok(1..)) {}
    }
}
