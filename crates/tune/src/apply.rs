//! Applies a plan: each change is journaled before it is made and read back after it; the first failure rolls back all
//! changes before it.
//!
//! ```text
//! lock ─▸ is an earlier apply unfinished, or awaiting confirmation of the same settings?
//!        ─▸ begun, kept ─▸ each change: read ─▸ intent ─▸ write ─▸ read back ─▸ done
//!                                                              │ fails, or a signal asks to stop
//!                                                              └─▸ restore everything, undone: exit 4
//!                                                           ─▸ restore what a link reset has lost ─▸ applied
//! ```
//! After a change of channels, the driver's new choice of IRQ affinity, XPS and RSS table is kept and recorded, so that
//! undo can tell it from a later change by another program. The same goes for CPUs that irqbalance chose meanwhile.

mod overlap;

use std::time::Duration;

use error_reporter::Report;
use thiserror::Error;

use crate::conflicts::is_balanced;
use crate::context::{self, now};
use crate::journal::{Begun, Entry, Intent, JournalError, Line, Lock, SCHEMA, State, Writing};
use crate::link_reset::{chosen_by_driver, keep, kept_of};
use crate::machine::{Identity, Machine, Refusal};
use crate::plan::{Change, Plan, is_incomplete};
use crate::restore::{Left, Restored, restore};
use crate::settings::{Phase, Setting, Value};

/// A plan that was applied.
#[derive(Debug)]
pub struct Applied {
    /// The entry's number.
    pub id: u64,
    /// What was changed, with what was read back.
    pub changes: Vec<Made>,
}

/// A change that was made and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The setting.
    pub setting: Setting,
    /// Its value before.
    pub from: Value,
    /// What was read back.
    pub to: Value,
    /// A note: what is still pending, or who else chose the value.
    pub note: Option<String>,
}

/// Why a plan was not applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The journal cannot be used; nothing was changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An earlier apply or undo died in the middle; nothing was changed.
    #[error("apply {id} did not finish: some of its changes may be in effect; run `udpath undo {id}` first")]
    Unfinished {
        /// Its number.
        id: u64,
    },
    /// An earlier apply has changed the same setting, and is reverted unless it is confirmed; nothing was changed.
    #[error(
        "apply {id} also changed {setting} and awaits confirmation; run `udpath confirm {id}` or `udpath undo {id}` \
         first; nothing was changed"
    )]
    Awaiting {
        /// The entry's number.
        id: u64,
        /// The setting both change.
        setting: String,
    },
    /// The first change failed; nothing was changed.
    #[error("{0}; nothing was changed")]
    Nothing(String),
    /// A change failed; everything was rolled back.
    #[error(
        "{cause}; {} undone and verified",
        if *changes == 1 { "1 change was".to_owned() } else { format!("{changes} changes were") }
    )]
    Reverted {
        /// What failed.
        cause: String,
        /// How many changes had been made, including one that the kernel accepted but altered.
        changes: usize,
    },
    /// A change failed, and the rollback is incomplete.
    #[error("{cause}; undone, except: {}; `udpath undo {id}` tries again", Left::list(left))]
    HalfReverted {
        /// The entry's number.
        id: u64,
        /// What failed.
        cause: String,
        /// What was not restored.
        left: Vec<Left>,
    },
}

/// Applies a plan. `armed` is called with the entry's number once the entry is on disk and before anything is changed;
/// with `confirm`, it starts the process that reverts.
///
/// # Errors
/// What failed, and what happened to the changes before it.
pub fn apply(
    machine: &dyn Machine,
    lock: &Lock,
    plan: &Plan,
    confirm: Option<Duration>,
    armed: impl FnOnce(u64) -> Result<(), String>,
) -> Result<Applied, ApplyError> {
    apply_until(machine, lock, plan, confirm, armed, &|| None)
}

