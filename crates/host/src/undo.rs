//! Takes back what an entry of the journal says, the last change first, and verifies it.
//!
//! A change that was verified when it was made and has another value now was changed by somebody else since: it is left
//! as it is and told, unless forced. One that was never verified is restored whatever it is now.

use std::fmt;

use thiserror::Error;

use crate::apply::now;
use crate::journal::{Entry, Intent, JournalError, Kept, Line, Lock, State, Writing};
use crate::machine::{Identity, Machine, Refusal};
use crate::setting::{Phase, Scope, Setting, Value};
use crate::whereabouts;

/// A setting that is not as it was before, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The setting.
    pub setting: String,
    /// Why.
    pub why: String,
}

impl Left {
    /// All of them on one line.
    pub(crate) fn list(left: &[Self]) -> String {
        left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.why)
    }
}

/// What became of an undo.
#[derive(Debug)]
pub struct Undone {
    /// The entry's number.
    pub id: u64,
    /// What is not as it was before.
    pub left: Vec<Left>,
    /// What went with the process, socket or thread that it was a setting of: there is nothing to put back.
    pub ended: Vec<String>,
    /// What was written and could not be read back: the kernel does not tell it.
    pub untold: Vec<String>,
    /// All that could be restored is; otherwise another undo may restore the rest.
    pub complete: bool,
}

/// Why nothing was taken back.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing stands.
    #[error("there is nothing to undo: the journal {0} has no apply that stands")]
    Nothing(String),
    /// It has been undone.
    #[error("apply {0} has been undone already")]
    Already(u64),
    /// It was made in another network namespace.
    #[error(
        "apply {id} was made in another network namespace; {}",
        name.as_ref().map_or_else(
            || format!("undo it there (it has no name, and the inode {inode})"),
            |name| format!("undo it there: udpath undo {id} --netns {name}")
        )
    )]
    Elsewhere {
        /// The entry's number.
        id: u64,
        /// Of the namespace.
        inode: u64,
        /// Its name, if it has one.
        name: Option<String>,
    },
    /// A later apply has changed the same setting.
    #[error("apply {later} came after {id} and changed {setting} too; undo {later} first, or say --force")]
    Later {
        /// The entry's number.
        id: u64,
        /// The later one.
        later: u64,
        /// What both have changed.
        setting: String,
    },
    /// Its words are none of this program's.
    #[error("apply {id} says what this program does not understand: {why}")]
    Strange {
        /// The entry's number.
        id: u64,
        /// What.
        why: String,
    },
}

/// Takes back an entry; the last that stands here, when no number is given.
///
/// # Errors
/// Why nothing was taken back.
pub fn undo(
    machine: &dyn Machine,
    lock: &Lock,
    id: Option<u64>,
    why: &str,
    force: bool,
) -> Result<Undone, UndoError> {
    let entries = lock.journal().entries()?;
    let here = whereabouts::namespace().ok();
    let boot = whereabouts::boot();
    let id = match id {
        Some(id) => id,
        None => {
            let here =
                |entry: &&Entry| here.as_ref() == Some(&entry.begun.namespace) || entry.begun.boot != boot;
            let last = entries.iter().rev().filter(|entry| entry.stands()).find(here);
            let nothing = || UndoError::Nothing(lock.journal().directory().display().to_string());
            last.ok_or_else(nothing)?.id
        }
    };
    let (entry, mut writing) = lock.resume(id)?;
    if entry.state == State::Undone {
        return Err(UndoError::Already(id));
    }
    if entry.begun.boot == boot && here.as_ref() != Some(&entry.begun.namespace) {
        let inode = entry.begun.namespace.inode;
        return Err(UndoError::Elsewhere { id, inode, name: whereabouts::name(&entry.begun.namespace) });
    }
    if !force {
        let changes = |entry: &Entry, name: &str| entry.intents.iter().any(|intent| intent.setting == name);
        for intent in &entry.intents {
            let later = entries.iter().filter(|other| other.id > id && other.stands());
            let mut later = later.filter(|other| other.begun.namespace == entry.begun.namespace);
            if let Some(later) = later.find(|other| changes(other, &intent.setting)) {
                return Err(UndoError::Later { id, later: later.id, setting: intent.setting.clone() });
            }
        }
    }
    for (at, intent) in entry.intents.iter().enumerate() {
        let strange = |why: String| UndoError::Strange { id, why: format!("change {at}: {why}") };
        intent.parsed().map_err(|error| strange(error.to_string()))?;
    }
    let Restored { left, ended, untold, noted } = restore(machine, &entry, &mut writing, why, force);
    noted?;
    let complete = lock.journal().entry(id)?.state == State::Undone;
    Ok(Undone { id, left, ended, untold, complete })
}

/// What became of everything that an entry has changed.
pub(crate) struct Restored {
    /// What is not as before.
    pub(crate) left: Vec<Left>,
    /// What went with the process, socket or thread that it was a setting of.
    pub(crate) ended: Vec<String>,
    /// What was written and cannot be read back.
    pub(crate) untold: Vec<String>,
    /// Whether the journal says so.
    pub(crate) noted: Result<(), JournalError>,
}

