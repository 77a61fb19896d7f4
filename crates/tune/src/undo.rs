//! Undoes a journal entry: which one, whether it may be undone here and now, and what the outcome is.

use error_reporter::Report;
use thiserror::Error;
use udpath_host::namespace::Place;

use crate::context::{self, Namespace};
use crate::journal::{Contents, Entry, Intent, JournalError, Lock, State};
use crate::machine::Machine;
use crate::restore::{AfterBoot, Restored, restore};

pub use crate::restore::Left;

/// The result of an undo.
#[derive(Debug)]
pub struct Undone {
    /// The entry's number.
    pub id: u64,
    /// What was not restored.
    pub left: Vec<Left>,
    /// Settings that ended with their process, socket or thread: there is nothing to restore.
    pub ended: Vec<String>,
    /// What was written but could not be read back: the kernel does not report it.
    pub untold: Vec<String>,
    /// Settings that ended with an earlier boot: not checked.
    pub gone_with_boot: Vec<String>,
    /// Everything that can be restored is; otherwise another undo may restore the rest.
    pub complete: bool,
}

/// Why nothing was undone.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No apply is in effect.
    #[error("nothing to undo: the journal {0} has no apply in effect")]
    Nothing(String),
    /// It has already been undone or closed.
    #[error("apply {0} was already undone or closed")]
    Already(u64),
    /// It was made in another network namespace.
    #[error("apply {id} was made in another network namespace; {}", elsewhere(*id, *inode, place.as_ref()))]
    Elsewhere {
        /// The entry's number.
        id: u64,
        /// The namespace's inode.
        inode: u64,
        /// Its current location; `None` if it is not found.
        place: Option<Place>,
    },
    /// Not closed: it can still be undone.
    #[error("apply {0} can still be undone: run `udpath undo {0}`, or add --force to give up the old values")]
    Undoable(u64),
    /// A later apply has changed the same setting.
    #[error("apply {later} came after {id} and changed {setting} too; undo {later} first, or use --force")]
    Later {
        /// The entry's number.
        id: u64,
        /// The later one.
        later: u64,
        /// The setting both have changed.
        setting: String,
    },
    /// This program does not understand its names.
    #[error("apply {id} has a change that this program does not understand: {why}")]
    Strange {
        /// The entry's number.
        id: u64,
        /// The details.
        why: String,
    },
}

/// Where to undo an apply of another namespace, or how to close it.
fn elsewhere(id: u64, inode: u64, place: Option<&Place>) -> String {
    match place {
        Some(Place::Named(name)) => format!("undo it there: udpath undo {id} --netns {name}"),
        Some(Place::Process(pid)) => {
            format!("undo it in the namespace of process {pid}: nsenter -t {pid} -n udpath undo {id}")
        }
        Some(Place::Here) | None => format!(
            "which no longer exists (inode {inode}, found in no name and no process): `udpath undo --forget {id}` \
             closes the entry"
        ),
    }
}

/// Undoes an entry; without a number, the last one in effect here.
///
/// # Errors
/// Why nothing was undone.
pub fn undo(
    machine: &dyn Machine,
    lock: &Lock,
    id: Option<u64>,
    why: &str,
    force: bool,
) -> Result<Undone, UndoError> {
    take_back(machine, lock, id, why, if force { Others::Overwrite } else { Others::Refuse })
}

/// Like [`undo`] of an entry, but a setting also changed by a later apply is left alone and reported, instead of
/// refusing the whole undo: for an unattended revert.
///
/// # Errors
/// Why nothing was undone.
pub fn undo_what_can_be(machine: &dyn Machine, lock: &Lock, id: u64, why: &str) -> Result<Undone, UndoError> {
    take_back(machine, lock, Some(id), why, Others::Leave)
}