/// Like [`apply`], but calls `interrupted` before each change; if it returns a reason to stop, all changes are rolled
/// back.
///
/// # Errors
/// What failed, and what happened to the changes before it.
pub fn apply_until(
    machine: &dyn Machine,
    lock: &Lock,
    plan: &Plan,
    confirm: Option<Duration>,
    armed: impl FnOnce(u64) -> Result<(), String>,
    interrupted: &dyn Fn() -> Option<String>,
) -> Result<Applied, ApplyError> {
    let boot = context::boot();
    // An unreadable entry blocks only itself.
    let entries = lock.journal().entries()?;
    for entry in &entries {
        let torn = matches!(entry.state, State::Unfinished | State::HalfUndone);
        if torn && entry.stands() && entry.begun.boot == boot {
            return Err(ApplyError::Unfinished { id: entry.id });
        }
    }
    let namespace = context::namespace().map_err(|error| ApplyError::Nothing(error.to_string()))?;
    let awaiting = entries.iter().filter(|entry| entry.state == State::Awaiting && entry.begun.boot == boot);
    for entry in awaiting {
        if let Some(setting) = overlap::first(machine, plan, entry, entry.begun.namespace.is(&namespace)) {
            return Err(ApplyError::Awaiting { id: entry.id, setting: setting.to_string() });
        }
    }
    let (id, mut writing) = lock.begin(|id| Begun {
        schema: SCHEMA.to_owned(),
        id,
        time: now(),
        user: context::user(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: boot.clone(),
        namespace,
        confirm: confirm.map(|confirm| confirm.as_secs()),
        temporary: false,
        persists: plan.persists(),
    })?;
    let prepared = keep(machine, &mut writing, plan).map_err(|error| Report::new(error).to_string());
    if let Err(why) = prepared.and_then(|()| armed(id)) {
        lock.remove(id);
        return Err(ApplyError::Nothing(why));
    }
    let mut made = Vec::new();
    let around = Around { entries: &entries, boot: &boot, interrupted };
    let done = change_all(machine, &mut writing, plan, &around, 0, &mut made).and_then(|()| around.go_on());
    let done = done
        .and_then(|()| Ok(writing.append(&Line::Applied { time: now() }).and_then(|()| writing.sync())?));
    match done {
        Ok(()) => {
            for made in made.iter_mut().filter(|made| made.note.is_none()) {
                made.note = machine.pending(&made.setting, &made.to);
            }
            Ok(Applied { id, changes: made })
        }
        Err(stop) => Err(take_back(machine, lock, id, stop)),
    }
}

/// Why the apply stops.
pub(crate) struct Stop {
    pub(crate) cause: String,
    /// The failed change was written: the kernel accepted it but altered the value.
    written: bool,
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self { cause: Report::new(error).to_string(), written: false }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self { cause: refusal.to_string(), written: false }
    }
}

/// Makes the changes; `at` is the number of intents the entry already has.
pub(crate) fn change_all(
    machine: &dyn Machine,
    writing: &mut Writing,
    plan: &Plan,
    around: &Around<'_>,
    mut at: usize,
    made: &mut Vec<Made>,
) -> Result<(), Stop> {
    for (place, change) in plan.changes.iter().enumerate() {
        let before = kept_of(machine, &change.setting);
        made.extend(one(machine, writing, change, around, &mut at)?);
        for (setting, old) in before {
            if plan.changes[place + 1..].iter().any(|later| later.setting == setting) {
                continue;
            }
            // Gone with its queue; undo brings both back.
            let Ok(found) = machine.read(&setting) else { continue };
            if found.is(&old) {
                continue;
            }
            let planned = plan.changes.iter().any(|other| other.setting == setting);
            let chosen = if planned { None } else { chosen_by_others(machine, change, &setting) };
            if let Some(note) = chosen {
                writing
                    .append(&Line::Moved { setting: setting.to_string(), found: Setting::encode(&found) })?;
                made.push(Made { setting, from: old, to: found, note: Some(note.to_owned()) });
            } else {
                let reason = format!("lost by the change of {}", change.setting);
                let again = Change { setting, from: Some(found), to: old, irq: None, reason };
                made.extend(one(machine, writing, &again, around, &mut at)?);
            }
        }
    }
    Ok(())
}

/// Who else legitimately chose the value that a setting has after this change, as a note.
fn chosen_by_others(machine: &dyn Machine, change: &Change, setting: &Setting) -> Option<&'static str> {
    if chosen_by_driver(&change.setting, setting) {
        return Some("chosen by the driver for the new number of channels");
    }
    is_balanced(machine, setting).then_some("chosen by irqbalance, which runs")
}

