//! Undoes a journal entry, the last change first, and verifies it.
//!
//! If a change was read back when it was made and has a different value now, another program has changed it since: it
//! is left alone and reported, unless forced. A change that was never read back is always restored.

use std::fmt;

use thiserror::Error;

use crate::apply::{chosen_by_driver, kept_of, now};
use crate::context;
use crate::journal::{Contents, Entry, Intent, JournalError, Kept, Line, Lock, Namespace, State, Writing};
use crate::machine::{Identity, Machine, Refusal};
use crate::plan::Change;
use crate::settings::{Phase, Scope, Setting, Value};
use udpath_host::namespace::{self, Place};

/// A setting that was not restored, and why.
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
    #[error("there is nothing to undo: the journal {0} has no apply that stands")]
    Nothing(String),
    /// It has already been undone or closed.
    #[error("apply {0} has been undone or closed already")]
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
    #[error("apply {later} came after {id} and changed {setting} too; undo {later} first, or say --force")]
    Later {
        /// The entry's number.
        id: u64,
        /// The later one.
        later: u64,
        /// The setting both have changed.
        setting: String,
    },
    /// This program does not understand its names.
    #[error("apply {id} says what this program does not understand: {why}")]
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
            format!("undo it there, where process {pid} is: nsenter -t {pid} -n udpath undo {id}")
        }
        Some(Place::Here) | None => format!(
            "which is gone (no name and no process here has it; its inode was {inode}): `udpath undo --forget {id}` closes the \
             entry"
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
    let value = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
    let kept = entry.intents.iter().filter(|intent| !intent.restored);
    Ok(kept.map(|intent| format!("{} (was {})", intent.setting, value(&intent.old))).collect())
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
        intent.parsed().map_err(|error| strange(error.to_string()))?;
    }
    let Restored { left, ended, untold, gone_with_boot, noted } =
        restore(machine, &entry, &mut writing, why, force);
    noted?;
    let complete = lock.journal().entry(id)?.state == State::Undone;
    Ok(Undone { id, left, ended, untold, gone_with_boot, complete })
}

/// The outcome for everything an entry has changed.
pub(crate) struct Restored {
    /// What was not restored.
    pub(crate) left: Vec<Left>,
    /// Settings that ended with their process, socket or thread.
    pub(crate) ended: Vec<String>,
    /// What was written and cannot be read back.
    pub(crate) untold: Vec<String>,
    /// Settings that ended with an earlier boot.
    pub(crate) gone_with_boot: Vec<String>,
    /// Whether the journal records it.
    pub(crate) noted: Result<(), JournalError>,
}

/// Restores everything an entry has changed and returns what was not restored. Continues after failures.
pub(crate) fn restore(
    machine: &dyn Machine,
    entry: &Entry,
    writing: &mut Writing,
    why: &str,
    force: bool,
) -> Restored {
    // A full disk must not prevent a restore; the entry stays in effect then, and undo can be repeated.
    let _ = writing.append(&Line::Undoing { time: now(), user: context::user(), why: why.to_owned() });
    let Back { left, ended, untold, gone_with_boot, failed } = back_to(machine, entry, writing, 0, force);
    let words: Vec<String> = left.iter().map(ToString::to_string).collect();
    let noted = match failed {
        // Without this line, the entry reads as half undone.
        true => {
            let _ = writing.append(&Line::Failed { time: now(), left: words }).and_then(|()| writing.sync());
            Ok(())
        }
        false => writing.append(&Line::Undone { time: now(), left: words }).and_then(|()| writing.sync()),
    };
    Restored { left, ended, untold, gone_with_boot, noted }
}

/// The outcome of changes that were undone.
#[derive(Default)]
pub(crate) struct Back {
    /// What was not restored.
    pub(crate) left: Vec<Left>,
    ended: Vec<String>,
    untold: Vec<String>,
    gone_with_boot: Vec<String>,
    /// At least one setting that should have been restored could not be.
    failed: bool,
}

