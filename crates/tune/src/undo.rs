//! Takes back what an entry of the journal says, the last change first, and verifies it.
//!
//! A change that was verified when it was made and has another value now was changed by somebody else since: it is left
//! as it is and told, unless forced. One that was never verified is restored whatever it is now.

use std::fmt;

use thiserror::Error;

use crate::apply::{chosen_by_driver, kept_of, now};
use crate::context;
use crate::journal::{Contents, Entry, Intent, JournalError, Kept, Line, Lock, Namespace, State, Writing};
use crate::machine::{Identity, Machine, Refusal};
use crate::plan::Change;
use crate::settings::{Phase, Scope, Setting, Value};
use udpath_host::namespace::{self, Place};

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
    /// What a boot has ended before: it was not looked at.
    pub gone_with_boot: Vec<String>,
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
    /// It has been undone or closed.
    #[error("apply {0} has been undone or closed already")]
    Already(u64),
    /// It was made in another network namespace.
    #[error("apply {id} was made in another network namespace; {}", elsewhere(*id, *inode, place.as_ref()))]
    Elsewhere {
        /// The entry's number.
        id: u64,
        /// Of the namespace.
        inode: u64,
        /// Where it is now; none when it is not found.
        place: Option<Place>,
    },
    /// It is not given up: it can still be undone.
    #[error("apply {0} can still be undone: run `udpath undo {0}`, or add --force to give up the old values")]
    Undoable(u64),
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
    take_back(machine, lock, id, why, if force { Others::Overwrite } else { Others::Refuse })
}

/// As [`undo`] of an entry, but what a later apply has changed too is left and named instead of keeping all the rest as it
/// is: for a revert, which nobody watches.
///
/// # Errors
/// Why nothing was taken back.
pub fn undo_what_can_be(machine: &dyn Machine, lock: &Lock, id: u64, why: &str) -> Result<Undone, UndoError> {
    take_back(machine, lock, Some(id), why, Others::Leave)
}

/// Gives an entry up without changing anything but the journal: one that cannot be read, or whose settings are gone for
/// good. One that could still be undone only when forced. Gives the values that were not restored, in words.
///
/// # Errors
/// Why it was not given up.
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

/// What is done about settings that others have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// A later apply's: nothing is undone. Somebody else's: left.
    Refuse,
    /// Left, whoever it was.
    Leave,
    /// Restored, whoever it was.
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

/// What became of everything that an entry has changed.
pub(crate) struct Restored {
    /// What is not as before.
    pub(crate) left: Vec<Left>,
    /// What went with the process, socket or thread that it was a setting of.
    pub(crate) ended: Vec<String>,
    /// What was written and cannot be read back.
    pub(crate) untold: Vec<String>,
    /// What a boot has ended before.
    pub(crate) gone_with_boot: Vec<String>,
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
    let _ = writing.append(&Line::Undoing { time: now(), user: context::user(), why: why.to_owned() });
    let Back { left, ended, untold, gone_with_boot, failed } = back_to(machine, entry, writing, 0, force);
    let words: Vec<String> = left.iter().map(ToString::to_string).collect();
    let noted = match failed {
        // The entry says half undone without it.
        true => {
            let _ = writing.append(&Line::Failed { time: now(), left: words }).and_then(|()| writing.sync());
            Ok(())
        }
        false => writing.append(&Line::Undone { time: now(), left: words }).and_then(|()| writing.sync()),
    };
    Restored { left, ended, untold, gone_with_boot, noted }
}

/// What became of changes that were taken back.
#[derive(Default)]
pub(crate) struct Back {
    /// What is not as before.
    pub(crate) left: Vec<Left>,
    ended: Vec<String>,
    untold: Vec<String>,
    gone_with_boot: Vec<String>,
    /// Something should be as before, and could not be restored.
    failed: bool,
}

/// Restores what intents `first` and later have changed, the last one first, and what resets of links have lost.
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
    // What an undo that died had taken back already is not looked at again: what it is now may be the work of its next
    // steps, and not somebody else's.
    let done = |intent: &Intent| intent.restored || intent.replaced;
    for (at, intent) in entry.intents.iter().enumerate().skip(first).rev().filter(|(_, intent)| !done(intent))
    {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if after_boot.ended(&setting) {
            gone_with_boot.push(intent.setting.clone());
            continue;
        }
        // The write never came, and what it would have destroyed is still there: taking it back would destroy it.
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

/// What a boot since the entry was made, or last adopted, has left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterBoot {
    /// There was none.
    No,
    /// All that files keep, under other identities.
    Kept,
    /// Nothing but files.
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

    /// Are its settings those of another network namespace? Files keep them for the initial one alone, whatever numbers a
    /// boot gives to namespaces.
    pub(crate) fn is_elsewhere(self, machine: &dyn Machine) -> bool {
        self == Self::Kept && !namespace::is_initial(machine.source())
    }

    /// Has the boot ended this setting?
    pub(crate) fn ended(self, setting: &Setting) -> bool {
        match self {
            Self::No => false,
            Self::Kept => *setting == Setting::IrqbalanceBan,
            Self::Files => setting.phase() != Phase::Files,
        }
    }
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
                Ok(Some(now @ Identity::Irq { .. })) => {
                    format!("is {now} now, and was {identity}; left alone")
                }
                Ok(_) => "is another one of the same name now; left alone".to_owned(),
                Err(refusal) => format!("is gone ({})", refusal.why),
            })
        }),
    }
}

/// What this undo's own resets of links may lose, of an entry that does not remember what was there at this boot.
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