/// Makes one change; does nothing if the value is already set.
fn one(
    machine: &dyn Machine,
    writing: &mut Writing,
    change: &Change,
    around: &Around<'_>,
    at: &mut usize,
) -> Result<Option<Made>, Stop> {
    around.go_on()?;
    let Change { setting, to, reason, .. } = change;
    let identity = machine.identity(setting)?;
    let from = machine.read(setting)?;
    if from.is(to) && !is_incomplete(machine, setting, &from) {
        return Ok(None);
    }
    // If the kernel does not report the value, undo uses the last known one.
    let known = (!from.is_reported()).then(|| around.applied(setting, identity.as_ref())).flatten();
    let lost = known.is_none().then(|| machine.lost(setting)).flatten().map(|lost| lost.words);
    if let Some(lost) = lost.as_ref().filter(|_| change.from.as_ref().is_some_and(Value::is_reported)) {
        return Err(Refusal::because(
            "set",
            setting,
            format!("it {lost}, which was not there when the plan was made"),
        )
        .into());
    }
    let known = || known.or_else(|| setting.assumed());
    let old = if from.is_reported() { from.clone() } else { known().unwrap_or_else(|| from.clone()) };
    writing.append(&Line::Intent(Intent {
        setting: setting.to_string(),
        identity,
        old: Setting::encode(&old),
        new: Setting::encode(to),
        reason: reason.clone(),
        lost,
        done: None,
        restored: false,
        replaced: false,
    }))?;
    writing.sync()?;
    let this = *at;
    *at += 1;
    machine.write(setting, to)?;
    let written = |cause: String| Stop { cause, written: true };
    let found = machine.read(setting).map_err(|refusal| written(refusal.to_string()))?;
    if found.is_reported() && !found.is(to) {
        return Err(written(format!(
            "{setting} was set to {to:#} and is {found:#}: {}",
            setting.row().extra.differs
        )));
    }
    // Not synced separately: if this line is lost, undo restores without checking for other writers.
    writing.append(&Line::Done { at: this, found: Setting::encode(&found) })?;
    let note = (!found.is_reported()).then(|| match setting.phase() {
        Phase::Restart => "the server answers again".to_owned(),
        _ => format!("the kernel does not report it, so it was not read back; undo sets {old:#}"),
    });
    let to = if found.is_reported() { found } else { to.clone() };
    Ok(Some(Made { setting: setting.clone(), from, to, note }))
}

/// What an apply needs besides its plan.
pub(crate) struct Around<'a> {
    /// Entries of earlier applies.
    pub(crate) entries: &'a [Entry],
    pub(crate) boot: &'a str,
    pub(crate) interrupted: &'a dyn Fn() -> Option<String>,
}

impl Around<'_> {
    /// Checks for a request to stop.
    fn go_on(&self) -> Result<(), Stop> {
        (self.interrupted)().map_or(Ok(()), |cause| Err(Stop { cause, written: false }))
    }

    /// The value last applied: the only source for a value the kernel does not report.
    fn applied(&self, setting: &Setting, identity: Option<&Identity>) -> Option<Value> {
        let Setting::Socket { setting: wanted, .. } = setting else { return None };
        let standing =
            self.entries.iter().rev().filter(|entry| entry.stands() && entry.begun.boot == *self.boot);
        let mut intents = standing.flat_map(|entry| entry.intents.iter().rev());
        let found = intents.find(|intent| {
            let same = identity.zip(intent.identity.as_ref()).is_some_and(|(now, then)| now.is(then));
            // A group may have been named by another member.
            same && matches!(intent.parsed(), Ok((Setting::Socket { setting, .. }, ..)) if setting == *wanted)
        })?;
        setting.decode(found.new.as_deref()).ok()
    }
}

/// Rolls back a failed apply.
fn take_back(machine: &dyn Machine, lock: &Lock, id: u64, stop: Stop) -> ApplyError {
    let Stop { cause, written } = stop;
    let (entry, mut writing) = match lock.resume(id) {
        Ok(resumed) => resumed,
        // The journal is no longer readable; its contents stay for the next undo.
        Err(error) => {
            let left = vec![Left { setting: "everything".to_owned(), why: Report::new(error).to_string() }];
            return ApplyError::HalfReverted { id, cause, left };
        }
    };
    let done = entry.intents.iter().filter(|intent| intent.done.is_some()).count();
    let changes = done + usize::from(written);
    let Restored { left, noted, .. } =
        restore(machine, &entry, &mut writing, &format!("apply failed: {cause}"), true);
    if !left.is_empty() {
        return ApplyError::HalfReverted { id, cause, left };
    }
    if changes == 0 || noted.is_err() {
        // Remove an entry that is empty or cannot record a complete rollback.
        lock.remove(id);
    }
    match changes {
        0 => ApplyError::Nothing(cause),
        _ => ApplyError::Reverted { cause, changes },
    }
}