/// Closes an entry without changing anything but the journal: one that is unreadable, or whose settings are gone
/// permanently. An entry that could still be undone is closed only if forced. Returns the values that were not
/// restored.
///
/// # Errors
/// Why it was not closed.
pub fn forget(lock: &Lock, id: u64, force: bool) -> Result<Vec<String>, UndoError> {
    let entry = match lock.journal().entry(id) {
        Ok(entry) => entry,
        Err(error @ JournalError::Unknown { .. }) => return Err(error.into()),
        Err(_) => {
            lock.close(id)?;
            return Ok(Vec::new());
        }
    };
    let reported = entry.state == State::Undone && entry.reverted() && !entry.left.is_empty();
    if matches!(entry.state, State::Undone | State::Closed) && !reported {
        return Err(UndoError::Already(id));
    }
    let booted = entry.begun.boot != context::boot();
    let gone = !booted && context::find(&entry.begun.namespace).is_none();
    if entry.stands() && !gone && !force {
        return Err(UndoError::Undoable(id));
    }
    lock.close(id)?;
    // Not a file's whole text.
    let value = |intent: &Intent| match intent.parsed() {
        Ok((_, old, _)) => old.to_string(),
        Err(_) => intent.old.clone().unwrap_or_else(|| "nothing".to_owned()),
    };
    let kept = entry.intents.iter().filter(|intent| !intent.restored);
    Ok(kept.map(|intent| format!("{} (was {})", intent.setting, value(intent))).collect())
}

/// What to do about settings that others have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Changed by a later apply: refuse the undo. Changed by another program: leave it.
    Refuse,
    /// Leave them in any case.
    Leave,
    /// Restore them in any case.
    Overwrite,
}

fn take_back(
    machine: &dyn Machine,
    lock: &Lock,
    id: Option<u64>,
    why: &str,
    others: Others,
) -> Result<Undone, UndoError> {
    let force = others == Others::Overwrite;
    let Contents { entries, mut unreadable } = lock.journal().contents()?;
    let here = context::namespace().ok();
    let same = |namespace: &Namespace| here.as_ref().is_some_and(|here| here.is(namespace));
    let boot = context::boot();
    let id = match id {
        Some(id) => id,
        None => {
            let here = |entry: &&Entry| same(&entry.begun.namespace) || entry.begun.boot != boot;
            let last = entries.iter().rev().filter(|entry| entry.stands()).find(here);
            match (last, unreadable.pop()) {
                (Some(last), _) => last.id,
                (None, Some(bad)) => return Err(bad.why.into()),
                (None, None) => {
                    return Err(UndoError::Nothing(lock.journal().directory().display().to_string()));
                }
            }
        }
    };
    let (entry, mut writing) = lock.resume(id)?;
    if matches!(entry.state, State::Undone | State::Closed) {
        return Err(UndoError::Already(id));
    }
    if entry.begun.boot == boot && !same(&entry.begun.namespace) {
        let inode = entry.begun.namespace.inode;
        return Err(UndoError::Elsewhere { id, inode, place: context::find(&entry.begun.namespace) });
    }
    if AfterBoot::of(&entry).is_elsewhere(machine) {
        let inode = entry.begun.namespace.inode;
        return Err(UndoError::Elsewhere { id, inode, place: Some(Place::Process(1)) });
    }
    if others == Others::Refuse {
        let changes = |entry: &Entry, name: &str| entry.intents.iter().any(|intent| intent.setting == name);
        for intent in &entry.intents {
            let later = entries.iter().filter(|other| other.id > id && other.stands());
            let mut later = later.filter(|other| other.begun.namespace.is(&entry.begun.namespace));
            if let Some(later) = later.find(|other| changes(other, &intent.setting)) {
                return Err(UndoError::Later { id, later: later.id, setting: intent.setting.clone() });
            }
        }
    }
    for (at, intent) in entry.intents.iter().enumerate() {
        let strange = |why: String| UndoError::Strange { id, why: format!("change {at}: {why}") };
        intent.parsed().map_err(|error| strange(Report::new(error).to_string()))?;
    }
    let Restored { left, ended, untold, gone_with_boot, noted } =
        restore(machine, &entry, &mut writing, why, force);
    noted?;
    let complete = lock.journal().entry(id)?.state == State::Undone;
    Ok(Undone { id, left, ended, untold, gone_with_boot, complete })
}
