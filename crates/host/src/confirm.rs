//! An apply that reverts by itself unless somebody says that it stays: for changes that may cut off whoever makes them.
//!
//! ```text
//!  apply --confirm 60s ── starts ──▸ revert: another process, another session, no terminal
//!    lock, begun ... applied            waits for the lock, then for a line in the entry, at most 60 s
//!    unlock                             confirmed, undone: it ends.   60 s, or a dead apply: it undoes
//! ```
//! It is started before the first change. Its end by SIGKILL, or that of the machine, leaves the entry awaiting:
//! `status` shows it as overdue.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::journal::{Entry, Journal, JournalError, Line, Lock, State};
use crate::machine::Machine;
use crate::undo::{UndoError, Undone, undo};
use crate::whereabouts;

/// Longest sleep between two looks, for a journal on a file system that reports no changes. Shorter: a process that
/// wakes for nothing. Longer: it outlives a confirmation for that long, which harms nobody.
const LOOK: Duration = Duration::from_secs(60);

/// Why a confirmation was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing is awaited.
    #[error("no apply awaits a confirmation")]
    Nothing,
    /// This one is not awaited.
    #[error("apply {id} awaits no confirmation: it {why}")]
    NotAwaited {
        /// The entry's number.
        id: u64,
        /// What it is instead.
        why: &'static str,
    },
}

/// Says that an apply stays: this one, or the last that is awaited. Gives the entry.
///
/// # Errors
/// There is none that is awaited.
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
        State::Awaiting => None,
        State::Applied => Some("stays already"),
        State::Undone => Some("has been undone"),
        State::Unfinished | State::HalfUndone => Some("stands between old and new; undo it"),
    };
    if let Some(why) = why {
        return Err(ConfirmError::NotAwaited { id, why });
    }
    writing.append(&Line::Confirmed { time: crate::apply::now(), user: whereabouts::user() })?;
    writing.sync()?;
    Ok(lock.journal().entry(id)?)
}

/// Waits for what becomes of an apply that is being made, and undoes it when it is not confirmed in time. Nothing when
/// there was nothing to undo.
///
/// # Errors
/// The journal or the undo.
pub fn revert(machine: &dyn Machine, journal: &Journal, id: u64) -> Result<Option<Undone>, UndoError> {
    // Whoever applies holds the lock until it is done, or dead.
    let lock = journal.lock_whenever()?;
    let mut entry = match journal.entry(id) {
        // It failed before it changed anything, and took its entry with it.
        Err(JournalError::Unknown { .. }) => return Ok(None),
        entry => entry?,
    };
    if entry.state == State::Unfinished {
        return undo(machine, &lock, Some(id), "the apply died", false).map(Some);
    }
    drop(lock);
    let deadline = Instant::now() + Duration::from_secs(entry.begun.confirm.unwrap_or(0));
    let watch = Watch::on(&journal.path(id));
    while entry.state == State::Awaiting {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let lock = journal.lock_whenever()?;
            return match journal.entry(id)?.state {
                State::Awaiting => undo(machine, &lock, Some(id), "not confirmed in time", false).map(Some),
                _ => Ok(None),
            };
        }
        watch.sleep(left.min(LOOK));
        entry = match journal.entry(id) {
            Err(JournalError::Unknown { .. }) => return Ok(None),
            entry => entry?,
        };
    }
    Ok(None)
}

/// Wakes when a file is written to.
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
            // No watch to be had: look now and then instead.
            std::thread::sleep(longest.min(Duration::from_secs(1)));
            return;
        };
        let time = Timespec::try_from(longest).ok();
        // Whatever ends the wait, the caller looks for itself.
        let _ = rustix::event::poll(&mut [PollFd::new(watch, PollFlags::IN)], time.as_ref());
        let mut events = [0; 1024];
        while matches!(rustix::io::read(watch, &mut events), Ok(1..)) {}
    }
}