/// Restores everything that an entry has changed; says what is not as before. Goes on past what fails.
pub(crate) fn restore(
    machine: &dyn Machine,
    entry: &Entry,
    writing: &mut Writing,
    why: &str,
    force: bool,
) -> Restored {
    // A full disk must not keep anything from being restored; the entry stands then, and undo is repeated.
    let _ = writing.append(&Line::Undoing { time: now(), user: whereabouts::user(), why: why.to_owned() });
    let booted = entry.begun.boot != whereabouts::boot();
    // After a boot only files are as this entry made them.
    let counts = |setting: &Setting| !booted || setting.phase() == Phase::Files;
    let kept = kept(machine, entry).into_iter().filter(|(kept, ..)| counts(kept)).collect::<Vec<_>>();
    let (mut left, mut ended, mut untold, mut failed) = (Vec::new(), Vec::new(), Vec::new(), false);
    // What an undo that died had taken back already is not looked at again: what it is now may be the work of its next
    // steps, and not somebody else's.
    for (at, intent) in entry.intents.iter().enumerate().rev().filter(|(_, intent)| !intent.restored) {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if !counts(&setting) {
            continue;
        }
        match back(machine, &setting, intent.identity.as_ref(), &old, verified(&setting, intent), force) {
            Ok(()) => {
                let _ = writing.append(&Line::Restored { at });
                untold.extend(setting.assumed().map(|_| intent.setting.clone()));
            }
            Err(Not::Gone(_)) if setting.scope() == Scope::Process => ended.push(intent.setting.clone()),
            Err(Not::Gone(why) | Not::Changed(why)) => {
                left.push(Left { setting: intent.setting.clone(), why });
            }
            Err(Not::Failed(why)) => {
                failed = true;
                left.push(Left { setting: intent.setting.clone(), why });
            }
        }
    }
    for (setting, identity, old) in kept {
        match back(machine, &setting, identity.as_ref(), &old, None, true) {
            Ok(()) | Err(Not::Gone(_) | Not::Changed(_)) => {}
            Err(Not::Failed(why)) => {
                failed = true;
                left.push(Left { setting: setting.to_string(), why });
            }
        }
    }
    let words: Vec<String> = left.iter().map(ToString::to_string).collect();
    let noted = match failed {
        true => Ok(()),
        false => writing.append(&Line::Undone { time: now(), left: words }).and_then(|()| writing.sync()),
    };
    Restored { left, ended, untold, noted }
}

/// Why a setting is not as before.
enum Not {
    /// It is not there any more.
    Gone(String),
    /// Somebody else has changed it since.
    Changed(String),
    /// It should be, and could not be restored.
    Failed(String),
}

/// The value that was read back after the change; none if it never was.
fn verified(setting: &Setting, intent: &Intent) -> Option<Value> {
    setting.decode(intent.done.as_ref()?.as_deref()).ok()
}

/// Restores one value.
fn back(
    machine: &dyn Machine,
    setting: &Setting,
    identity: Option<&Identity>,
    old: &Value,
    made: Option<Value>,
    force: bool,
) -> Result<(), Not> {
    let gone = |refusal: &Refusal| Not::Gone(format!("is gone ({})", refusal.why));
    let failed = |refusal: Refusal| Not::Failed(format!("cannot be restored to {old:#}: {refusal}"));
    let setting = &the_same(machine, setting, identity)?;
    let found = match machine.read(setting) {
        Err(refusal) if refusal.is_gone() => return Err(gone(&refusal)),
        found => found.map_err(failed)?,
    };
    if found.is(old) {
        return Ok(());
    }
    if let Some(made) = made.filter(|made| !force && !found.is(made)) {
        return Err(Not::Changed(format!(
            "is {found:#}, which somebody else has made of {made:#}; left so (it was {old:#} before; --force restores that)"
        )));
    }
    match machine.write(setting, old) {
        Err(refusal) if refusal.is_gone() => return Err(gone(&refusal)),
        written => written.map_err(failed)?,
    }
    let found = machine.read(setting).map_err(failed)?;
    if found.is(old) || !found.is_told() {
        return Ok(());
    }
    Err(Not::Failed(format!("is {found:#} after it was set back to {old:#}")))
}

/// The setting of the same object as then, under the name it has now.
fn the_same(machine: &dyn Machine, setting: &Setting, identity: Option<&Identity>) -> Result<Setting, Not> {
    let Some(identity) = identity else { return Ok(setting.clone()) };
    match machine.identity(setting) {
        Ok(Some(now)) if now.is(identity) => Ok(setting.clone()),
        // irqbalance forgets with its end what it was told.
        found => machine.renamed(setting, identity).ok_or_else(|| {
            Not::Gone(match found {
                Ok(_) => "is another one of the same name now; left alone".to_owned(),
                Err(refusal) => format!("is gone ({})", refusal.why),
            })
        }),
    }
}

/// What resets of links may have lost, and is to be looked at once everything else is restored.
fn kept(machine: &dyn Machine, entry: &Entry) -> Vec<(Setting, Option<Identity>, Value)> {
    let wanted = |kept: &Kept| {
        let (setting, old) = kept.parsed().ok()?;
        let planned = entry.intents.iter().any(|intent| intent.setting == kept.setting);
        // Apply has put back what it lost, or noted what the driver chose. Another value is somebody else's.
        let moved = kept.moved.as_ref().and_then(|text| setting.decode(text.as_deref()).ok());
        let known = |found: &Value| found.is(&old) || moved.as_ref().is_some_and(|moved| found.is(moved));
        let changed = || machine.read(&setting).is_ok_and(|found| !known(&found));
        let left_alone = entry.applied.is_some() && !planned && changed();
        (!left_alone).then(|| (setting.clone(), kept.identity.clone(), old))
    };
    entry.kept.iter().filter_map(wanted).collect()
}