/// Undoes intents from `first` on, the last one first, and restores what link resets have lost.
pub(crate) fn back_to(
    machine: &dyn Machine,
    entry: &Entry,
    writing: &mut Writing,
    first: usize,
    force: bool,
) -> Back {
    let Back { mut left, mut ended, mut untold, mut gone_with_boot, mut failed } = Back::default();
    let after_boot = AfterBoot::of(entry);
    let kept = match after_boot {
        AfterBoot::No if entry.carried == 0 => kept(machine, entry),
        _ => at_stake(machine, entry, first),
    };
    // Changes restored by an interrupted undo are not checked again: their current values may result from its next
    // steps, not from another program.
    let done = |intent: &Intent| intent.restored || intent.replaced;
    for (at, intent) in entry.intents.iter().enumerate().skip(first).rev().filter(|(_, intent)| !done(intent))
    {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if after_boot.ended(&setting) {
            gone_with_boot.push(intent.setting.clone());
            continue;
        }
        // The write never happened, and what it would have destroyed still exists: restoring would destroy it.
        let there = |lost: &String| machine.lost(&setting).is_some_and(|now| now.seen && now.words == *lost);
        if intent.done.is_none() && intent.lost.as_ref().is_some_and(there) {
            let _ = writing.append(&Line::Restored { at });
            continue;
        }
        let identity = intent.identity.as_ref().filter(|_| after_boot == AfterBoot::No);
        match back(machine, &setting, identity, &old, verified(&setting, intent), force) {
            Ok(()) => {
                let _ = writing.append(&Line::Restored { at });
                if setting.assumed().is_some() && !machine.read(&setting).is_ok_and(|found| found.is_told()) {
                    untold.push(intent.setting.clone());
                }
                if let Some(lost) = &intent.lost {
                    let why = format!("is {old:#}, and may not be as before: the apply {lost}");
                    left.push(Left { setting: intent.setting.clone(), why });
                }
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
    Back { left, ended, untold, gone_with_boot, failed }
}

/// What has survived a boot since the entry was made, or last adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterBoot {
    /// No boot since.
    No,
    /// Everything that files keep, under new identities.
    Kept,
    /// Only files.
    Files,
}

impl AfterBoot {
    pub(crate) fn of(entry: &Entry) -> Self {
        match (entry.begun.boot == context::boot(), entry.persists()) {
            (true, _) => Self::No,
            (false, true) => Self::Kept,
            (false, false) => Self::Files,
        }
    }

    /// Do its settings belong to another network namespace? Files keep settings only for the initial one, whatever
    /// number a boot gives it.
    pub(crate) fn is_elsewhere(self, machine: &dyn Machine) -> bool {
        self == Self::Kept && !namespace::is_initial(machine.source())
    }

    /// Did the boot end this setting?
    pub(crate) fn ended(self, setting: &Setting) -> bool {
        match self {
            Self::No => false,
            Self::Kept => *setting == Setting::IrqbalanceBan,
            Self::Files => setting.phase() != Phase::Files,
        }
    }
}

/// Why a setting was not restored.
enum Not {
    /// It no longer exists.
    Gone(String),
    /// Another program has changed it since.
    Changed(String),
    /// It should have been restored, but that failed.
    Failed(String),
}

/// The value read back after the change, if any.
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

/// The setting of the same object, under its current name.
fn the_same(machine: &dyn Machine, setting: &Setting, identity: Option<&Identity>) -> Result<Setting, Not> {
    let Some(identity) = identity else { return Ok(setting.clone()) };
    match machine.identity(setting) {
        Ok(Some(now)) if now.is(identity) => Ok(setting.clone()),
        // irqbalance loses its ban list when it exits.
        found => machine.renamed(setting, identity).ok_or_else(|| {
            Not::Gone(match found {
                Ok(Some(now @ Identity::Irq { .. })) => {
                    format!("is {now} now, and was {identity}; left alone")
                }
                Ok(_) => "is another one of the same name now; left alone".to_owned(),
                Err(refusal) => format!("is gone ({})", refusal.why),
            })
        }),
    }
}

/// Settings that this undo's own link resets may lose, for an entry that has no record of them in this boot.
fn at_stake(machine: &dyn Machine, entry: &Entry, first: usize) -> Vec<(Setting, Option<Identity>, Value)> {
    let mut found: Vec<(Setting, Option<Identity>, Value)> = Vec::new();
    for intent in entry.intents.iter().skip(first).filter(|intent| !intent.restored && !intent.replaced) {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if machine.read(&setting).is_ok_and(|now| now.is(&old)) {
            continue;
        }
        let change = Change { setting, from: None, to: old, irq: None, reason: String::new() };
        for (kept, now) in kept_of(machine, &change) {
            let planned = entry.intents.iter().any(|intent| intent.setting == kept.to_string());
            let known = found.iter().any(|(known, ..)| *known == kept);
            if !planned && !known && !chosen_by_driver(&change.setting, &kept) {
                found.push((kept, None, now));
            }
        }
    }
    found
}

/// Settings that link resets may have lost, to be checked once everything else is restored.
fn kept(machine: &dyn Machine, entry: &Entry) -> Vec<(Setting, Option<Identity>, Value)> {
    let wanted = |kept: &Kept| {
        let (setting, old) = kept.parsed().ok()?;
        let planned = entry.intents.iter().any(|intent| intent.setting == kept.setting);
        // Apply has restored what was lost, or recorded what the driver chose. A different value was set by another
        // program.
        let moved = kept.moved.as_ref().and_then(|text| setting.decode(text.as_deref()).ok());
        let known = |found: &Value| found.is(&old) || moved.as_ref().is_some_and(|moved| found.is(moved));
        let changed = || machine.read(&setting).is_ok_and(|found| !known(&found));
        let left_alone = entry.applied.is_some() && !planned && changed();
        (!left_alone).then(|| (setting.clone(), kept.identity.clone(), old))
    };
    entry.kept.iter().filter_map(wanted).collect()
}
